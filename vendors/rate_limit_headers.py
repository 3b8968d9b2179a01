"""Headers of rate limits: Retry-After, x-ratelimit-reset and Go durations, as seconds."""

import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

LONGEST_PAUSE = 600.0  # no header pauses the whole deployment for longer
_GO_DURATION = re.compile(r"(?:\d{1,12}(?:\.\d{1,12})?(?:h|ms|m|s|us|µs|ns))+", re.ASCII)
_GO_PART = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(h|ms|m|s|us|µs|ns)", re.ASCII)
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_KINDS = ("requests", "tokens")


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
