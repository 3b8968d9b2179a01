"""What a provider's answers mean, whichever transport brought them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from integrations.providers import TokenRefused
from jobs.outcomes import Permanent, Postponed
from vendors import guard
from vendors import rate_limit_headers as headers
from vendors.errors import ErrorResponse
from vendors.guard import InvalidResponse, VendorRefused

MOST_BYTES = 32 * 1024 * 1024  # of an answer that is read whole; a page of 100 records has a few hundred thousand
ERROR_BYTES = 64 * 1024  # of an error's body: its code stands near the front
LARGEST_POWER = 400  # of ten: beyond any sum of money, far below what PostgreSQL's numeric holds

# developers.google.com/workspace/drive/api/guides/handle-errors, …/gmail/api/guides/handle-errors
_TOO_FAST = {
    *("rateLimitExceeded", "userRateLimitExceeded", "sharingRateLimitExceeded", "RATE_LIMIT_EXCEEDED"),
    *("3001", "003001"),  # QuickBooks' ThrottleExceeded, which may come with 403 too
}
_USED_UP = {"dailyLimitExceeded", "quotaExceeded", "DAILY"}
_NO_SCOPE = {
    *("insufficientPermissions", "ACCESS_TOKEN_SCOPE_INSUFFICIENT"),
    *("MISSING_SCOPES", "insufficient_scope"),
}
SCOPES_MISSING = "SCOPES_MISSING"
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class TooLarge(Permanent):
    """What was to be read is larger than the caller takes."""

    def __init__(self) -> None:
        super().__init__("ITEM_TOO_LARGE", "The provider's answer is larger than is taken.")


class ResponseMeta(NamedTuple):
    """All that is kept of an answer: not its body, which may repeat a tenant's text, nor its request with the token."""

    status_code: int
    headers: Mapping[str, str]


class ProviderError(Exception):
    """The provider answered with an error. ``code`` is its own word for the reason, if it gave one."""

    def __init__(self, status: int, said: Mapping[str, str], code: str | None) -> None:
        super().__init__(f"status {status}")
        self.response = ResponseMeta(status, said)
        self.code = code


def interpret_status(answer: ErrorResponse) -> Exception | None:
    """Interpret a 4xx of a provider (a ``vendors.guard.StatusInterpreter``): the key is the tenant's, not ours."""
    code = answer.vendor_code
    if answer.status == 401:
        return TokenRefused()
    if answer.status in (403, 429) and code in _USED_UP:
        return Postponed(guard.QUOTA_SECONDS, guard.QUOTA)
    if answer.status != 403:
        return None
    if code in _TOO_FAST:
        told = headers.retry_after(answer.headers)
        return Postponed(guard.LIMITED_SECONDS if told is None else max(told, guard.LEAST_SECONDS), guard.LIMITED)
    if code in _NO_SCOPE:
        return Permanent(SCOPES_MISSING, "The tenant's consent does not cover this.")
    return VendorRefused(answer.status, code)


def error_code(content: bytes | str) -> str | None:
    """Return the provider's own word for its error: Google's reason, HubSpot's category, Intuit's code; never prose."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return next((word for word in _words(body) if isinstance(word, str) and _WORD.fullmatch(word)), None)


def _words(body: Any) -> Iterator[Any]:
    error = _part(body, "error")
    for detail in _list(error, "details"):
        yield _part(detail, "reason")
    for each in _list(error, "errors"):
        yield _part(each, "reason")
    yield _part(error, "status")
    for fault in [*_list(_part(body, "Fault"), "Error"), *_list(_part(body, "fault"), "error")]:
        yield _part(fault, "code")
    if _part(body, "policyName") == "DAILY":
        yield "DAILY"
    yield _part(body, "category")
    yield error


def _part(body: Any, name: str) -> Any:
    return body.get(name) if isinstance(body, dict) else None


def _list(body: Any, name: str) -> list[Any]:
    found = _part(body, name)
    return found if isinstance(found, list) else []


def read_bounded(pieces: Iterable[bytes], most: int = MOST_BYTES) -> bytes:
    """Join a body; raise ``InvalidResponse`` when it is larger than ``most`` bytes, however it is compressed."""
    found, size = [], 0
    for piece in pieces:
        size += len(piece)
        if size > most:
            raise InvalidResponse("The answer is too large.")
        found.append(piece)
    return b"".join(found)


def parse_json_object(content: bytes | str) -> dict[str, Any]:
    """Return the JSON object of a body, its numbers with a point as ``Decimal``: money keeps its digits."""
    try:
        body = json.loads(content, parse_float=_exact, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise InvalidResponse("The answer is not JSON.") from None  # the error itself would keep the whole body
    if not isinstance(body, dict):
        raise InvalidResponse("The answer is not a JSON object.")
    return body


def _exact(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except ArithmeticError:
        raise ValueError("a number beyond all bounds") from None
    if abs(number.adjusted()) > LARGEST_POWER or len(text) > 2 * LARGEST_POWER:
        raise ValueError("a number beyond all bounds")
    return number


def _no_number(text: str) -> Decimal:
    raise ValueError(f"{text} is no JSON")
