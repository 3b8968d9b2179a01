"""Failpoints: named places at which tests kill a process. Off unless ``ACCESSA_FAILPOINTS`` is set."""

import os
import signal
from pathlib import Path

# A folder with a file for each kill that is still to come: "{point}~{number}". A process at the point renames one of
# them, which only one process can, and dies; so each point is hit as often as the kill loop wants.
_ARMED = os.environ.get("ACCESSA_FAILPOINTS", "")


def failpoint(point: str) -> None:
    if not _ARMED:
        return
    for armed in Path(_ARMED).glob(f"{point}~*"):
        try:
            armed.rename(armed.with_name(f"{armed.name.replace('~', '.')}.{os.getpid()}"))
        except FileNotFoundError:  # another process was faster
            continue
        os.kill(os.getpid(), signal.SIGKILL)
