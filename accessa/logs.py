"""What must not reach a log, whoever writes it."""

from __future__ import annotations

import logging
import re

from jobs.faults import frames

STORED = re.compile(r"/storage/\S+")


class Discreet(logging.Filter):
    """Cuts the paths of tenants' files, and shows of an exception where it was raised and not what it said."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            message += f"\n{frames(error)}"
            record.exc_info = record.exc_text = None
        record.msg, record.args = STORED.sub("/storage/…", message), None
        return True
