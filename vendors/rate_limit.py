"""Vendor accounts and their rate limits: requests and tokens a minute, shared by all processes; the vendors' headers.

GCRA keeps one time a row, the theoretical arrival: when all that was spent is paid off at the rate of the limit.
"""

import hashlib
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime

from django.db import connection

from jobs.outcomes import Wait
from vendors.error_codes import VENDOR_BUDGET

# Enough for OpenAI's largest call at the default budget; any sixty seconds see at most the budget and a half.
BURST_SECONDS = 30
LONGEST_PAUSE = 600.0  # no header pauses the whole deployment for longer

CREATE = "INSERT INTO vendor_rate_limits (key) SELECT unnest(%s::text[]) ON CONFLICT DO NOTHING"
SPEND = """
UPDATE vendor_rate_limits r SET theoretical_arrival = s.arrival
FROM unnest(%s::text[], %s::timestamptz[]) s (key, arrival) WHERE r.key = s.key
"""
PAUSE = """
INSERT INTO vendor_rate_limits AS r (key, paused_until, pause_reason)
VALUES (%(key)s, clock_timestamp() + make_interval(secs => %(seconds)s), %(reason)s)
ON CONFLICT (key) DO UPDATE SET paused_until = excluded.paused_until, pause_reason = excluded.pause_reason
WHERE r.paused_until IS NULL OR r.paused_until < excluded.paused_until
"""

_GO_DURATION = re.compile(r"(?:\d{1,12}(?:\.\d{1,12})?(?:h|ms|m|s|us|µs|ns))+", re.ASCII)
_GO_PART = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(h|ms|m|s|us|µs|ns)", re.ASCII)
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_KINDS = ("requests", "tokens")


@dataclass(frozen=True, slots=True)
class Vendor:
    """A vendor account: name, API key, rate limits. ``tokens_per_minute`` 0 means that the vendor counts no tokens.

    ``part`` has its own breaker and shares the rate limit: downloads may work while paid calls fail, and must not
    report that all is well. ``circuits``: how many breakers share a job's tries, so each opens the sooner.
    """

    name: str
    api_key: str
    requests_per_minute: int
    tokens_per_minute: int = 0
    part: str = ""
    circuits: int = 1

    @property
    def key(self) -> str:
        """Return the key of its rate limit: two API keys of one vendor are two budgets."""
        return f"{self.name}:{hashlib.sha256(self.api_key.encode()).hexdigest()[:12]}"

    @property
    def circuit(self) -> str:
        return f"{self.key}/{self.part}" if self.part else self.key


def row_keys(vendor: Vendor) -> list[str]:
    """Return the rows of a vendor key: its requests (and its pause), and its tokens if it counts any."""
    return [vendor.key, f"{vendor.key}:tokens"] if vendor.tokens_per_minute else [vendor.key]


def spend(vendor: Vendor, arrivals: Mapping[str, datetime | None], *, tokens: int, now: datetime) -> None:
    """Spend one request and ``tokens``, both or neither, or raise ``Wait("VENDOR_BUDGET")``.

    ``arrivals`` are the rows as the current transaction has locked them, ``now`` is the database's time.
    """
    updates: dict[str, datetime] = {}
    limits = (f"{vendor.key}:tokens", vendor.tokens_per_minute, tokens), (vendor.key, vendor.requests_per_minute, 1)
    for key, limit, weight in limits:
        if limit and weight:
            interval = timedelta(microseconds=math.ceil(60_000_000 / limit))
            burst = math.ceil(limit * BURST_SECONDS / 60)
            arrival = max(arrivals[key] or now, now)
            # A call of more than the burst goes when nothing is owed, and owes the rest of it.
            wait = arrival + (min(weight, burst) - burst) * interval - now
            if wait > timedelta():
                raise Wait(max(wait.total_seconds(), 0.001), VENDOR_BUDGET)
            updates[key] = arrival + weight * interval
    if updates:
        with connection.cursor() as cursor:
            cursor.execute(SPEND, [list(updates), list(updates.values())])


def pause(vendor: Vendor, seconds: float, reason: str) -> None:
    """Hold back all calls of all processes for ``seconds``; a longer pause that is in force stays."""
    with connection.cursor() as cursor:
        cursor.execute(PAUSE, {"key": vendor.key, "seconds": seconds, "reason": reason})


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the longest wait, in seconds, that a 429 or 503 asks for; None when it names none."""
    lowered = {name.lower(): value for name, value in headers.items()}
    text = lowered.get("retry-after")
    seconds = _number(text)
    if seconds is None and text is not None and (until := _epoch(text)) is not None:
        # RFC 9110 §10.2.3: a date counts from the vendor's own clock where it shows one.
        seconds = max(0.0, until - (_epoch(lowered.get("date", "")) or time.time()))
    resets = [parse_duration(lowered.get(f"x-ratelimit-reset-{kind}")) for kind in _KINDS]
    return _longest([_number(lowered.get("retry-after-ms"), scale=1e-3), seconds, *resets])


def quota_reset(headers: Mapping[str, str]) -> float | None:
    """Return in how many seconds the vendor takes calls again when a response used up the last of its allowance."""
    lowered = {name.lower(): value for name, value in headers.items()}
    used_up = [kind for kind in _KINDS if _number(lowered.get(f"x-ratelimit-remaining-{kind}")) == 0]
    return _longest([parse_duration(lowered.get(f"x-ratelimit-reset-{kind}")) for kind in used_up])


def parse_duration(text: str | None) -> float | None:
    """Return the seconds of a Go duration (``12ms``, ``1s``, ``6m0s``) or of a bare number; None for anything else.

    https://pkg.go.dev/time#ParseDuration, the format of OpenAI's x-ratelimit-reset headers.
    """
    text = (text or "").strip()
    if len(text) <= 64 and _GO_DURATION.fullmatch(text):
        return sum(float(number) * _UNITS[unit] for number, unit in _GO_PART.findall(text))
    return _number(text)


def _epoch(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text[:64]).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def _number(text: str | None, scale: float = 1.0) -> float | None:
    try:
        number = float((text or "")[:64])
    except ValueError:
        return None
    return number * scale if math.isfinite(number) and number >= 0 else None


def _longest(waits: list[float | None]) -> float | None:
    named = [wait for wait in waits if wait is not None]
    return min(max(named), LONGEST_PAUSE) if named else None
