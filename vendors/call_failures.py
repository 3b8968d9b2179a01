"""Classification of failed vendor calls: an error response, no usable response, or a bug of ours.

Clients' errors are known by their modules and names. OpenAI's and LlamaCloud's clients are made by one generator:
equal names in different modules.
"""

import errno
import http.client
import re
import socket
import ssl
import traceback
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from accounts.errors import ErrorCode
from jobs.outcomes import StageFailure, Wait
from vendors.error_codes import VENDOR_ANSWER_INVALID, VENDOR_UNREACHABLE


class InvalidResponse(Exception):
    """The vendor answered, but not what its protocol says. The message is ours: it repeats nothing of the response."""


class ErrorResponse(NamedTuple):
    status: int
    headers: Mapping[str, str]
    vendor_code: str | None


def _errors(**names: str) -> set[str]:
    return {f"{package}.{name}" for package, listed in names.items() for name in listed.split()}


_UNREACHABLE = _errors(
    openai="APIConnectionError",
    llama_cloud="APIConnectionError",
    httpx="TransportError",
    httpcore="NetworkError TimeoutException",
    requests="ConnectionError Timeout",
    urllib="URLError",
    urllib3="HTTPError",
    botocore="HTTPClientError ConnectionError CredentialRetrievalError MetadataRetrievalError",
)
_INVALID = _errors(
    openai="APIResponseValidationError",
    llama_cloud="APIResponseValidationError",
    httpx="DecodingError TooManyRedirects",
    requests="ContentDecodingError ChunkedEncodingError TooManyRedirects JSONDecodeError",
    json="JSONDecodeError",
    pydantic_core="ValidationError",
    botocore="ResponseParserError ResponseStreamingError IncompleteReadError",
    builtins="UnicodeDecodeError",
)
# The connection was never made, so nothing was sent.
_NEVER_SENT = _errors(
    httpx="ConnectError ConnectTimeout PoolTimeout",
    requests="ConnectTimeout",
    urllib3="NewConnectionError ConnectTimeoutError",
    botocore="EndpointConnectionError ConnectTimeoutError CredentialRetrievalError MetadataRetrievalError",
    builtins="ConnectionRefusedError",
    socket="gaierror",
)
_CLIENTS = {"openai", "llama_cloud", "httpx", "requests"}
# Raised inside a client that reads a response of another shape: a str where an object was expected, bad base64.
_BAD_SHAPE = (ValueError, AttributeError, TypeError, LookupError)
_NETWORK = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.ETIMEDOUT}
_SAFE_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# The status of AWS' error codes whose HTTP status says something else, or nothing.
_AWS_STATUS = {
    "ServiceQuotaExceededException": 402,
    "ThrottlingException": 429,
    "TooManyRequestsException": 429,
    "ModelErrorException": 500,  # 424: the model failed
    "ExpiredTokenException": 403,
    "UnrecognizedClientException": 403,
    "InvalidSignatureException": 403,
}
_NO_CREDENTIALS = _errors(
    botocore="NoCredentialsError PartialCredentialsError ProfileNotFound UnauthorizedSSOTokenError SSOTokenLoadError"
)
# A ValidationException is about the text, except these (Bedrock has no other code for them).
_MISCONFIGURED = re.compile(r"model identifier|on-demand throughput|inference profile|Operation not allowed|EndOfLife")


def error_response(error: Exception) -> ErrorResponse | None:
    """Return the error response that a call ended with, whichever client raised it; None when there was none."""
    if (aws := _aws_response(error)) is not None:
        return aws if aws.status >= 400 else None
    response: Any = error if "urllib.HTTPError" in _names(error) else getattr(error, "response", None)
    status = getattr(response, "status_code", None) or getattr(response, "code", None)
    headers = getattr(response, "headers", None)
    if not isinstance(status, int) or headers is None or 200 <= status < 400:
        return None
    # The vendor's own code of the error, if it is one: free text may repeat a tenant's.
    codes = (code for code in _codes(error, response) if isinstance(code, str) and _SAFE_CODE.fullmatch(code))
    return ErrorResponse(status, {str(name): str(value) for name, value in headers.items()}, next(codes, None))


