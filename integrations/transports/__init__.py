"""Transports to a provider: its REST API, its MCP server, or recorded responses; and the client of a source."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any, Protocol, cast

from django.conf import settings

from integrations.models import ConnectedSource
from integrations.providers import McpClient
from integrations.transports.fixtures import FixtureTransport
from integrations.transports.responses import Params
from integrations.transports.rest import RestTransport


class Transport(Protocol):
    """Requests to one account at a provider: ``RestTransport``, ``FixtureTransport`` or ``McpRestAdapter``."""

    def json(
        self, method: str, path: str, *, operation: str, params: Params | None = None, body: Params | None = None
    ) -> dict[str, Any]:
        """Return the JSON object of a response, its numbers with a point as ``Decimal``."""

    def stream(self, path: str, *, operation: str, params: Params | None = None, most: int) -> Iterator[bytes]:
        """Yield the bytes of a response; raise ``TooLarge`` once there are more than ``most``."""

    def close(self) -> None: ...


def make_client(source: ConnectedSource, token: str) -> McpClient:
    """Return a client of the source's account over its transport, or over recorded responses (spec 002 §7).

    The caller closes it.
    """
    name, requests_per_minute = source.transport, settings.CONNECTORS[source.provider].get("requests_per_minute", 0)
    transport: Any
    if settings.INTEGRATIONS_USE_FIXTURES:
        name, transport = "rest", FixtureTransport(source.provider)
    elif name == "mcp":
        mcp = import_module("integrations.transports.mcp")  # its SDK takes a second to import: only where it is used
        transport = mcp.McpTools(source, token, requests_per_minute=int(requests_per_minute))
    else:
        name, transport = "rest", RestTransport(source, token, requests_per_minute=int(requests_per_minute))
    module = import_module(f"{settings.INTEGRATIONS_PROVIDERS[source.provider]}.{name}")
    return cast(McpClient, module.Client(source, transport))
