"""Messages for tenants: why a document waits, why it failed, why a request was refused."""

from dataclasses import dataclass
from http import HTTPStatus

from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext as translate
from django.utils.translation import gettext_lazy as _

from accounts.errors import ApiError, Context, ErrorCode, find_error_code
from accounts.rate_limit import LOOK_LIMIT_REACHED, SEARCH_LIMIT_REACHED, UPLOAD_LIMIT_REACHED
from documents.error_codes import FILE_TOO_LARGE, FILENAME_TOO_LONG, TOO_MANY_PAGES
from integrations.disconnect import GrantOutcome
from integrations.error_codes import RECONNECT
from integrations.models import Provider
from jobs.error_codes import BUG
from jobs.models import UploadJob

CONTINUES = _("It continues by itself.")
SYNC_FAULT = _("Something went wrong on our side. Sync again; if it fails once more, ask our staff.")

# A connected system's status
CONNECTIONS = {
    "syncing": _("Fetching."),
    "ready": _("Connected."),
    "waiting": _("Connected."),
    "failed": _("The last sync failed."),
    "broken": _("Not connected any more."),
    "leaving": _("Being removed."),
}
# While its records are being fetched, and nothing comes.
BEGINS = _("It begins in a moment.")
QUEUES = _("It waits for its turn.")
SILENT = _("{name} does not answer at present; it continues by itself.")
# By what became of a disconnected system's access, where it was not given back.
GRANTS = {
    GrantOutcome.SHARED: _(
        "Google still lists our access: something else that is connected here with this Google account uses it."
        " It is revoked when that is disconnected, too."
    ),
    GrantOutcome.NOT_REVOKED: _("We could not tell {name}. Remove our app in its own settings, too."),
}


def wait_message(reason: str | None) -> str:
    code = find_error_code(reason, Context.WAIT)
    return str(code.tenant_message if code else CONTINUES)


def failure(code: str | None) -> ErrorCode:
    """Return the error code of a failed job; of one that is not known, that of a bug of ours."""
    return find_error_code(code, Context.FAILURE) or BUG


@dataclass(frozen=True, slots=True)
class SyncProblem:
    """``reconnect``: whether the tenant's consent is needed again."""

    sentence: str
    reconnect: bool = False


def sync_problem(code: str | None, provider: str, *, is_broken: bool = False) -> SyncProblem:
    """Return what a tenant reads of a failed sync, or of a source that is broken: reconnecting repairs that.

    The code of a refused token is followed by the provider's own word for it, which is not shown.
    """
    known = find_error_code((code or "").partition(":")[0], Context.SYNC_FAILURE)
    message = known.tenant_message if known else RECONNECT if is_broken else SYNC_FAULT
    sentence = str(message).format(name=Provider(provider).label)
    return SyncProblem(sentence, is_broken or (known is not None and not known.retryable))


# Their details name the limit, and how to keep it.
DETAILED = (
    FILE_TOO_LARGE,
    FILENAME_TOO_LONG,
    TOO_MANY_PAGES,
    UPLOAD_LIMIT_REACHED,
    LOOK_LIMIT_REACHED,
    SEARCH_LIMIT_REACHED,
)


def failure_message(job: UploadJob) -> str:
    """Return why a job failed."""
    error = job.last_error or {}
    if error.get("code") in DETAILED and get_language() == "en":  # workers write details in English
        return str(error["detail"])
    return str(failure(error.get("code")).tenant_message)


HEADLINES = {
    HTTPStatus.FORBIDDEN: _("This is not allowed"),
    HTTPStatus.NOT_FOUND: _("There is no such page"),
    HTTPStatus.TOO_MANY_REQUESTS: _("Too many requests"),
    HTTPStatus.INTERNAL_SERVER_ERROR: _("Something went wrong"),
    HTTPStatus.SERVICE_UNAVAILABLE: _("Out of order for a moment"),
}


def headline(status: int) -> str:
    return str(HEADLINES.get(HTTPStatus(status), _("This did not work")))


def format_pause(seconds: float) -> str:
    """Return when to come back: "in 40 seconds", "in 3 hours"."""
    if seconds > 1.5 * 3600:
        return translate("in %s hours") % round(seconds / 3600)
    if seconds > 1.5 * 60:
        return translate("in %s minutes") % round(seconds / 60)
    count = max(1, round(seconds))
    return ngettext("in %s second", "in %s seconds", count) % count


def error_message(error: ApiError) -> str:
    """Return the sentence of an error on a tenant's page: the code's own, or else the error's detail."""
    known = find_error_code(error.code, Context.REQUEST)
    is_general = known and known.tenant_message and error.code not in DETAILED
    message = str(known.tenant_message) if known and is_general else error.detail
    if not error.retry_after:
        return message
    return f"{message} {translate('Come back %s.') % format_pause(error.retry_after)}"