def failure_code(error: Exception) -> ErrorCode | None:
    """Return the code of a call that brought no usable response; None when the error is no vendor's at all."""
    if isinstance(error, InvalidResponse):
        return VENDOR_ANSWER_INVALID
    names = _names(error)
    cause = error.__cause__  # the generated clients call everything that their transport raises a lost connection
    if names & _INVALID or (cause is not None and (_names(cause) & _INVALID or _cut_off(cause))) or _cut_off(error):
        return VENDOR_ANSWER_INVALID
    if names & _UNREACHABLE or isinstance(error, (ConnectionError, socket.gaierror, socket.herror, ssl.SSLError)):
        return VENDOR_UNREACHABLE
    if isinstance(error, http.client.HTTPException):
        return VENDOR_ANSWER_INVALID
    if isinstance(error, TimeoutError) or (isinstance(error, OSError) and error.errno in _NETWORK):
        return VENDOR_UNREACHABLE
    bad_shape = isinstance(error, _BAD_SHAPE) and _raised_while_reading(error)
    other_response = _aws_response(error) or getattr(getattr(error, "response", None), "status_code", None)
    return VENDOR_ANSWER_INVALID if bad_shape or other_response else None


def may_have_charged(error: BaseException) -> bool:
    """Return whether the vendor may have done, and charged for, a failed call.

    Takes what the client raised or what ``calls.record_failure`` made of it. Only a refusal or a connection that was
    never made are certain; a timeout, a reset, a 5xx or an unreadable response may have been charged.
    """
    if isinstance(error, (StageFailure, Wait)):
        if error.__cause__ is None:
            return not isinstance(error, Wait)  # held back before the call
        error = error.__cause__
    if not isinstance(error, Exception):
        return True
    if response := error_response(error):
        return response.status >= 500 or response.status == 408  # a timeout on their side: it may have been done
    return not any(_names(link) & _NEVER_SENT for link in _chain(error))


def _aws_response(error: Exception) -> ErrorResponse | None:
    """Return the response behind an error of boto3; a call that nobody could sign is one whose key is refused."""
    names = _names(error)
    if names & _NO_CREDENTIALS:
        return ErrorResponse(401, {}, "NoCredentials")
    body = getattr(error, "response", None)
    if "botocore.ClientError" not in names or not isinstance(body, dict):
        return None
    meta, details = body.get("ResponseMetadata", {}), body.get("Error", {})
    code, message = str(details.get("Code", "")), str(details.get("Message", ""))
    status = _AWS_STATUS.get(code, meta.get("HTTPStatusCode"))
    if not isinstance(status, int):
        return None
    if code == "ValidationException" and _MISCONFIGURED.search(message):
        status = 404
    return ErrorResponse(status, meta.get("HTTPHeaders", {}), code if _SAFE_CODE.fullmatch(code) else None)


def _cut_off(error: BaseException) -> bool:
    """Tell a response that broke off, or is no HTTP, from a connection that was closed before any response."""
    return "httpx.RemoteProtocolError" in _names(error) and not str(error).startswith("Server disconnected")


def _names(error: BaseException) -> set[str]:
    return {f"{_package(kind.__module__)}.{kind.__name__}" for kind in type(error).__mro__}


def _package(module: str) -> str:
    """Return the package; openai's httpx2 and httpcore2 count as httpx and httpcore."""
    return module.partition(".")[0].removesuffix("2")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes: urllib and urllib3 keep them in ``reason``, requests in the context only."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        reason = getattr(link, "reason", None)
        is_bare = _package(type(link).__module__) in ("requests", "urllib3")
        cause = link.__cause__ or (link.__context__ if is_bare else None)
        link = reason if isinstance(reason, BaseException) else cause


def _raised_while_reading(error: Exception) -> bool:
    """Tell a client that failed on a response from a bug of ours, which fails at the first frame or in the request."""
    functions = [
        frame.f_code.co_name
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if _package(frame.f_globals.get("__name__", "")) in _CLIENTS
    ]
    return len(functions) > 1 and "_build_request" not in functions


def _codes(error: Exception, response: Any) -> Iterator[Any]:
    body = getattr(error, "body", None)
    if body is None and hasattr(response, "json"):
        try:
            body = response.json()
        except (ValueError, RuntimeError):  # no JSON, or a stream that was not read
            body = None
    inner = body.get("error") if isinstance(body, dict) else None
    bodies = [part for part in (inner, body) if isinstance(part, dict)]
    if any("insufficient_quota" in (part.get("code"), part.get("type")) for part in bodies):
        yield "insufficient_quota"
    yield getattr(error, "code", None)
    for part in bodies:
        yield part.get("code")
        yield part.get("type")
