"""Named places at which a process can be told to die, so that tests kill it exactly there. Off unless asked for."""

from __future__ import annotations

import os
import signal
from pathlib import Path

# A folder with a file for each death that is still to come: "{point}~{number}". Whoever reaches the point renames one
# of them, which only one process can, and dies; so each point is hit as often as the kill loop asks for.
_ARMED = os.environ.get("ACCESSA_FAILPOINTS", "")


def failpoint(point: str) -> None:
    """Die here by SIGKILL when a death at this point has been asked for."""
    if not _ARMED:
        return
    for armed in Path(_ARMED).glob(f"{point}~*"):
        try:
            armed.rename(armed.with_name(f"{armed.name.replace('~', '.')}.{os.getpid()}"))
        except FileNotFoundError:  # another process was faster
            continue
        os.kill(os.getpid(), signal.SIGKILL)
