"""System checks of the connectors' settings: OAuth clients, transports, URLs, the token vault's keys."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from django.conf import settings

from accessa.checks.rules import Rule, is_plain_http, is_url
from accessa.settings_connectors import CLIENTS, PROVIDERS

SHORTEST_KEY = 32  # characters, as the vault requires


def configured_providers() -> list[str]:
    """Return the providers that tenants can connect."""
    return [provider for provider, config in settings.CONNECTORS.items() if config["client_id"]]


def _urls(provider: str) -> Iterator[tuple[str, str]]:
    for name in PROVIDERS[provider]:
        if name.endswith("_url"):
            yield f"{provider.upper()}_{name.upper()}", settings.CONNECTORS[provider][name]


def _broken_providers(s: Any) -> Iterator[str]:
    for provider, path in s.INTEGRATIONS_PROVIDERS.items():
        if provider not in PROVIDERS:
            yield f"There is no such provider: {provider}."
            continue
        try:  # both only: importing takes a while
            is_importable = None not in [find_spec(module) for module in (f"{path}.mapping", f"{path}.rest")]
        except (ImportError, ValueError, AttributeError):
            is_importable = False
        if not is_importable:
            yield f"{provider} has no module {path}."


# fmt: off
CONNECTOR_RULES = (
    Rule("accessa.E236", lambda s: sorted({CLIENTS[provider] for provider, config in s.CONNECTORS.items()
                                           if bool(config["client_id"]) != bool(config["client_secret"])}),
         "Only half of {0}'s client is set.",
         "Set both {0}_CLIENT_ID and {0}_CLIENT_SECRET."),
    Rule("accessa.E237", lambda s: [provider.upper() for provider, config in s.CONNECTORS.items()
                                    if config["transport"] not in ("rest", "mcp")],
         "There is no such transport: {0}_TRANSPORT.", "Set it to rest or mcp."),
    Rule("accessa.E238", lambda s: [provider.upper() for provider, config in s.CONNECTORS.items()
                                    if config["transport"] == "mcp" and not config["mcp_url"]],
         "{0}_TRANSPORT=mcp has no server.", "Set {0}_TRANSPORT=rest, or {0}_MCP_URL to a server of your own."),
    Rule("accessa.E239", lambda s: [variable for provider in s.CONNECTORS for variable, url in _urls(provider)
                                    if url and not is_url(url)],
         "{0} is no address.", "Set it to scheme://host[:port]."),
    Rule("accessa.E225", lambda s: [provider.upper() for provider, config in s.CONNECTORS.items()
                                    if config["requests_per_minute"] < 1],
         "{0}_REQUESTS_PER_MINUTE is too small to work with.", "Unset {0}_REQUESTS_PER_MINUTE, or raise it."),
    Rule("accessa.E244", _broken_providers,
         "{0}", "Correct INTEGRATIONS_PROVIDERS, or unset it: hubspot=the.modules.path."),
    Rule("accessa.E240",
         lambda s: () if s.INTEGRATIONS_VAULT_KEY_IS_LOCAL else [
             position for position, key in enumerate(s.INTEGRATIONS_VAULT_KEYS, start=1)
             if len(key.strip()) < SHORTEST_KEY],
         "Key number {0} of INTEGRATIONS_VAULT_KEYS is shorter than " f"{SHORTEST_KEY} characters.",
         "Make one with: openssl rand -base64 32"),
    Rule("accessa.W241", lambda s: s.INTEGRATIONS_USE_FIXTURES and bool(configured_providers()),
         "INTEGRATIONS_USE_FIXTURES is on: sources get recorded responses, though a client is set.",
         "Unset INTEGRATIONS_USE_FIXTURES."),
    Rule("accessa.E241", lambda s: s.INGESTION_MAX_DELIVERIES < 2,
         "A page is archived at its first delivery, untried.",
         "Unset INGESTION_MAX_DELIVERIES, or raise it to 2 or more."),
    # HubSpot's tokens last 1,800 s: refreshed so long before they expire, they would be refreshed for every page.
    Rule("accessa.W242", lambda s: s.TOKEN_REFRESH_SKEW_SECONDS >= 1800,
         "A token would be refreshed for every page.", "Lower TOKEN_REFRESH_SKEW_SECONDS below 1800."),
    Rule("accessa.W243", lambda s: 1 < s.WORKERS <= s.INGESTION_WORKERS,
         "Connectors may take all workers, and uploads wait.",
         "Lower INGESTION_WORKERS below WORKERS, or unset it."),
)
CONNECTOR_DEPLOYMENT_RULES = (
    Rule("accessa.E109", lambda s: s.INTEGRATIONS_USE_FIXTURES,
         "Connectors answer with recorded data.", "Unset INTEGRATIONS_USE_FIXTURES."),
    Rule("accessa.E112", lambda s: [variable for provider in configured_providers()
                                    for variable, url in _urls(provider) if is_plain_http(url)],
         "{0} is not https: tenants' tokens and records would cross the network unencrypted.",
         "Set {0} to https, or unset it."),
    Rule("accessa.E110", lambda s: s.INTEGRATIONS_VAULT_KEY_IS_LOCAL,
         "Webhook secrets and tenants' tokens would be encrypted with this machine's own development key.",
         "Set INTEGRATIONS_VAULT_KEYS."),
    Rule("accessa.E111", lambda s: bool(configured_providers()) and not s.PUBLIC_URL.startswith("https:"),
         "PUBLIC_URL is not https: providers redirect tenants back with a code in the URL, and to https only.",
         "Set PUBLIC_URL to https."),
)
# fmt: on
