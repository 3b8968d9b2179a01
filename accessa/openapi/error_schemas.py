"""Error responses of the schema: the codes that a view declares, and those that follow from an operation's form."""

from collections.abc import Iterable, Sequence
from typing import Any

from accounts import common_error_codes, errors
from accounts.authentication import TENANT_HEADER
from accounts.errors import ErrorCode
from accounts.rate_limit import POLL_LIMIT_REACHED
from documents.error_codes import INSUFFICIENT_STORAGE
from jobs.error_codes import STORAGE_UNAVAILABLE

AUTHENTICATED = (
    common_error_codes.NOT_AUTHENTICATED,
    common_error_codes.INVALID_TOKEN,
    common_error_codes.NOT_ACCEPTABLE,
    common_error_codes.UNAVAILABLE,
)
# A token without the scope; a session without its CSRF token, or a service that names a tenant.
FORBIDDEN = (common_error_codes.INSUFFICIENT_SCOPE, common_error_codes.FORBIDDEN)
FOR_A_TENANT = [*FORBIDDEN, common_error_codes.UNKNOWN_TENANT]
JSON_BODY = (
    common_error_codes.INVALID_REQUEST, common_error_codes.MALFORMED_JSON, common_error_codes.BODY_TOO_LARGE,
    common_error_codes.UNSUPPORTED_MEDIA_TYPE,
)  # fmt: skip
STORAGE = (STORAGE_UNAVAILABLE, common_error_codes.UNAVAILABLE, INSUFFICIENT_STORAGE)
# Of any operation: a method that it does not have, and a bug.
ANYWHERE = (common_error_codes.METHOD_NOT_ALLOWED, common_error_codes.INTERNAL)

NAMES = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 406: "NotAcceptable", 409: "Conflict",
    411: "LengthRequired", 413: "TooLarge", 415: "UnsupportedType", 422: "Unprocessable", 429: "TooManyRequests",
    503: "Unavailable", 507: "NoRoom",
}  # fmt: skip


def by_status(codes: Iterable[ErrorCode]) -> dict[int, list[ErrorCode]]:
    statuses: dict[int, list[ErrorCode]] = {}
    for code in dict.fromkeys(codes):
        statuses.setdefault(int(code.status), []).append(code)
    return dict(sorted(statuses.items()))


# Sets of codes that many operations answer: each has one component.
SHARED = [
    codes
    for group in (
        AUTHENTICATED,
        FORBIDDEN,
        (common_error_codes.NOT_FOUND,),
        (POLL_LIMIT_REACHED,),
        JSON_BODY,
        STORAGE,
    )
    for codes in by_status(group).values()
]


def operation_codes(method: str, operation: dict[str, Any]) -> dict[int, list[ErrorCode]]:
    """Return an operation's codes by status, and remove the view's declaration from the operation."""
    declared: Sequence[ErrorCode] = operation.pop(errors.SCHEMA_EXTENSION, ())
    schemes = {scheme for security in operation["security"] for scheme in security}
    if not schemes & {"bearer", "brain"}:  # not a view of REST framework
        return by_status(declared)
    codes = list(AUTHENTICATED)
    if "bearer" in schemes:
        codes.append(common_error_codes.INSUFFICIENT_SCOPE)
    if any(parameter["name"] == TENANT_HEADER for parameter in operation.get("parameters", ())):
        codes += FOR_A_TENANT
    if "cookieAuth" in schemes and method != "get":
        codes.append(common_error_codes.FORBIDDEN)  # a session without its CSRF token
    if "requestBody" in operation:
        codes += JSON_BODY
    if any(parameter["in"] == "path" or parameter["name"] == "cursor" for parameter in operation.get("parameters", ())):
        codes.append(common_error_codes.NOT_FOUND)
    return by_status([*codes, *declared])


def component_name(operation_id: str, status: int, codes: Sequence[ErrorCode]) -> str:
    if codes == FOR_A_TENANT:
        return "TenantForbidden"
    prefix = "" if codes in SHARED else "".join(word.capitalize() for word in operation_id.split("_"))
    return prefix + NAMES[status]
