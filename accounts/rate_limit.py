"""Rate limits: exact sliding windows, counted in PostgreSQL so that every process sees the same count."""

from dataclasses import dataclass
from math import ceil
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.utils.translation import gettext_lazy as _

from accounts.error_codes import TRIED_TOO_OFTEN
from accounts.errors import ApiError, Context, ErrorCode, staff_error


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit: uses per window and subject. ``uses`` is a number or the name of a setting."""

    code: ErrorCode
    name: str  # the keys' prefix
    uses: int | str
    seconds: float
    detail: str = ""


UPLOAD_LIMIT_REACHED = ErrorCode("UPLOAD_LIMIT_REACHED", _("You have uploaded as much as you may for now."), status=429)
LOOK_LIMIT_REACHED = ErrorCode(
    "LOOK_LIMIT_REACHED", _("You have looked at as many pages as you may for now."), status=429
)
SEARCH_LIMIT_REACHED = ErrorCode(
    "SEARCH_LIMIT_REACHED", _("You have asked as many questions as you may for now."), status=429
)
POLL_LIMIT_REACHED = ErrorCode("POLL_LIMIT_REACHED", status=429)
IMPORT_LIMIT_REACHED = staff_error(
    "IMPORT_LIMIT_REACHED",
    _("Drive has reached the tenant's limit of imported PDFs for today."),
    _("Nothing: the next delta sync tries it again. Raise IMPORTS_PER_DAY if that is every day."),
    status=429,
    context=Context.RECORD_FAILURE,
)

UPLOAD_REQUESTS = Limit(
    UPLOAD_LIMIT_REACHED, "declare", "UPLOAD_REQUESTS_PER_MINUTE", 60, "You can declare files {} times a minute."
)
# New documents and repeated tries: a repeated request for the same URL is not counted here. What connectors import has
# a window of its own, so that neither side uses up the other's.
UPLOADS = Limit(UPLOAD_LIMIT_REACHED, "upload", "UPLOADS_PER_DAY", 86_400, "You can upload {} files a day.")
IMPORTS = Limit(
    IMPORT_LIMIT_REACHED, "import", "IMPORTS_PER_DAY", 86_400, "Your connected systems can bring {} files a day."
)
POLL_ADVICE = "A job can be polled {} times a minute; GET /jobs shows all of yours in one call."
POLLS = Limit(POLL_LIMIT_REACHED, "poll", "POLLS_PER_MINUTE", 60, POLL_ADVICE)
PAGE_VIEWS = Limit(LOOK_LIMIT_REACHED, "look", "PAGE_VIEWS_PER_MINUTE", 60, "Pages can be looked at {} times a minute.")
SEARCHES = Limit(SEARCH_LIMIT_REACHED, "search", "SEARCHES_PER_MINUTE", 60, "There can be {} searches a minute.")
# Of one account from one address: enough for a forgotten password, too few to guess one. An office shares an address.
SIGN_INS = Limit(TRIED_TOO_OFTEN, "sign-in", 10, 600)
SIGN_IN_FAILURES = Limit(TRIED_TOO_OFTEN, "sign-in-from", 100, 600)
# Of one account, whoever tries: nobody fills the audit log, which keeps every entry, with sign-ins that failed.
FAILED_SIGN_IN_ENTRIES = Limit(TRIED_TOO_OFTEN, "sign-in-failed-entry", 10, 3600)
LOCKED_SIGN_IN_ENTRIES = Limit(TRIED_TOO_OFTEN, "sign-in-locked-entry", 1, 3600)

# One statement counts and decides; a rejected use is not counted, or a busy caller would never get in again.
COUNT_USE = """
INSERT INTO rate_windows AS w (key, hits, expires_at)
VALUES (%(key)s, ARRAY[clock_timestamp()], clock_timestamp() + make_interval(secs => %(seconds)s))
ON CONFLICT (key) DO UPDATE SET
    hits = ARRAY(SELECT h FROM unnest(w.hits) h WHERE h > clock_timestamp() - make_interval(secs => %(seconds)s))
           || clock_timestamp(),
    expires_at = clock_timestamp() + make_interval(secs => %(seconds)s)
WHERE (SELECT count(*) FROM unnest(w.hits) h
       WHERE h > clock_timestamp() - make_interval(secs => %(seconds)s)) < %(max_uses)s
RETURNING 1
"""
REMOVE_LAST_USE = "UPDATE rate_windows SET hits = hits[:cardinality(hits) - 1] WHERE key = %s"
SECONDS_UNTIL_FREE = """
SELECT extract(epoch FROM min(h) + make_interval(secs => %(seconds)s) - clock_timestamp())
FROM rate_windows, unnest(hits) h
WHERE key = %(key)s AND h > clock_timestamp() - make_interval(secs => %(seconds)s)
"""


def check_rate(limit: Limit, subject: UUID | str) -> None:
    """Count one use, or raise ``ApiError`` with the limit's code, status 429 and the seconds until the next use."""
    max_uses = int(getattr(settings, limit.uses)) if isinstance(limit.uses, str) else limit.uses
    key = f"{limit.name}:{subject}"
    params: dict[str, str | float] = {"key": key, "max_uses": max_uses, "seconds": float(limit.seconds)}
    with connection.cursor() as cursor:
        if max_uses > 0:
            cursor.execute(COUNT_USE, params)
            if cursor.fetchone():
                return
        cursor.execute(SECONDS_UNTIL_FREE, params)
        (wait,) = cursor.fetchone()
    retry_after = max(1, ceil(wait or limit.seconds))
    raise ApiError(limit.code, limit.detail.format(max_uses), retry_after=retry_after)


def remove_last_use(limit: Limit, subject: UUID | str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(REMOVE_LAST_USE, [f"{limit.name}:{subject}"])
