"""Worker in a thread of the test process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

from jobs import services
from jobs import worker as runner


@contextmanager
def running_worker(*, pause: float = 0.1) -> Iterator[None]:
    """Carry whatever is due or becomes due, until the end of the block."""
    stop = threading.Event()

    def work() -> None:
        try:
            while not stop.wait(pause):
                services.requeue_due_and_expired()
                runner.drain()
        finally:
            connection.close()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        stop.set()
        worker.join()
