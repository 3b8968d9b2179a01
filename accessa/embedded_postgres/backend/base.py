"""ENGINE = "accessa.embedded_postgres.backend": the server starts with the first connection, never with an import.

`EMBEDDED_DATA` in the database's settings names the data directory (default: `var/postgres`). HOST and PORT are
filled in here, so that whoever reads them afterwards (dbshell, a connection of one's own) finds the same server.
"""

from pathlib import Path
from typing import Any

from django.db.backends.postgresql.client import DatabaseClient as PostgresClient

from accessa.embedded_postgres.installation import binaries
from accessa.embedded_postgres.server import EmbeddedServer
from accessa.postgres_backend import base


class DatabaseClient(PostgresClient):
    executable_name = str(binaries() / "psql")

    def runshell(self, parameters: Any) -> None:
        self.connection.ensure_connection()
        super().runshell(parameters)


class DatabaseWrapper(base.DatabaseWrapper):
    client_class = DatabaseClient

    def __init__(self, settings_dict: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        folder = settings_dict.get("EMBEDDED_DATA")
        self.server = EmbeddedServer(Path(folder) if folder else None)
        settings_dict["HOST"] = self.server.params()["host"]
        settings_dict["PORT"] = self.server.params()["port"]
        super().__init__(settings_dict, *args, **kwargs)

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        self.server.ensure_running()
        return super().get_new_connection(conn_params)
