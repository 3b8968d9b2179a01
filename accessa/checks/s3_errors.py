"""Why a bucket did not take a file: is nobody there, is there no such bucket, or is it the key."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

RIGHTS = "Make the bucket, and let the key do s3:PutObject, s3:GetObject, s3:DeleteObject and s3:ListBucket."
# Of one that is not the documents'.
BUCKETS, ENDPOINTS = {"statutes": "STATUTES_BUCKET"}, {"statutes": "STATUTES_S3_ENDPOINT_URL"}
KEYS = "Correct S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY, and look at S3_REGION and at this machine's clock."
NO_BUCKET = "it does not exist"
REFUSED = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "AuthorizationHeaderMalformed")


def explain_s3_error(alias: str, error: OSError) -> tuple[str, str]:
    """Return the reason in a few words, and what to do about it. The storage has told the SDK's errors as a disk's."""
    endpoint = ENDPOINTS.get(alias, "S3_ENDPOINT_URL")
    for cause in _causes(error):
        if isinstance(cause, ClientError):
            return _answered(alias, cause)
        if isinstance(cause, (HTTPClientError, ConnectionError)):
            remedy = f"Start the store, let this machine out to it, or correct {endpoint}."
            return f"nobody answers at {endpoint} ({type(cause).__name__})", remedy
        if isinstance(cause, BotoCoreError):
            return f"it cannot be asked ({type(cause).__name__})", KEYS
    return f"what answers at {endpoint} is no S3", f"Correct {endpoint}."


def _answered(alias: str, error: ClientError) -> tuple[str, str]:
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
    endpoint = ENDPOINTS.get(alias, "S3_ENDPOINT_URL")
    return f"the store answers {status}", f"Correct {endpoint}, and look at the bucket's policy."


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
