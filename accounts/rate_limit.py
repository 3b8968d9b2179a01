"""Rate limits: sliding windows of counters in PostgreSQL, so that every process sees the same count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.utils.translation import gettext_lazy as _

from accounts import prepared_statements
from accounts.common_error_codes import TRIED_TOO_OFTEN
from accounts.errors import ApiError, Context, ErrorCode, staff_error

if TYPE_CHECKING:
    from accounts.errors import Text


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit: uses per window and subject. ``uses`` is a number or the name of a setting."""

    code: ErrorCode
    name: str  # the keys' prefix
    uses: int | str
    seconds: float
    detail: Text = ""


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
    UPLOAD_LIMIT_REACHED, "declare", "UPLOAD_REQUESTS_PER_MINUTE", 60, _("You can declare files {} times a minute.")
)
# New documents and repeated tries: a repeated request for the same URL is not counted here. What connectors import has
# a window of its own, so that neither side uses up the other's.
UPLOADS = Limit(UPLOAD_LIMIT_REACHED, "upload", "UPLOADS_PER_DAY", 86_400, _("You can upload {} files a day."))
IMPORTS = Limit(
    IMPORT_LIMIT_REACHED, "import", "IMPORTS_PER_DAY", 86_400, _("Your connected systems can bring {} files a day.")
)
POLL_ADVICE = "A job can be polled {} times a minute; GET /jobs shows all of yours in one call."
POLLS = Limit(POLL_LIMIT_REACHED, "poll", "POLLS_PER_MINUTE", 60, POLL_ADVICE)
PAGE_VIEWS = Limit(
    LOOK_LIMIT_REACHED, "look", "PAGE_VIEWS_PER_MINUTE", 60, _("Pages can be looked at {} times a minute.")
)
DOWNLOADS = Limit(LOOK_LIMIT_REACHED, "download", 10, 60, _("Files can be downloaded together {} times a minute."))
EXPORTS = Limit(LOOK_LIMIT_REACHED, "export", 5, 86_400, _("All of your data can be downloaded {} times a day."))
SEARCHES = Limit(SEARCH_LIMIT_REACHED, "search", "SEARCHES_PER_MINUTE", 60, _("There can be {} searches a minute."))
SEARCHED = "searched"  # the prefix of the keys of searches whose window is over
# Of one account from one address: enough for a forgotten password, too few to guess one. An office shares an address.
SIGN_INS = Limit(TRIED_TOO_OFTEN, "sign-in", 10, 600)
SIGN_IN_FAILURES = Limit(TRIED_TOO_OFTEN, "sign-in-from", 100, 600)
# Of the signed-in user, who must give the password once more.
PASSWORD_CHECKS = Limit(
    TRIED_TOO_OFTEN, "password-check", 10, 600, _("There were too many attempts. Wait ten minutes.")
)
# Of one account, whose password is known to who tries: few, since three of a million codes are valid at once.
SIGN_IN_CODES = Limit(TRIED_TOO_OFTEN, "sign-in-code", 5, 600, _("There were too many attempts. Wait ten minutes."))
# Of the code by which the first account is created, whoever types it.
CODES_TRIED = Limit(TRIED_TOO_OFTEN, "first-account", 20, 600, _("There were too many attempts. Wait ten minutes."))
# Sign-ins begun at an OpenID Connect provider, of one client: each makes a session.
OIDC_STARTS = Limit(TRIED_TOO_OFTEN, "oidc-from", 100, 600, _("There were too many attempts. Wait ten minutes."))
# Requests for a mail, of one client and to one address, whether or not it has an account.
MAIL_REQUESTS = Limit(TRIED_TOO_OFTEN, "mail-from", 20, 600, _("There were too many requests. Wait ten minutes."))
MAILS_TO_ADDRESS = Limit(TRIED_TOO_OFTEN, "mail-to", 3, 3600)
# Of one account, whoever tries: nobody fills the audit log, which keeps every entry, with sign-ins that failed.
FAILED_SIGN_IN_ENTRIES = Limit(TRIED_TOO_OFTEN, "sign-in-failed-entry", 10, 3600)
LOCKED_SIGN_IN_ENTRIES = Limit(TRIED_TOO_OFTEN, "sign-in-locked-entry", 1, 3600)

