"""Background threads for periodic tasks, so that a long one does not block the maintenance loop."""

import logging
import threading
from collections.abc import Callable

from django.db import DatabaseError, InterfaceError, connection

from jobs.safe_errors import safe_error_name


def start_in_background(name: str, work: Callable[[], object], *, log: logging.Logger, broke_off: str) -> None:
    """Run ``work`` in a thread with a connection of its own, unless a thread of that name runs already.

    A database error ends it with a warning that begins with ``broke_off``; the next run of the task starts it again.
    """

    def run() -> None:
        try:
            work()
        except (DatabaseError, InterfaceError) as error:
            log.warning("%s: %s", broke_off, safe_error_name(error))
        finally:
            connection.close()

    if not any(thread.name == name for thread in threading.enumerate()):
        threading.Thread(target=run, name=name, daemon=True).start()
