"""Explanations of S3 errors: unreachable endpoint, missing bucket, refused key; each with a remedy."""

from http import HTTPStatus

from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

RIGHTS = "Make the bucket, and let the key do s3:PutObject, s3:GetObject, s3:DeleteObject and s3:ListBucket."
KEYS = "Correct S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY, and look at S3_REGION and at this machine's clock."
# The settings of buckets that are not the documents'.
BUCKETS, ENDPOINTS = {"statutes": "STATUTES_BUCKET"}, {"statutes": "STATUTES_S3_ENDPOINT_URL"}
NO_BUCKET = "it does not exist"
REFUSED = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "AuthorizationHeaderMalformed")


def explain_s3_error(alias: str, error: OSError) -> tuple[str, str]:
    """Return the reason in a few words, and a remedy. The SDK's error is in the chain of the storage's ``OSError``."""
    endpoint = ENDPOINTS.get(alias, "S3_ENDPOINT_URL")
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ClientError):
            return _explain_response(alias, endpoint, cause)
        if isinstance(cause, (HTTPClientError, ConnectionError)):
            remedy = f"Start the store, allow this machine to reach it, or correct {endpoint}."
            return f"nobody answers at {endpoint} ({type(cause).__name__})", remedy
        if isinstance(cause, BotoCoreError):
            return f"no request can be made ({type(cause).__name__})", KEYS
        cause = cause.__cause__ or cause.__context__
    return f"the server at {endpoint} is no S3", f"Correct {endpoint}."


def _explain_response(alias: str, endpoint: str, error: ClientError) -> tuple[str, str]:
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = str(error.response.get("Error", {}).get("Code", ""))
    if code == "NoSuchBucket":
        return NO_BUCKET, f"{RIGHTS} Or correct {BUCKETS.get(alias, f'S3_{alias.upper()}_BUCKET')}."
    if code in REFUSED or status == HTTPStatus.UNAUTHORIZED:
        return "the key is refused", KEYS
    if status == HTTPStatus.FORBIDDEN:
        return "the key may not do that", RIGHTS
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return f"the store has a fault of its own ({status})", "Look at the store, or wait."
    return f"the store answers {status}", f"Correct {endpoint}, and look at the bucket's policy."
