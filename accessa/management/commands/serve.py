"""manage.py serve: the API and the workers on this machine until Ctrl-C."""

import os
import signal
import sys
from argparse import ArgumentParser
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from accessa.embedded_postgres.installation import EmbeddedError
from accessa.embedded_postgres.server import EmbeddedServer
from accessa.server import pidfile, search_engine
from accessa.server.address import PIDFILE, Address, publish_address
from accessa.server.database import migrated_database
from accessa.server.programs import first_account_code, mcp_url, programs
from accessa.server.supervisor import Supervisor


class Command(BaseCommand):
    help = "Keeps the API, the workers and, with SQS_QUEUE_URL, a consumer up until Ctrl-C or `serve --stop`."
    requires_system_checks = ()  # `migrate` runs them, once the database is there

    def add_arguments(self, parser: ArgumentParser) -> None:
        bind = f"127.0.0.1:{os.environ.get('PORT', '8000')}"
        parser.add_argument("--bind", default=bind, help=f"host:port to listen on (default {bind})")
        mcp_port = os.environ.get("MCP_PORT", "")
        parser.add_argument(
            "--mcp-port",
            type=int,
            default=mcp_port or None,
            help="port of /mcp: the next one, 0 for none",
        )
        parser.add_argument("--stop", action="store_true", help="stop a running serve and the embedded PostgreSQL")

    def handle(self, *, bind: str, stop: bool, mcp_port: int | None, **options: Any) -> None:
        if stop:
            served = pidfile.stop_process(settings.VAR / PIDFILE, timeout=45)
            stopped = EmbeddedServer(settings.VAR / "postgres").stop()
            self._say("Accessa has stopped." if served or stopped else "Accessa was not running.")
            return
        try:
            address = Address.parse(bind)
        except ValueError:
            raise CommandError(f"--bind wants host:port, not {bind!r}.", returncode=2) from None
        try:
            with pidfile.lock_pidfile(settings.VAR / PIDFILE):
                mcp = replace(address, port=address.port + 1 if mcp_port is None else mcp_port)
                self._serve(address, mcp if mcp.port else None)
        except pidfile.AlreadyRunning as error:
            message = f"Accessa is being served by process {error}. `make stop` ends it."
            raise CommandError(message, returncode=2) from None
        except EmbeddedError as error:
            raise CommandError(str(error)) from None

    def _serve(self, address: Address, mcp: Address | None) -> None:
        if not address.is_free():
            message = f"{address.bind} is in use. Free it, or choose another: make serve PORT=8001"
            raise CommandError(message, returncode=2)
        if mcp and not mcp.is_free():
            message = f"{mcp.bind}, for assistants, is in use. Choose another: MCP_PORT=8011; MCP_PORT=0 for none."
            raise CommandError(message, returncode=2)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # until the supervisor takes over
        try:
            with migrated_database(), publish_address(settings.VAR, address):
                code = first_account_code(address)
                supervisor = Supervisor(programs(address, mcp, code), report=self._say)
                supervisor.run(when_up=lambda: self._announce(address, mcp, code))
        except KeyboardInterrupt:
            self._say("Interrupted before it was up.")
        except (CommandError, DatabaseError):
            self._say("It does not start; manage.py doctor says what to do.")
            raise
        self._say("Accessa has stopped.")

    def _announce(self, address: Address, mcp: Address | None, code: str) -> bool:
        if not address.answers() or (mcp and not mcp.answers()) or not search_engine.is_ready():
            return False
        self._say(f"Accessa is up: {address.url} (API docs at /docs)")
        if search_engine.is_ours():
            self._say(f"Milvus Lite finds the candidates of searches, at {settings.MILVUS_URI}")
        if mcp:
            self._say(f"Assistants connect to {os.environ.get('MCP_URL') or mcp_url(mcp)} (docs/assistants.md)")
        if code:
            self._say(f"There is no account yet: create the first one at {address.url} with the code {code}")
        return True

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()
