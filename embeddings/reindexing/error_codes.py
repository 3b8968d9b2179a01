"""Error codes of campaigns, for staff: commands and the admin."""

from django.utils.translation import gettext_lazy as _

from accounts.errors import Context, staff_error
from vendors.error_codes import BUDGET_TOO_SMALL

OUT_OF_RANGE = _("A setting of the campaign is out of its range.")
SEE_LIMITS = _("The message states the limits.")
SEE_CAMPAIGNS = _("See `manage.py campaigns`.")
UNKNOWN_NAME = _("The name is not configured here.")
CORRECT_NAME = _("Configure it, or correct the name.")

CAMPAIGN_STATE = staff_error(
    "CAMPAIGN_STATE", _("The campaign's state does not allow that."), SEE_CAMPAIGNS, status=409
)
CAMPAIGN_OPEN = staff_error("CAMPAIGN_OPEN", _("Another campaign holds the tenant."), SEE_CAMPAIGNS, status=409)
NOTHING_TO_DO = staff_error(
    "NOTHING_TO_DO", _("Every document is of that model, chunker or parser already."), _("Nothing to do.")
)
UNKNOWN_KIND = staff_error("UNKNOWN_KIND", UNKNOWN_NAME, CORRECT_NAME)
UNKNOWN_MODEL = staff_error("UNKNOWN_MODEL", UNKNOWN_NAME, CORRECT_NAME)
UNKNOWN_CHUNKER = staff_error("UNKNOWN_CHUNKER", UNKNOWN_NAME, CORRECT_NAME)
UNKNOWN_PARSER = staff_error("UNKNOWN_PARSER", UNKNOWN_NAME, CORRECT_NAME)
TENANT_PINNED = staff_error(
    "TENANT_PINNED", _("The tenant is pinned to its model."), _("Unpin it: `manage.py pin TENANT --unpin`.")
)
VECTORS_MISSING = staff_error(
    "VECTORS_MISSING",
    _("A tenant cannot be pinned to a model without vectors of its passages."),
    _("Run a campaign first."),
    status=409,
)
LAWS_NOT_RECHUNKED = staff_error(
    "LAWS_NOT_RECHUNKED",
    _("Statutes have a chunker of their own; a campaign would split them like tenants' documents."),
    _("Use `manage.py laws reprocess LAW VERSION`."),
)
BUDGET_OUT_OF_RANGE = staff_error("BUDGET_OUT_OF_RANGE", OUT_OF_RANGE, SEE_LIMITS)
TOLERANCE_OUT_OF_RANGE = staff_error("TOLERANCE_OUT_OF_RANGE", OUT_OF_RANGE, SEE_LIMITS)
KEEP_OUT_OF_RANGE = staff_error("KEEP_OUT_OF_RANGE", OUT_OF_RANGE, SEE_LIMITS)
CANARIES_INVALID = staff_error("CANARIES_INVALID", OUT_OF_RANGE, SEE_LIMITS)
BUDGET_TOO_SMALL.explain(
    Context.REQUEST, tenant_message="", staff_message=_("The campaign costs more than its budget."), remedy=SEE_LIMITS
)
