"""Messages for tenants: why a document waits, why it failed, why a request was refused."""

from dataclasses import dataclass
from http import HTTPStatus

from accounts.errors import ApiError, Context, ErrorCode, find_error_code
from accounts.rate_limit import LOOK_LIMIT_REACHED, SEARCH_LIMIT_REACHED, UPLOAD_LIMIT_REACHED
from documents.error_codes import FILE_TOO_LARGE, FILENAME_TOO_LONG, TOO_MANY_PAGES
from integrations.disconnect import GrantOutcome
from integrations.error_codes import RECONNECT
from integrations.models import Provider
from jobs.error_codes import BUG
from jobs.models import UploadJob

CONTINUES = "It continues by itself."
SYNC_FAULT = "Something went wrong on our side. Sync again; if it fails once more, ask our staff."

# A connected system's status
CONNECTIONS = {
    "syncing": "Fetching.",
    "ready": "Connected.",
    "waiting": "Connected.",
    "failed": "The last sync failed.",
    "broken": "Not connected any more.",
    "leaving": "Being removed.",
}
# While its records are being fetched, and nothing comes.
BEGINS = "It begins in a moment."
QUEUES = "It waits for its turn."
SILENT = "{name} does not answer at present; it continues by itself."
# By what became of a disconnected system's access, where it was not given back.
GRANTS = {
    GrantOutcome.SHARED: "Google still lists our access: something else that is connected here with this Google"
    " account uses it. It is revoked when that is disconnected, too.",
    GrantOutcome.NOT_REVOKED: "We could not tell {name}. Remove our app in its own settings, too.",
}


def wait_message(reason: str | None) -> str:
    code = find_error_code(reason, Context.WAIT)
    return str(code.tenant_message) if code else CONTINUES


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
    return str(error["detail"] if error.get("code") in DETAILED else failure(error.get("code")).tenant_message)


HEADLINES = {
    HTTPStatus.FORBIDDEN: "This is not allowed",
    HTTPStatus.NOT_FOUND: "There is no such page",
    HTTPStatus.TOO_MANY_REQUESTS: "Too many requests",
    HTTPStatus.INTERNAL_SERVER_ERROR: "Something went wrong",
    HTTPStatus.SERVICE_UNAVAILABLE: "Out of order for a moment",
}


def headline(status: int) -> str:
    return HEADLINES.get(HTTPStatus(status), "This did not work")


def format_pause(seconds: float) -> str:
    """Return when to come back: "in 40 seconds", "in 3 hours"."""
    for unit, length in (("hour", 3600), ("minute", 60)):
        if seconds > 1.5 * length:
            return f"in {round(seconds / length)} {unit}s"
    return f"in {max(1, round(seconds))} second{'s' if round(seconds) > 1 else ''}"


def error_message(error: ApiError) -> str:
    """Return the sentence of an error on a tenant's page: the code's own, or else the error's detail."""
    known = find_error_code(error.code, Context.REQUEST)
    is_general = known and known.tenant_message and error.code not in DETAILED
    message = str(known.tenant_message) if known and is_general else error.detail
    return f"{message} Come back {format_pause(error.retry_after)}." if error.retry_after else message
