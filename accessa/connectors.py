"""The settings of the connector worker (spec 002), read like all others by accessa.settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from accessa.environment import Env
from accessa.secret import local_secret

# By provider: where tenants consent, where tokens come from and are revoked, and where the records are.
# developers.hubspot.com/docs/apps/developer-platform/build-apps/authentication/oauth,
# developers.google.com/identity/protocols/oauth2/web-server, developer.intuit.com/app/developer/qbo/docs/develop/authentication-and-authorization/oauth-2.0
GOOGLE = {
    "authorize_url": "https://accounts.google.com/o/oauth2/v2/auth",
    "token_url": "https://oauth2.googleapis.com/token",
    "revoke_url": "https://oauth2.googleapis.com/revoke",
}
PROVIDERS: dict[str, dict[str, str]] = {
    "hubspot": {
        "authorize_url": "https://app.hubspot.com/oauth/authorize",
        "token_url": "https://api.hubapi.com/oauth/2026-03/token",
        "revoke_url": "https://api.hubapi.com/oauth/2026-03/token/revoke",
        "api_url": "https://api.hubapi.com",
        "mcp_url": "https://mcp.hubspot.com",
        "scopes": "oauth crm.objects.contacts.read crm.objects.companies.read crm.objects.deals.read",
    },
    "google_drive": {
        **GOOGLE,
        "api_url": "https://www.googleapis.com/drive/v3",
        "mcp_url": "https://drivemcp.googleapis.com/mcp/v1",
        "scopes": "https://www.googleapis.com/auth/drive.readonly",
    },
    "quickbooks": {
        "authorize_url": "https://appcenter.intuit.com/connect/oauth2",
        "token_url": "https://oauth.platform.intuit.com/oauth2/v1/tokens/bearer",
        "revoke_url": "https://developer.api.intuit.com/v2/oauth2/tokens/revoke",
        "api_url": "https://quickbooks.api.intuit.com",
        "mcp_url": "",  # Intuit's server is a local program: there is no hosted one
        "scopes": "com.intuit.quickbooks.accounting",
    },
    "gmail": {
        **GOOGLE,
        "api_url": "https://gmail.googleapis.com/gmail/v1",
        "mcp_url": "https://gmailmcp.googleapis.com/mcp/v1",
        "scopes": "https://www.googleapis.com/auth/gmail.readonly",
    },
}
# Whose client id and secret a provider's variables are called by: Google's two share one.
CLIENTS = {"hubspot": "HUBSPOT", "google_drive": "GOOGLE", "quickbooks": "QUICKBOOKS", "gmail": "GOOGLE"}


def providers(env: Env) -> dict[str, dict[str, Any]]:
    """Return CONNECTORS: by provider, ``client_id``, ``client_secret``, ``transport`` and the addresses above.

    HUBSPOT_API_URL and the like replace an address; QuickBooks' sandbox, say, or a stand-in.
    """
    found: dict[str, dict[str, Any]] = {}
    for provider, known in PROVIDERS.items():
        client, own = CLIENTS[provider], provider.upper()
        found[provider] = {
            "client_id": env.str(f"{client}_CLIENT_ID", default=""),
            "client_secret": env.str(f"{client}_CLIENT_SECRET", default=""),
            "transport": env.str(f"{own}_TRANSPORT", default="rest"),  # or mcp
            **{name: env.str(f"{own}_{name.upper()}", default=value) for name, value in known.items()},
        }
    return found


def vault_keys(env: Env, var: Path) -> list[str]:
    """Return the keys of the token vault, the newest first; a laptop's own, which ``check --deploy`` refuses."""
    return env.list("INTEGRATIONS_VAULT_KEYS", default=[]) or [local_secret(var / "vault_key")]


def settings(env: Env, var: Path) -> dict[str, Any]:
    """Return the settings, for accessa.settings to make its own."""
    return {
        "CONNECTORS": providers(env),
        "INTEGRATIONS_USE_FIXTURES": env.bool("INTEGRATIONS_USE_FIXTURES", default=False),
        "INTEGRATIONS_VAULT_KEYS": vault_keys(env, var),
        "INTEGRATIONS_VAULT_KEY_IS_LOCAL": not env.list("INTEGRATIONS_VAULT_KEYS", default=[]),
        # Refreshed before they end, so that a page never begins with a token that ends in it (spec 002 §2).
        "TOKEN_REFRESH_SKEW_SECONDS": env.int("TOKEN_REFRESH_SKEW_SECONDS", default=60),
        "INGESTION_VT_SECONDS": env.int("INGESTION_VT_SECONDS", default=300),  # spec 002 §4
        "INGESTION_MAX_DELIVERIES": env.int("INGESTION_MAX_DELIVERIES", default=5),  # spec 002 §4
        "INGESTION_PAGE_SIZE": env.int("INGESTION_PAGE_SIZE", default=100),  # HubSpot's most
        "INGESTION_PAGE_SECONDS": env.int("INGESTION_PAGE_SECONDS", default=900),  # then the worker ends itself
        # Workers of a cluster that may be at connectors' pages at once; 0: half of them, at least one.
        "INGESTION_WORKERS": env.int("INGESTION_WORKERS", default=0),
        # What a delta reads again: searches of providers lag behind their writes.
        "INGESTION_OVERLAP_SECONDS": env.int("INGESTION_OVERLAP_SECONDS", default=300),
        # An account may hold 100,000 threads, and each costs an embedding (spec 002, decision 4).
        "GMAIL_INITIAL_SYNC_MAX_THREADS": env.int("GMAIL_INITIAL_SYNC_MAX_THREADS", default=500),
        "DRIVE_INITIAL_SYNC_MAX_FILES": env.int("DRIVE_INITIAL_SYNC_MAX_FILES", default=200),
    }
