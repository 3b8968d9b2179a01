"""Which of two versions of a law is the newer."""

from __future__ import annotations

import re
from datetime import datetime

_PART = re.compile(r"[0-9]+|[^\W\d_]+")


def is_older(version: str, ingested: datetime | None, *, than: str, than_ingested: datetime | None) -> bool:
    """Tell whether ``version`` is the older: by the numbers in both, and where these are equal by when each came."""
    ours, theirs = sort_key(version), sort_key(than)
    if ours != theirs or version == than:
        return ours < theirs
    return ingested is None or (than_ingested is not None and ingested < than_ingested)


def sort_key(version: str) -> tuple[tuple[int, int, str], ...]:
    """Return what sorts as versions do: numbers as numbers, and after words; how they are set apart does not matter."""
    return tuple(_rank(part) for part in _PART.findall(version.casefold()))


def _rank(part: str) -> tuple[int, int, str]:
    if not part.isdecimal():
        return 0, 0, part
    digits = part.lstrip("0")
    return 1, len(digits), digits  # not int(): a number may have more digits than it takes
