"""manage.py serve_mcp: the MCP server for AI assistants, one process under uvicorn."""

import os
from argparse import ArgumentParser
from typing import Any

import uvicorn
from django.core.management.base import BaseCommand, CommandError

from accessa.mcp_server.asgi import build_application
from accessa.server.address import Address
from jobs import telemetry

MAX_CONNECTIONS = 256  # more are answered 503: a client that does not send on holds one
GRACE_SECONDS = 25  # the supervisor kills after 30


class Command(BaseCommand):
    help = "Serves /mcp to AI assistants (docs/assistants.md). `manage.py serve` starts it too."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        bind = f"127.0.0.1:{os.environ.get('MCP_PORT', '8001')}"
        parser.add_argument("--bind", default=bind, help=f"host:port to listen on (default {bind})")

    def handle(self, *, bind: str, **options: Any) -> None:
        try:
            address = Address.parse(bind)
        except ValueError:
            raise CommandError(f"--bind wants host:port, not {bind!r}.", returncode=2) from None
        telemetry.start_tracers()
        uvicorn.run(
            build_application(),
            host=address.host,
            port=address.port,
            log_config=None,  # ours: its access log has paths and queries
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
