"""What a vendor's headers say about pace: how long to leave it alone."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

LONGEST = 600.0  # no header parks the whole deployment for longer

_GO_DURATION = re.compile(r"(?:\d{1,12}(?:\.\d{1,12})?(?:h|ms|m|s|us|µs|ns))+", re.ASCII)
_GO_PART = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(h|ms|m|s|us|µs|ns)", re.ASCII)
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_KINDS = ("requests", "tokens")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the longest wait, in seconds, that an answer of 429 or 503 asks for; None when it names none."""
    said = {name.lower(): value for name, value in headers.items()}
    waits = [
        _number(said.get("retry-after-ms"), scale=1e-3),
        _retry_after(said),
        *(parse_duration(said.get(f"x-ratelimit-reset-{kind}")) for kind in _KINDS),
    ]
    return _longest(waits)


def quota_reset(headers: Mapping[str, str]) -> float | None:
    """Return in how many seconds the vendor takes calls again when an answer used up the last of its allowance."""
    said = {name.lower(): value for name, value in headers.items()}
    spent = [kind for kind in _KINDS if _number(said.get(f"x-ratelimit-remaining-{kind}")) == 0]
    return _longest([parse_duration(said.get(f"x-ratelimit-reset-{kind}")) for kind in spent])


def parse_duration(text: str | None) -> float | None:
    """Return the seconds of a Go duration (``12ms``, ``1s``, ``6m0s``) or of a bare number; None for anything else.

    https://pkg.go.dev/time#ParseDuration, as OpenAI's x-ratelimit-reset headers have it.
    """
    text = (text or "").strip()
    if len(text) <= 64 and _GO_DURATION.fullmatch(text):
        return sum(float(number) * _UNITS[unit] for number, unit in _GO_PART.findall(text))
    return _number(text)


def _retry_after(said: Mapping[str, str]) -> float | None:
    """Read RFC 9110 §10.2.3: seconds, or a date; the date counts from the vendor's own clock where it shows one."""
    text = said.get("retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    until = _epoch(text)
    return None if until is None else max(0.0, until - (_epoch(said.get("date", "")) or time.time()))


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
    given = [wait for wait in waits if wait is not None]
    return min(max(given), LONGEST) if given else None
