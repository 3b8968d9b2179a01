"""How often: exact sliding windows, counted in PostgreSQL so that every process sees the same count."""

from __future__ import annotations

from http import HTTPStatus
from math import ceil

from django.db import connection

from accounts.errors import ApiError

# One statement counts and decides; a refused call is not counted, or a busy caller would never get in again.
HIT = """
INSERT INTO rate_windows AS w (key, hits, expires_at)
VALUES (%(key)s, ARRAY[clock_timestamp()], clock_timestamp() + make_interval(secs => %(window)s))
ON CONFLICT (key) DO UPDATE SET
    hits = ARRAY(SELECT h FROM unnest(w.hits) h WHERE h > clock_timestamp() - make_interval(secs => %(window)s))
           || clock_timestamp(),
    expires_at = clock_timestamp() + make_interval(secs => %(window)s)
WHERE (SELECT count(*) FROM unnest(w.hits) h
       WHERE h > clock_timestamp() - make_interval(secs => %(window)s)) < %(limit)s
RETURNING 1
"""
NEXT = """
SELECT extract(epoch FROM min(h) + make_interval(secs => %(window)s) - clock_timestamp())
FROM rate_windows, unnest(hits) h
WHERE key = %(key)s AND h > clock_timestamp() - make_interval(secs => %(window)s)
"""


def spend(key: str, *, limit: int, window: float, code: str, detail: str) -> None:
    """Count one use of ``key``, or raise ``Refused(code)`` with 429 when ``limit`` uses fell inside ``window`` s."""
    values: dict[str, str | float] = {"key": key, "limit": limit, "window": float(window)}
    with connection.cursor() as cursor:
        if limit > 0:
            cursor.execute(HIT, values)
            if cursor.fetchone():
                return
        cursor.execute(NEXT, values)
        (wait,) = cursor.fetchone()
    retry_after = max(1, ceil(wait or window))
    raise ApiError(code, detail, status=HTTPStatus.TOO_MANY_REQUESTS, retry_after=retry_after)


def give_back(key: str) -> None:
    """Take back the last use of ``key``: it was none of those that are limited."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE rate_windows SET hits = hits[:cardinality(hits) - 1] WHERE key = %s", [key])


def forget() -> None:
    """Drop windows that nobody has used for their whole length."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM rate_windows WHERE expires_at < clock_timestamp()")
