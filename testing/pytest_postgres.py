"""Pytest plugin: a `var/` and a PostgreSQL of the test session, set before pytest-django reads the settings.

With DATABASE_URL set the tests use that server, and nothing is started here.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from accessa.embedded_postgres.server import EmbeddedServer

# /tmp, not $TMPDIR: a socket's path is limited to 107 bytes. `var` below it, so that a process which outlives the
# session finds no parent to start a server in.
SCRATCH = Path(tempfile.mkdtemp(prefix="accessa-tests-", dir="/tmp"))
os.environ["ACCESSA_VAR"] = str(SCRATCH / "var")


def _clear(session: int = os.getpid()) -> None:
    if os.getpid() == session:  # a fork of ours that exits must not take the database along
        EmbeddedServer().stop("immediate")
        shutil.rmtree(SCRATCH, ignore_errors=True)


# Not a pytest hook: this also runs when the session ends before it begins, as with a broken setting.
atexit.register(_clear)
