"""Error codes of calls to vendors and of tenants' budgets."""

from django.utils.translation import gettext_lazy as _

from accounts.errors import Context, failure, wait_reason
from jobs.error_codes import OUR_CONFIGURATION, RUN_DOCTOR

VENDOR_FAILED = _("A service that we use could not do its work. Try again later.")
STAFF_FIRST = _("A service that we use does not take our requests. Our staff must correct that first.")
VENDOR_STATUS = _("Look at the vendor's status page. Retry the group once the vendor works; what was bought is kept.")

VENDOR_AWAY = wait_reason(
    "VENDOR_AWAY",
    _("A service that we use is out of order. Your document continues by itself when it is back."),
    _("The circuit breaker is open: every call to the vendor fails."),
    VENDOR_STATUS,
)
VENDOR_RATE_LIMITED = wait_reason(
    "VENDOR_RATE_LIMITED",
    _("A service that we use is busy. Your document continues by itself in a moment."),
    _("The vendor asked us to come back later."),
    _("Wait; lower its requests per minute if it lasts."),
)
VENDOR_BUDGET = wait_reason(
    "VENDOR_BUDGET",
    _("Many documents are being worked on. Yours continues by itself in a moment."),
    _("The calls of this minute are used up."),
    _("Wait; raise its requests per minute if it lasts."),
)
VENDOR_QUOTA_EXHAUSTED = wait_reason(
    "VENDOR_QUOTA_EXHAUSTED",
    STAFF_FIRST,
    _("The vendor's account has no credit."),
    _("Pay the vendor. Jobs continue by themselves."),
)
VENDOR_REFUSES_KEY = wait_reason("VENDOR_REFUSES_KEY", STAFF_FIRST, _("The vendor refuses our key."), RUN_DOCTOR)
VENDOR_MISCONFIGURED = wait_reason(
    "VENDOR_MISCONFIGURED", OUR_CONFIGURATION, _("A vendor's settings contradict each other."), RUN_DOCTOR
)
VENDOR_UNAVAILABLE = failure(
    "VENDOR_UNAVAILABLE",
    VENDOR_FAILED,
    _("The vendor answered with a server error on every attempt."),
    VENDOR_STATUS,
    detail=_("The vendor has a fault of its own."),
)
VENDOR_UNREACHABLE = failure(
    "VENDOR_UNREACHABLE",
    VENDOR_FAILED,
    _("The vendor could not be reached on any attempt."),
    _("Check the network and the vendor's status page. Then retry the group; what was bought is kept."),
    detail=_("The vendor could not be reached."),
)
VENDOR_ANSWER_INVALID = failure(
    "VENDOR_ANSWER_INVALID",
    VENDOR_FAILED,
    _("The vendor's response could not be read."),
    VENDOR_STATUS,
    detail=_("The vendor answered something that cannot be read."),
)
VENDOR_REFUSED = failure(
    "VENDOR_REFUSED",
    VENDOR_FAILED,
    _("The vendor works and refuses the request."),
    _("Run `manage.py doctor` and compare the vendor's settings. Then retry."),
)

BUDGET_SPENT = wait_reason(
    "BUDGET_SPENT",
    _("Today's budget of your account is used up. Your document continues after midnight (UTC)."),
    _("The tenant's budget of the day is spent."),
    _("Wait for midnight UTC, or raise it with `manage.py budget`."),
    status=429,
)
BUDGET_SPENT.explain(Context.REQUEST, tenant_message=_("Your account's budget is used up for now."))
BUDGET_TOO_SMALL = failure(
    "BUDGET_TOO_SMALL",
    _("The document costs more than your account may spend in a day. Ask our staff."),
    _("The document costs more than its tenant's budget of a whole day."),
    _("Set another budget with `manage.py budget`. Then retry."),
)
