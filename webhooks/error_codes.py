"""Error codes of the parsing service's callbacks; docs: "Callbacks" in docs/operations/incidents.md."""

from functools import partial

from django.utils.translation import gettext_lazy as _

from accounts.errors import Context, ErrorCode, staff_error
from documents.error_codes import VENDOR_ERROR

callback_error = partial(staff_error, context=Context.CALLBACK)

INVALID_SIGNATURE = callback_error(
    "INVALID_SIGNATURE",
    _("Another secret, a clock that is wrong by five minutes, or a request of somebody else."),
    _("Run `manage.py doctor` (callback); see [keys.md](keys.md)."),
    status=401,
    detail=_("The signature is not valid."),
)
CALLBACK_UNKNOWN_JOB = callback_error(
    "CALLBACK_UNKNOWN_JOB",
    _("The job was deleted, or belongs to another deployment."),
    _("Two deployments with one vendor account? Else nothing."),
    status=404,
    detail=_("No such job is known here."),
)
ARTIFACT_MISMATCH = callback_error(
    "ARTIFACT_MISMATCH", _("The content does not match its hash."), VENDOR_ERROR, status=422
)
BODY_INTERRUPTED = ErrorCode("BODY_INTERRUPTED", detail=_("The body did not come to its end."))
