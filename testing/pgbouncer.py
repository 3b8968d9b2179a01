"""pgbouncer before the test database, as a process of its own."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg

from testing.cluster import database_url, wait_until
from testing.ports import free_port

CONFIG = """
[databases]
{dbname} = host={host} port={port} dbname={dbname} user={user} pool_size={pool_size}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = {pool_mode}
max_client_conn = 200
admin_users = {user}
logfile = {folder}/log
pidfile = {folder}/pid
"""


def find_pgbouncer() -> str | None:
    """Return the path of the program, from Debian's package `pgbouncer`, or None."""
    return shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")


@contextmanager
def running_pgbouncer(
    server: Mapping[str, str], *, pool_mode: str = "transaction", pool_size: int = 2
) -> Iterator[dict[str, str]]:
    """Run a pooler before ``server`` (libpq's parameters); yield the parameters of the same database through it.

    A server without a password is expected. ``pool_size`` is the number of connections to it.
    """
    folder = Path(tempfile.mkdtemp(prefix="accessa-pgbouncer-", dir="/tmp"))
    folder.chmod(0o777)
    port = free_port()
    config = folder / "pgbouncer.ini"
    fields = dict(server) | {"pool_mode": pool_mode, "pool_size": str(pool_size), "folder": str(folder)}
    config.write_text(CONFIG.format(**fields, listen_port=port))
    command = [str(find_pgbouncer()), "-q", str(config)]
    if os.geteuid() == 0:  # pgbouncer refuses to run as root; the server's own account reaches its socket
        command += ["-u", Path(server["host"]).owner()]
    process = subprocess.Popen(command, cwd="/")
    pooled = {"host": "127.0.0.1", "port": str(port), "user": server["user"], "dbname": server["dbname"]}
    try:
        wait_until(lambda: _is_up(pooled), seconds=20)
        yield pooled
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _is_up(pooled: Mapping[str, str]) -> bool:
    try:
        psycopg.connect(database_url(pooled)).close()
    except psycopg.OperationalError:
        return False
    return True
