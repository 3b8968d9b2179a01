"""What a failed call means: the vendor's answer, its silence, or a bug of ours. Knows the clients by their shapes.

OpenAI's and LlamaCloud's clients are made by one generator: equal names in different modules.
"""

from __future__ import annotations

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
    """The vendor answered, but not what its protocol says. The message is ours: it repeats nothing of the answer."""


class ErrorResponse(NamedTuple):
    """An HTTP status that the vendor answered with."""

    status: int
    headers: Mapping[str, str]
    vendor_code: str | None


UNREACHABLE, INVALID = VENDOR_UNREACHABLE, VENDOR_ANSWER_INVALID

_UNREACHABLE = {
    "openai.APIConnectionError",
    "llama_cloud.APIConnectionError",
    "httpx.TransportError",
    "httpx2.TransportError",
    "httpcore.NetworkError",
    "httpcore.TimeoutException",
    "httpcore2.NetworkError",
    "httpcore2.TimeoutException",
    "requests.ConnectionError",
    "requests.Timeout",
    "urllib.URLError",
    "urllib3.HTTPError",
    "botocore.HTTPClientError",
    "botocore.ConnectionError",
    "botocore.CredentialRetrievalError",
    "botocore.MetadataRetrievalError",
}
_INVALID = {
    "openai.APIResponseValidationError",
    "llama_cloud.APIResponseValidationError",
    "httpx.DecodingError",
    "httpx2.DecodingError",
    "httpx.TooManyRedirects",
    "httpx2.TooManyRedirects",
    "requests.ContentDecodingError",
    "requests.ChunkedEncodingError",
    "requests.TooManyRedirects",
    "requests.JSONDecodeError",
    "json.JSONDecodeError",
    "pydantic_core.ValidationError",
    "botocore.ResponseParserError",
    "botocore.ResponseStreamingError",
    "botocore.IncompleteReadError",
    "builtins.UnicodeDecodeError",
}
_PROTOCOL = {"httpx.RemoteProtocolError", "httpx2.RemoteProtocolError"}
# The connection was never made, so nothing was asked for.
_NEVER_SENT = {
    "httpx.ConnectError",
    "httpx.ConnectTimeout",
    "httpx.PoolTimeout",
    "httpx2.ConnectError",
    "httpx2.ConnectTimeout",
    "httpx2.PoolTimeout",
    "requests.ConnectTimeout",
    "urllib3.NewConnectionError",
    "urllib3.ConnectTimeoutError",
    "botocore.EndpointConnectionError",
    "botocore.ConnectTimeoutError",
    "botocore.CredentialRetrievalError",
    "botocore.MetadataRetrievalError",
    "builtins.ConnectionRefusedError",
    "socket.gaierror",
}
_CLIENTS = {"openai", "llama_cloud", "httpx", "httpx2", "requests"}
# What reading an answer of another shape raises inside a client: a str where an object was expected, bad base64.
_MISREAD = (ValueError, AttributeError, TypeError, LookupError)
_NETWORK = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.ETIMEDOUT}
_SAFE_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def error_response(error: Exception) -> ErrorResponse | None:
    """Return the HTTP status that a call ended with, whichever client raised it; None when there was none."""
    if (told := _answered_by_aws(error)) is not None:
        return told if told.status >= 400 else None
    response: Any = error if "urllib.HTTPError" in _names(error) else getattr(error, "response", None)
    status = getattr(response, "status_code", None) or getattr(response, "code", None)
    headers = getattr(response, "headers", None)
    if not isinstance(status, int) or headers is None or 200 <= status < 400:
        return None
    said = {str(name): str(value) for name, value in headers.items()}
    return ErrorResponse(status, said, _vendor_code(error, response))


def failure_code(error: Exception) -> ErrorCode | None:
    """Return the code of a call that brought no usable answer; None when the error is no vendor's at all."""
    if isinstance(error, InvalidResponse):
        return INVALID
    names = _names(error)
    cause = error.__cause__  # the generated clients call everything that their transport raises a lost connection
    if names & _INVALID or (cause is not None and (_names(cause) & _INVALID or _cut_off(cause))) or _cut_off(error):
        return INVALID
    if names & _UNREACHABLE or isinstance(error, (ConnectionError, socket.gaierror, socket.herror, ssl.SSLError)):
        return UNREACHABLE
    if isinstance(error, http.client.HTTPException):
        return INVALID
    if isinstance(error, TimeoutError) or (isinstance(error, OSError) and error.errno in _NETWORK):
        return UNREACHABLE
    bad_shape = isinstance(error, _MISREAD) and _raised_while_reading(error)
    elsewhere = _answered_by_aws(error) or getattr(getattr(error, "response", None), "status_code", None)
    return INVALID if bad_shape or elsewhere else None


