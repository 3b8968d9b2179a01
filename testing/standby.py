"""Streaming standby of an embedded PostgreSQL, in a folder of its own."""

from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from accessa.embedded_postgres import os_user
from accessa.embedded_postgres.server import EmbeddedServer


def start_standby(standby: EmbeddedServer, *, primary: EmbeddedServer) -> None:
    """Copy the primary to the standby's folder, and let it follow."""
    account = os_user.account_for(primary.data)
    account.write(primary.data / "pg_hba.conf", "local all,replication all peer map=accessa\n")
    administer(primary, "SELECT pg_reload_conf()")
    account.give(standby.data.parent)
    source = ["-h", str(primary.socket_folder), "-U", "postgres"]
    with standby.log.open("ab") as output:
        account.run("pg_basebackup", *source, "-D", str(standby.data), "-R", "-c", "fast", output=output)
    standby.ensure_running()


def administer(server: EmbeddedServer, *statements: str) -> Any:
    """Run statements as superuser; return the first value of the last one."""
    params = server.params("postgres") | {"user": "postgres"}
    with psycopg.connect(make_conninfo(**params), autocommit=True) as superuser:
        for statement in statements:
            cursor = superuser.execute(statement)
        row = cursor.fetchone() if cursor.description else None
    return row and row[0]
