"""Sizes of tests: what the suite can afford, or with `FULL_SIZE=1` what docs/reliability.md reports."""

import os

FULL = bool(os.environ.get("FULL_SIZE"))


def size(suite: int, *, full: int) -> int:
    return full if FULL else suite
