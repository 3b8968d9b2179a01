"""Named places at which a process can be told to die, so that tests kill it exactly there. Off unless asked for."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

# "name=probability,…" and a folder in which each hit leaves a mark: the kill loop proves that every point was hit.
_PLAN = dict(part.split("=") for part in os.environ.get("ACCESSA_CRASHPOINTS", "").split(",") if part)
_MARKS = os.environ.get("ACCESSA_CRASH_MARKS", "")


def reach(name: str) -> None:
    """Die here by SIGKILL, with the probability that the environment gives for this point."""
    if not _PLAN:
        return
    chance = float(_PLAN.get(name) or _PLAN.get("*") or 0)
    if random.random() < chance:  # noqa: S311
        Path(_MARKS, f"{name}.{os.getpid()}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