# A window has so many spans, each with a counter. Its uses cease to count all together, when the last of them is as old
# as the window: so never more than the limit in any window, and at worst one span longer until the next use.
SPANS = 24
# One statement counts and decides; a rejected use is not counted, or a busy caller would never get in again. The row's
# lock orders concurrent uses of the same span. Counted before the work, in a transaction of its own that does not wait
# for the disk (`is_alone`), the lock is held for less than a millisecond.
COUNT_USE = """
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now),
span AS (
    SELECT now, to_timestamp((floor(extract(epoch FROM now) / %(span)s) + 1) * %(span)s + %(seconds)s) AS expires_at
    FROM clock
), earlier AS MATERIALIZED (
    SELECT coalesce(sum(w.uses), 0) AS uses FROM rate_windows w, span
    WHERE w.key = %(key)s AND w.used_at > now - make_interval(secs => %(seconds)s) AND w.expires_at <> span.expires_at
)
INSERT INTO rate_windows AS w (key, expires_at, used_at, uses)
SELECT %(key)s, span.expires_at, now, 1 FROM span, earlier WHERE earlier.uses < %(max_uses)s
ON CONFLICT (key, expires_at) DO UPDATE SET uses = w.uses + 1, used_at = greatest(w.used_at, excluded.used_at)
WHERE w.uses + (SELECT uses FROM earlier) < %(max_uses)s
RETURNING CASE WHEN %(is_alone)s THEN set_config('synchronous_commit', 'off', true) END
"""
REMOVE_LAST_USE = """
UPDATE rate_windows w SET uses = uses - 1
WHERE key = %(key)s AND uses > 0
  AND expires_at = (SELECT max(expires_at) FROM rate_windows WHERE key = %(key)s AND uses > 0)
RETURNING CASE WHEN %(is_alone)s THEN set_config('synchronous_commit', 'off', true) END
"""
SECONDS_UNTIL_FREE = """
SELECT extract(epoch FROM min(used_at) + make_interval(secs => %(seconds)s) - clock_timestamp())::float AS seconds
FROM rate_windows
WHERE key = %(key)s AND uses > 0 AND used_at > clock_timestamp() - make_interval(secs => %(seconds)s)
"""
# The searches of a day, or a day later at its turn, are kept in a row for a month: usage costs a search no statement.
DELETE_EXPIRED = f"""
WITH expired AS (DELETE FROM rate_windows WHERE expires_at < statement_timestamp() RETURNING key, expires_at, uses)
INSERT INTO rate_windows AS w (key, expires_at, used_at, uses)
SELECT replace(key, '{SEARCHES.name}:', '{SEARCHED}:'), date_trunc('day', expires_at, 'UTC') + interval '31 days',
       statement_timestamp(), sum(uses)
FROM expired WHERE key LIKE '{SEARCHES.name}:%%' GROUP BY 1, 2
ON CONFLICT (key, expires_at) DO UPDATE SET uses = w.uses + excluded.uses
"""
COUNT_SEARCHES = f"""
SELECT coalesce(sum(uses), 0)::bigint AS searches FROM rate_windows
WHERE key IN ('{SEARCHES.name}:' || %(user)s, '{SEARCHED}:' || %(user)s)
"""
DELETE_SEARCHES = f"DELETE FROM rate_windows WHERE key = '{SEARCHED}:' || %s"


def check_rate(limit: Limit, subject: UUID | str) -> None:
    """Count one use, or raise ``ApiError`` with the limit's code, status 429 and the seconds until the next use.

    Call it outside of a transaction: inside of one, the subject's other uses wait for the transaction's end.
    """
    max_uses = int(getattr(settings, limit.uses)) if isinstance(limit.uses, str) else limit.uses
    seconds = float(limit.seconds)
    params = _params(limit, subject) | {"max_uses": max_uses, "seconds": seconds, "span": seconds / SPANS}
    if max_uses > 0 and prepared_statements.execute(COUNT_USE, params):
        return
    (row,) = prepared_statements.execute(SECONDS_UNTIL_FREE, params)
    retry_after = max(1, ceil(row["seconds"] or seconds))
    raise ApiError(limit.code, str(limit.detail).format(max_uses), retry_after=retry_after)


@contextmanager
def reserved_use(limit: Limit, subject: UUID | str, *, expected: bool) -> Iterator[Callable[[], None]]:
    """Count a use before a block that is ``expected`` to need one; return it unless the block takes it and succeeds.

    The block, which may be a transaction, takes the use by calling the function that it gets: one that was not expected
    is counted then. Raises ``ApiError`` as ``check_rate``.
    """
    is_taken = is_kept = False

    def take() -> None:
        nonlocal is_taken
        if not expected:
            check_rate(limit, subject)
        is_taken = True

    if expected:
        check_rate(limit, subject)
    try:
        yield take
        is_kept = is_taken
    finally:
        if expected and not is_kept:
            remove_last_use(limit, subject)


def remove_last_use(limit: Limit, subject: UUID | str) -> None:
    prepared_statements.execute(REMOVE_LAST_USE, _params(limit, subject))


def delete_expired() -> None:
    """Delete the windows that are over; searches are counted on for a month."""
    with connection.cursor() as cursor:
        cursor.execute(DELETE_EXPIRED, {})


def count_searches(user_id: UUID) -> int:
    """Return how many searches and questions a user has asked in the last 30 days, pages and API together."""
    (row,) = prepared_statements.execute(COUNT_SEARCHES, {"user": str(user_id)})
    return int(row["searches"])


def _params(limit: Limit, subject: UUID | str) -> dict[str, str | float | bool]:
    return {"key": f"{limit.name}:{subject}", "is_alone": connection.get_autocommit()}
