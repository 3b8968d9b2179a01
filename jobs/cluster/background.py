"""What a sweep begins and does not wait for: the keeper, who also wakes what is parked, has other things to do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from django.db import DatabaseError, InterfaceError, connection

from jobs.errors import safe_error_name


def start_in_background(name: str, work: Callable[[], object], *, log: logging.Logger, broke_off: str) -> None:
    """Do ``work`` in a thread of its own with a connection of its own, unless this process is at it already.

    A database that is away ends it with a warning that begins with ``broke_off``; the next sweep begins it again.
    """
    if not any(thread.name == name for thread in threading.enumerate()):
        threading.Thread(target=_do, args=(work, log, broke_off), name=name, daemon=True).start()


def _do(work: Callable[[], object], log: logging.Logger, broke_off: str) -> None:
    try:
        work()
    except (DatabaseError, InterfaceError) as error:
        log.warning("%s: %s", broke_off, safe_error_name(error))
    finally:
        connection.close()
