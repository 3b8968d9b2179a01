"""Pytest plugin: a `var/` and a PostgreSQL of the test session, set before pytest-django reads the settings.

With DATABASE_URL set the tests use that server, and nothing is started here. A process of its own stops every server
below the session's folder when the session ends, however it ends: it waits for the end of its standard input.
"""

import atexit
import os
import subprocess
import sys
import tempfile
from pathlib import Path

# /tmp, not $TMPDIR: a socket's path is limited to 107 bytes. `var` below it, so that a process which outlives the
# session finds no parent to start a server in.
SCRATCH = Path(tempfile.mkdtemp(prefix="accessa-tests-", dir="/tmp"))
os.environ["ACCESSA_VAR"] = str(SCRATCH / "var")
os.environ["SENTENCE_MODEL"] = "none"  # no cluster of a test embeds sentences beside it
CLEAN_UP = """
import pathlib, shutil, sys
from accessa.embedded_postgres.server import EmbeddedServer
sys.stdin.read()
for version in pathlib.Path(sys.argv[1]).glob("**/PG_VERSION"):
    if (version.parent / "postmaster.pid").exists():
        EmbeddedServer(version.parent).stop("immediate")
shutil.rmtree(sys.argv[1], ignore_errors=True)
"""
cleaner = subprocess.Popen(
    [sys.executable, "-c", CLEAN_UP, str(SCRATCH)], stdin=subprocess.PIPE, start_new_session=True, cwd=Path.cwd()
)


def _clean_up(session: int = os.getpid()) -> None:
    if os.getpid() == session:  # a fork of ours that exits must not take the database along
        cleaner.communicate()


# Not a pytest hook: this also runs when the session ends before it begins, as with a broken setting.
atexit.register(_clean_up)
