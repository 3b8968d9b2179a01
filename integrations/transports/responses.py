"""Interpretation of a provider's responses, the same for all transports: errors, sizes, exact JSON."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from integrations.error_codes import ITEM_TOO_LARGE, SCOPES_MISSING
from integrations.models import ConnectedSource
from integrations.providers.interface import TokenRefused
from jobs.outcomes import Permanent, Wait
from vendors import calls
from vendors.call_failures import ErrorResponse, InvalidResponse
from vendors.calls import VendorRefused
from vendors.error_codes import VENDOR_QUOTA_EXHAUSTED, VENDOR_RATE_LIMITED
from vendors.vendor_account import Vendor

MOST_BYTES = 32 * 1024 * 1024  # of a response that is read whole; a page of 100 records has a few hundred thousand
ERROR_BYTES = 64 * 1024  # of an error's body: its code stands near the front
LARGEST_POWER = 400  # of ten: beyond any sum of money, far below the limit of PostgreSQL's numeric

# developers.google.com/workspace/drive/api/guides/handle-errors, …/gmail/api/guides/handle-errors
_TOO_FAST = {
    *("rateLimitExceeded", "userRateLimitExceeded", "sharingRateLimitExceeded", "RATE_LIMIT_EXCEEDED"),
    *("3001", "003001"),  # QuickBooks' ThrottleExceeded, which may come with 403 too
}
_USED_UP = {"dailyLimitExceeded", "quotaExceeded", "DAILY"}
_NO_SCOPE = {*("insufficientPermissions", "ACCESS_TOKEN_SCOPE_INSUFFICIENT"), *("MISSING_SCOPES", "insufficient_scope")}
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def source_vendor(source: ConnectedSource, requests_per_minute: int = 0) -> Vendor:
    """Return the vendor key of a source: each connection has its own rate limit and circuit breaker."""
    return Vendor(source.provider, str(source.pk), requests_per_minute=requests_per_minute)


class TooLarge(Permanent):
    """A response larger than its caller accepts."""

    def __init__(self) -> None:
        super().__init__(ITEM_TOO_LARGE)


class ResponseMeta(NamedTuple):
    """The kept part of a response: not its body, which may repeat a tenant's text, nor its request with the token."""

    status_code: int
    headers: Mapping[str, str]


class ProviderError(Exception):
    """A response with an error status. ``code`` is the provider's own code for the reason, if there is one."""

    def __init__(self, status: int, headers: Mapping[str, str], code: str | None) -> None:
        super().__init__(f"status {status}")
        self.response = ResponseMeta(status, headers)
        self.code = code


def interpret_status(status: ErrorResponse) -> Exception | None:
    """Return the exception for a 4xx (a ``vendors.calls.StatusInterpreter``): the key is a tenant's, not ours."""
    code = status.vendor_code
    if status.status == 401:
        return TokenRefused()
    if status.status in (403, 429) and code in _USED_UP:
        return Wait(calls.QUOTA_SECONDS, VENDOR_QUOTA_EXHAUSTED)
    if status.status not in (403, 429):
        return None
    if status.status == 429 or code in _TOO_FAST:  # exactly as long as it says: spec 002 has fixed delays
        return Wait(calls.limited_seconds(status), VENDOR_RATE_LIMITED)
    if code in _NO_SCOPE:
        return Permanent(SCOPES_MISSING, "The tenant's consent does not cover this.")
    return VendorRefused(status.status, code)


def error_code(content: bytes | str) -> str | None:
    """Return the provider's own error code: Google's reason, HubSpot's category, Intuit's code; never prose."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return next((code for code in _candidates(body) if isinstance(code, str) and _CODE.fullmatch(code)), None)


def _candidates(body: Any) -> Iterator[Any]:
    error = _get(body, "error")
    for detail in _get_list(error, "details"):
        yield _get(detail, "reason")
    for each in _get_list(error, "errors"):
        yield _get(each, "reason")
    yield _get(error, "status")
    for fault in [*_get_list(_get(body, "Fault"), "Error"), *_get_list(_get(body, "fault"), "error")]:
        yield _get(fault, "code")
    if _get(body, "policyName") == "DAILY":
        yield "DAILY"
    yield _get(body, "category")
    yield error


def _get(body: Any, name: str) -> Any:
    return body.get(name) if isinstance(body, dict) else None


def _get_list(body: Any, name: str) -> list[Any]:
    rows = _get(body, name)
    return rows if isinstance(rows, list) else []


def read_bounded(pieces: Iterable[bytes], most: int = MOST_BYTES) -> bytes:
    """Join a body; raise ``InvalidResponse`` when it is larger than ``most`` bytes, however it is compressed."""
    body, size = [], 0
    for piece in pieces:
        size += len(piece)
        if size > most:
            raise InvalidResponse("The answer is too large.")
        body.append(piece)
    return b"".join(body)


def parse_json_object(content: bytes | str) -> dict[str, Any]:
    """Return the JSON object of a body, its numbers with a point as ``Decimal``: money keeps its digits."""
    try:
        body = json.loads(content, parse_float=_parse_decimal, parse_constant=_parse_decimal)
    except (ValueError, RecursionError):
        raise InvalidResponse("The answer is not JSON.") from None  # the error itself would keep the whole body
    if not isinstance(body, dict):
        raise InvalidResponse("The answer is not a JSON object.")
    return body


def _parse_decimal(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except ArithmeticError:
        raise ValueError("a number beyond all bounds") from None
    if not number.is_finite() or abs(number.adjusted()) > LARGEST_POWER or len(text) > 2 * LARGEST_POWER:
        raise ValueError("a number beyond all bounds")
    return number