def may_have_charged(error: BaseException) -> bool:
    """Tell whether the vendor may have done, and charged for, what a failed call asked for.

    Takes what the client raised or what ``gate.failed`` made of it. Only a refusal or a connection that never came
    about are certain; a timeout, a reset, a 5xx or an unreadable answer may have been charged.
    """
    if isinstance(error, (StageFailure, Wait)):
        if error.__cause__ is None:
            return not isinstance(error, Wait)  # held back before the call
        error = error.__cause__
    if not isinstance(error, Exception):
        return True
    if answer := error_response(error):
        return answer.status >= 500 or answer.status == 408  # told to hurry up, or given up on: it may have been done
    return not any(_names(link) & _NEVER_SENT for link in _chain(error))


# What AWS' services say by a name, where their status says something else, or nothing: the status it amounts to.
_AWS_STATUS = {
    "ServiceQuotaExceededException": 402,
    "ThrottlingException": 429,
    "TooManyRequestsException": 429,
    "ModelErrorException": 500,  # 424: the model fell over
    "ExpiredTokenException": 403,
    "UnrecognizedClientException": 403,
    "InvalidSignatureException": 403,
}
_NO_CREDENTIALS = {
    "botocore.NoCredentialsError",
    "botocore.PartialCredentialsError",
    "botocore.ProfileNotFound",
    "botocore.UnauthorizedSSOTokenError",
    "botocore.SSOTokenLoadError",
}
# A ValidationException is about the text, but for these (Bedrock has no other name for them).
_MISCONFIGURED = re.compile(r"model identifier|on-demand throughput|inference profile|Operation not allowed|EndOfLife")


def _answered_by_aws(error: Exception) -> ErrorResponse | None:
    """Return what a service of AWS said, by boto3; a call that nobody could sign is one whose key is refused."""
    names = _names(error)
    if names & _NO_CREDENTIALS:
        return ErrorResponse(401, {}, "NoCredentials")
    told = getattr(error, "response", None)
    if "botocore.ClientError" not in names or not isinstance(told, dict):
        return None
    meta, said = told.get("ResponseMetadata", {}), told.get("Error", {})
    code, message = str(said.get("Code", "")), str(said.get("Message", ""))
    status = _AWS_STATUS.get(code, meta.get("HTTPStatusCode"))
    if not isinstance(status, int):
        return None
    if code == "ValidationException" and _MISCONFIGURED.search(message):
        status = 404
    return ErrorResponse(status, meta.get("HTTPHeaders", {}), code if _SAFE_CODE.fullmatch(code) else None)


def _cut_off(error: BaseException) -> bool:
    """Tell an answer that broke off, or is no HTTP, from a connection that was closed before any answer."""
    return bool(_names(error) & _PROTOCOL) and not str(error).startswith("Server disconnected")


def _names(error: BaseException) -> set[str]:
    return {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(error).__mro__}


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = _cause(link)


def _cause(error: BaseException) -> BaseException | None:
    reason = getattr(error, "reason", None)  # urllib and urllib3 keep it there, requests in the context only
    if isinstance(reason, BaseException):
        return reason
    bare = type(error).__module__.partition(".")[0] in ("requests", "urllib3")
    return error.__cause__ or (error.__context__ if bare else None)


def _raised_while_reading(error: Exception) -> bool:
    """Tell a client that stumbled over an answer from a bug of ours: what we ask is refused at its door, or built."""
    inside = [
        frame.f_code.co_name
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").partition(".")[0] in _CLIENTS
    ]
    return len(inside) > 1 and "_build_request" not in inside


def _vendor_code(error: Exception, response: Any) -> str | None:
    """Return the vendor's own name for its refusal if it is one: free text may repeat a tenant's."""
    for said in _said(error, response):
        if isinstance(said, str) and _SAFE_CODE.fullmatch(said):
            return said
    return None


def _said(error: Exception, response: Any) -> Iterator[Any]:
    body = getattr(error, "body", None)
    if body is None and hasattr(response, "json"):
        try:
            body = response.json()
        except (ValueError, RuntimeError):  # no JSON, or a stream that was not read
            body = None
    inner = body.get("error") if isinstance(body, dict) else None
    bodies = [part for part in (inner, body) if isinstance(part, dict)]
    quota = [part for part in bodies if "insufficient_quota" in (part.get("code"), part.get("type"))]
    if quota:
        yield "insufficient_quota"
    yield getattr(error, "code", None)
    for part in bodies:
        yield part.get("code")
        yield part.get("type")
