"""Which codes an operation may answer, by status. Tests prove that the schema, docs/api.md and the code agree."""

from __future__ import annotations

from collections.abc import Mapping

Codes = Mapping[int, tuple[str, ...]]


def merged(*several: Codes) -> Codes:
    """Return the union; what comes first stays first."""
    found: dict[int, tuple[str, ...]] = {}
    for codes in several:
        for status, names in codes.items():
            found[status] = tuple(dict.fromkeys((*found.get(status, ()), *names)))
    return dict(sorted(found.items()))


TENANT: Codes = {401: ("NOT_AUTHENTICATED", "INVALID_TOKEN"), 406: ("NOT_ACCEPTABLE",), 503: ("UNAVAILABLE",)}
WRITING: Codes = {403: ("FORBIDDEN",)}  # a session without its CSRF token
LISTED: Codes = {404: ("NOT_FOUND",)}  # a cursor that is none
ONE: Codes = {404: ("NOT_FOUND",)}
POLLED: Codes = {429: ("POLL_LIMIT_REACHED",)}
WITH_BODY: Codes = {
    400: ("INVALID_REQUEST", "MALFORMED_JSON"),
    413: ("BODY_TOO_LARGE",),
    415: ("UNSUPPORTED_MEDIA_TYPE",),
}
STORE: Codes = {503: ("STORAGE_UNAVAILABLE", "UNAVAILABLE"), 507: ("INSUFFICIENT_STORAGE",)}
SIGNED_URL: Codes = {403: ("URL_EXPIRED", "URL_NOT_VALID"), 404: ("NOT_FOUND",), 503: STORE[503]}

CODES: dict[str, Codes] = {
    "upload": merged(
        WITH_BODY,
        {400: ("EMPTY_FILE", "INVALID_SHA256", "INVALID_FILENAME", "FILENAME_TOO_LONG")},
        {
            409: ("JOB_ALREADY_ACTIVE", "JOB_STATE_CHANGED", "PIPELINE_UNKNOWN"),
            413: ("FILE_TOO_LARGE",),
            415: ("UNSUPPORTED_TYPE",),
        },
        {429: ("UPLOAD_LIMIT_REACHED",)},
        TENANT,
        WRITING,
    ),
    "put_bytes": merged(
        SIGNED_URL,
        STORE,
        {400: ("UPLOAD_INTERRUPTED",), 411: ("LENGTH_REQUIRED",), 415: ("TYPE_MISMATCH",)},
        {422: ("LENGTH_MISMATCH", "HASH_MISMATCH")},
    ),
    "get_bytes": SIGNED_URL,
    "job": merged(TENANT, ONE, POLLED),
    "jobs": merged(TENANT, LISTED),
    "document_job": merged(TENANT, ONE, POLLED),
    "retry_job": merged(
        WITH_BODY,
        TENANT,
        WRITING,
        ONE,
        {409: ("JOB_ALREADY_ACTIVE", "JOB_DONE", "JOB_STATE_CHANGED", "PIPELINE_UNKNOWN")},
    ),
    "advance_job": merged(
        TENANT,
        WRITING,
        ONE,
        {409: ("JOB_NOT_WAITING", "INVARIANT_VIOLATED", "JOB_STATE_CHANGED", "JOB_ALREADY_ACTIVE")},
    ),
    "documents": merged(TENANT, LISTED),
    "document": merged(TENANT, ONE),
    "delete_document": merged(TENANT, WRITING, ONE),
    "document_original": merged(TENANT, ONE, {409: ("NOT_READY",)}),
    "document_parsed": merged(TENANT, ONE, {409: ("NOT_READY",)}),
    "document_chunks": merged(TENANT, ONE),
    "document_page": merged(
        TENANT,
        ONE,
        STORE,
        {400: ("INVALID_REQUEST",), 404: ("PAGE_NOT_FOUND",)},
        {409: ("NOT_READY",), 422: ("PAGE_NOT_SHOWN",), 429: ("LOOK_LIMIT_REACHED",)},
    ),
    "document_purchases": merged(TENANT, LISTED),
    "usage": TENANT,
    "search": merged(
        WITH_BODY,
        {400: ("EMPTY_QUERY", "QUERY_TOO_LONG", "K_OUT_OF_RANGE", "UNKNOWN_MODE", "UNKNOWN_FILTER", "INVALID_FILTER")},
        {400: ("UNKNOWN_SOURCE", "TEXT_REFUSED"), 429: ("SEARCH_LIMIT_REACHED", "BUDGET_SPENT")},
        {503: ("SEARCH_UNAVAILABLE", "MODEL_UNAVAILABLE")},
        TENANT,
        WRITING,
    ),
    "internal_embed": merged(
        WITH_BODY,
        {400: ("TOO_MANY_TEXTS", "EMPTY_TEXT", "TEXT_TOO_LONG", "TEXT_REFUSED"), 409: ("NO_MODEL_HERE",)},
        {429: ("BUDGET_SPENT",), 503: ("EMBEDDER_UNAVAILABLE",)},
        TENANT,
        ONE,  # without BRAIN_API_SECRET there is no such thing here
    ),
    "llamaparse_webhook": merged(
        {400: ("INVALID_REQUEST", "BODY_INTERRUPTED"), 401: ("INVALID_SIGNATURE",), 404: ("CALLBACK_UNKNOWN_JOB",)},
        {409: ("CALLBACK_CONTRADICTS", "JOB_NOT_PARSING", "JOB_STATE_CHANGED"), 413: ("BODY_TOO_LARGE",)},
        {422: ("ARTIFACT_MISMATCH", "ARTIFACT_EMPTY")},
        STORE,
    ),
    "alive": {},
    "ready": {503: ("STOPPING", "UNAVAILABLE", "NOT_MIGRATED", "STORAGE_NOT_CONFIGURED")},
}
# Of any operation: a method that it does not have, and what nobody foresaw.
ANYWHERE: Codes = {405: ("METHOD_NOT_ALLOWED",), 500: ("INTERNAL",)}

NAMES = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 406: "NotAcceptable", 409: "Conflict",
    411: "LengthRequired", 413: "TooLarge", 415: "UnsupportedType", 422: "Unprocessable", 429: "TooManyRequests",
    503: "Unavailable", 507: "NoRoom",
}  # fmt: skip


def component(operation: str, status: int) -> str:
    """Return the schema component's name: one for what many operations refuse alike, else the operation's own."""
    codes = CODES[operation][status]
    if any(codes == shared.get(status) for shared in (TENANT, WRITING, ONE, POLLED, WITH_BODY, STORE)):
        return NAMES[status]
    return "".join(word.capitalize() for word in operation.split("_")) + NAMES[status]
