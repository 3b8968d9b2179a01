"""What is said of a code: its meaning to support, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Remedy:
    """``retry``: whether another try of the same file can go better once the remedy has been seen to."""

    meaning: str
    remedy: str
    retry: bool = True
