"""Transports to a provider: its REST API, its MCP server, or recorded responses; and the client of a source."""

from importlib import import_module
from typing import cast

from django.conf import settings

from integrations.models import ConnectedSource
from integrations.providers.interface import McpClient, Transport
from integrations.transports.fixture_transport import FixtureTransport
from integrations.transports.rest import RestTransport


def make_client(source: ConnectedSource, token: str) -> McpClient:
    """Return a client of the source's account over its transport, or over recorded responses (spec 002 §7).

    The caller closes it.
    """
    provider = settings.INTEGRATIONS_PROVIDERS[source.provider]
    limit = int(settings.CONNECTORS[source.provider].get("requests_per_minute", 0))
    transport: Transport
    if settings.INTEGRATIONS_USE_FIXTURES:
        transport = FixtureTransport(source.provider)
    elif source.transport == "mcp":  # its SDK takes a second to import: only where it is used
        transport = import_module(f"{provider}.mcp").Transport(source, token, requests_per_minute=limit)
    else:
        transport = RestTransport(source, token, requests_per_minute=limit)
    return cast(McpClient, import_module(f"{provider}.rest").Client(source, transport))
