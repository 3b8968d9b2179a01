"""Which module and which client a connected source is fetched with (spec 002 §7)."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from django.conf import settings

from integrations.models import ConnectedSource
from integrations.providers import McpClient, Provider
from integrations.transports.fixtures import FixtureTransport
from integrations.transports.rest import RestTransport

MCP = "integrations.transports.mcp"  # the SDK takes a second to import: only where it is used


def provider_module(name: str) -> Provider:
    """Return the provider's module: its streams, its field map, its rollup."""
    return cast(Provider, import_module(settings.INTEGRATIONS_PROVIDERS[name]))


def make_client(source: ConnectedSource, token: str) -> McpClient:
    """Return a client of the source's account, over its transport or from recorded answers. The caller closes it."""
    if settings.INTEGRATIONS_USE_FIXTURES:
        return _client(source, "rest", FixtureTransport(source.provider))
    if source.transport == "mcp":
        transport = import_module(MCP)
        return _client(source, "mcp", transport.McpTools(source, token, requests_per_minute=_pace(source)))
    return _client(source, "rest", RestTransport(source, token, requests_per_minute=_pace(source)))


def _client(source: ConnectedSource, transport: str, asked: Any) -> McpClient:
    module = import_module(f"{settings.INTEGRATIONS_PROVIDERS[source.provider]}.{transport}")
    return cast(McpClient, module.Client(source, asked))


def _pace(source: ConnectedSource) -> int:
    return int(settings.CONNECTORS[source.provider].get("requests_per_minute", 0))
