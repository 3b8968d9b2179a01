"""Error codes of no app in particular: requests, authentication, limits, staff's actions."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from accounts.errors import ApiError, ErrorCode, staff_error


def not_found() -> ApiError:
    """Return the same error for what does not exist and for what belongs to another tenant."""
    return ApiError(NOT_FOUND)


def unavailable(detail: str = "") -> ApiError:
    """Return an error for a dependency that cannot be reached: the same request may succeed in a moment."""
    return ApiError(UNAVAILABLE, detail, retry_after=5)


SIGNED_OUT = _("You are signed out. Load this page again and sign in.")

INVALID_REQUEST = ErrorCode("INVALID_REQUEST", detail=_("The request cannot be read."))
MALFORMED_JSON = ErrorCode("MALFORMED_JSON", detail=_("The body is not valid JSON."))
NOT_AUTHENTICATED = ErrorCode("NOT_AUTHENTICATED", SIGNED_OUT, status=401, detail=_("Send a bearer token."))
INVALID_TOKEN = ErrorCode("INVALID_TOKEN", SIGNED_OUT, status=401, detail=_("The token is not valid."))
FORBIDDEN = ErrorCode(
    "FORBIDDEN", _("This page was open for too long. Load it again."), status=403, detail=_("You may not do this.")
)
INSUFFICIENT_SCOPE = ErrorCode("INSUFFICIENT_SCOPE", status=403, detail=_("The token lacks the scope that this takes."))
UNKNOWN_TENANT = ErrorCode(
    "UNKNOWN_TENANT", status=403, detail=_("The header names no user and no owner of a document by their id.")
)
FORM_EXPIRED = staff_error(
    "FORM_EXPIRED",
    _("A form was open for too long, or another site sent it."),
    _("Load the page again. Behind a proxy, see [deploy.md](deploy.md): `X-Forwarded-Proto`."),
    status=403,
    detail=_("This form is no longer valid. Go back, load the page again and try once more."),
)
NOT_FOUND = ErrorCode(
    "NOT_FOUND", _("The document was deleted meanwhile. Choose the file again."), status=404, detail=_("Not found.")
)
METHOD_NOT_ALLOWED = ErrorCode("METHOD_NOT_ALLOWED", status=405, detail=_("This method is not allowed here."))
NOT_ACCEPTABLE = ErrorCode("NOT_ACCEPTABLE", status=406, detail=_("Only application/json is answered here."))
IDEMPOTENCY_KEY_REUSED = ErrorCode(
    "IDEMPOTENCY_KEY_REUSED",
    status=422,
    detail=_("This Idempotency-Key belongs to another request of the last 24 hours; send a new key."),
)
BODY_TOO_LARGE = ErrorCode("BODY_TOO_LARGE", status=413, detail=_("The body is too large."))
UNSUPPORTED_MEDIA_TYPE = ErrorCode("UNSUPPORTED_MEDIA_TYPE", status=415, detail=_("Send application/json."))
REFUSED = staff_error(
    "REFUSED",
    _("REST framework raised an error that has no code of its own."),
    _("Tell a developer."),
    detail=_("The request cannot be granted."),
)
UNDECLARED = staff_error(
    "UNDECLARED", _("The job's code is not declared in this release."), _("Look at its detail and tell a developer.")
)
INTERNAL = ErrorCode("INTERNAL", status=500, detail=_("Something went wrong on our side."))
UNAVAILABLE = ErrorCode(
    "UNAVAILABLE",
    _("Our service cannot be reached."),
    status=503,
    detail=_("The service cannot reach its database; try again shortly."),
)

REASON_REQUIRED = staff_error(
    "REASON_REQUIRED",
    _("The audit log keeps what staff do to a tenant's things together with the reason."),
    _("Give a reason."),
    detail=_("Give a reason: it is kept in the audit log."),
)
USER_INACTIVE = staff_error(
    "USER_INACTIVE", _("A token cannot be created for a user who may not sign in."), _("Activate the user first.")
)
TOO_MANY_TOKENS = ErrorCode("TOO_MANY_TOKENS", _("You have as many tokens as you may have."), status=409)
ACCOUNT_REQUIRED = ErrorCode(
    "ACCOUNT_REQUIRED",
    status=403,
    detail=_("API tokens belong to an account here, and you sign in elsewhere: use that sign-in's token."),
)
TOKEN_OF_STAFF = staff_error(
    "TOKEN_OF_STAFF",
    _("With a token of another member of staff one could act as them."),
    _("They create it themselves, or a superuser does, or `manage.py create_user EMAIL`."),
    status=403,
)
TRIED_TOO_OFTEN = staff_error(
    "TRIED_TOO_OFTEN",
    _(
        "In ten minutes there were 10 attempts to sign in by one name from one address, or 100 failed ones from one"
        " address (of IPv6: from one /64)."
    ),
    _("Wait ten minutes. Behind a proxy set `TRUSTED_PROXIES`: `check --deploy` and `doctor` warn (accessa.W107)."),
    status=429,
)
