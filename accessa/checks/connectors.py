"""Settings of the connectors that cannot be meant, and what no deployment may have of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning

from accessa.settings_connectors import CLIENTS, PROVIDERS

Found = Iterator[CheckMessage]
TRANSPORTS = ("rest", "mcp")
LOOPBACK = ("127.0.0.1", "::1", "localhost")
SHORTEST_KEY = 32  # as the vault takes them


def check_connectors() -> Found:
    for client in sorted(set(CLIENTS.values())):
        yield from _client(client)
    for provider, said in settings.CONNECTORS.items():
        yield from _transport(provider, said)
        yield from _addresses(provider, said)
        if said["requests_per_minute"] < 1:
            name = f"{provider.upper()}_REQUESTS_PER_MINUTE"
            yield Error(f"{name} is too small to work with.", hint=f"Unset {name}, or raise it.", id="accessa.E225")
    yield from _modules()
    yield from _vault()
    if settings.INTEGRATIONS_USE_FIXTURES and configured_providers():
        yield Warning(
            "INTEGRATIONS_USE_FIXTURES is on: who connects a system gets recorded answers, though a provider's client"
            " is set.",
            hint="Unset INTEGRATIONS_USE_FIXTURES.",
            id="accessa.W241",
        )


def configured_providers() -> list[str]:
    """Return the providers that tenants can connect."""
    return [provider for provider, said in settings.CONNECTORS.items() if said["client_id"]]


def _client(client: str) -> Found:
    said = settings.CONNECTORS[next(provider for provider, name in CLIENTS.items() if name == client)]
    if bool(said["client_id"]) != bool(said["client_secret"]):
        hint = f"Set both {client}_CLIENT_ID and {client}_CLIENT_SECRET."
        yield Error(f"Only half of {client}'s client is set.", hint=hint, id="accessa.E236")


def _transport(provider: str, said: dict[str, Any]) -> Found:
    name = f"{provider.upper()}_TRANSPORT"
    if said["transport"] not in TRANSPORTS:
        yield Error(f"There is no such transport: {name}.", hint="Set it to rest or mcp.", id="accessa.E237")
    elif said["transport"] == "mcp" and not said["mcp_url"]:
        hint = f"Set {name}=rest, or {provider.upper()}_MCP_URL to a server of your own."
        yield Error(f"{name}=mcp has no server.", hint=hint, id="accessa.E238")


def _addresses(provider: str, said: dict[str, Any]) -> Found:
    for name in PROVIDERS[provider]:
        if name.endswith("_url") and said[name] and not re.match(r"https?://[^/\s?#]", said[name]):
            variable = f"{provider.upper()}_{name.upper()}"
            yield Error(f"{variable} is no address.", hint="Set it to scheme://host[:port].", id="accessa.E239")


def _modules() -> Found:
    for provider, path in settings.INTEGRATIONS_PROVIDERS.items():
        if provider not in PROVIDERS:
            said = f"There is no such provider: {provider}."
        elif not _is_there(path):
            said = f"{provider} has no module {path}."
        else:
            continue
        hint = "Mend INTEGRATIONS_PROVIDERS, or unset it: hubspot=the.modules.path."
        yield Error(said, hint=hint, id="accessa.E244")


def _is_there(path: str) -> bool:
    """Tell whether a provider's module and its clients can be imported; both only, for importing takes a while."""
    try:
        found = [find_spec(each) for each in (path, f"{path}.rest")]
    except (ImportError, ValueError, AttributeError):
        return False
    return None not in found


def _vault() -> Found:
    if settings.INTEGRATIONS_VAULT_KEY_IS_LOCAL:
        return
    for number, key in enumerate(settings.INTEGRATIONS_VAULT_KEYS, start=1):
        if len(key.strip()) < SHORTEST_KEY:
            yield Error(
                f"Key number {number} of INTEGRATIONS_VAULT_KEYS is shorter than {SHORTEST_KEY} characters.",
                hint="Make one with: openssl rand -base64 32",
                id="accessa.E240",
            )


def _in_the_open(provider: str, said: dict[str, Any]) -> Found:
    for name in PROVIDERS[provider]:
        address = urlsplit(said[name]) if name.endswith("_url") else None
        if address and address.scheme == "http" and address.hostname not in LOOPBACK:
            variable = f"{provider.upper()}_{name.upper()}"
            yield Error(
                f"{variable} is not https: tenants' tokens and records would cross the network in the open.",
                hint=f"Set {variable} to https, or unset it.",
                id="accessa.E112",
            )


def check_connector_deployment() -> Found:
    if settings.INTEGRATIONS_USE_FIXTURES:
        hint = "Unset INTEGRATIONS_USE_FIXTURES."
        yield Error("Connectors answer with recorded data.", hint=hint, id="accessa.E109")
    for provider in configured_providers():
        yield from _in_the_open(provider, settings.CONNECTORS[provider])
    if not configured_providers():
        return
    if settings.INTEGRATIONS_VAULT_KEY_IS_LOCAL:
        yield Error(
            "Tenants' tokens would be encrypted with this machine's own key, made for a laptop.",
            hint="Set INTEGRATIONS_VAULT_KEYS.",
            id="accessa.E110",
        )
    if not settings.PUBLIC_URL.startswith("https:"):
        yield Error(
            "PUBLIC_URL is not https: providers lead tenants back with a code in the address, and to https only.",
            hint="Set PUBLIC_URL to https.",
            id="accessa.E111",
        )
