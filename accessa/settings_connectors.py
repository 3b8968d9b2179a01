"""Settings of the connectors (spec 002), imported by accessa.settings."""

from typing import Any

from accessa.env import Env
from accessa.local_files import local_secret, var_folder

__all__ = [
    "CONNECTORS", "DRIVE_INITIAL_SYNC_MAX_FILES", "GMAIL_INITIAL_SYNC_MAX_THREADS", "IMPORTS_PER_DAY",
    "INGESTION_MAX_DELIVERIES", "INGESTION_OVERLAP_SECONDS", "INGESTION_PAGE_SECONDS", "INGESTION_PAGE_SIZE",
    "INGESTION_VT_SECONDS", "INGESTION_WORK", "INGESTION_WORKERS", "INTEGRATIONS_PROVIDERS",
    "INTEGRATIONS_USE_FIXTURES", "INTEGRATIONS_VAULT_KEYS", "INTEGRATIONS_VAULT_KEY_IS_LOCAL",
    "TOKEN_REFRESH_SKEW_SECONDS",
]  # fmt: skip

# By provider: the addresses of consent, tokens, revocation and records.
# developers.hubspot.com/docs/apps/developer-platform/build-apps/authentication/oauth,
# developers.google.com/identity/protocols/oauth2/web-server,
# developer.intuit.com/app/developer/qbo/docs/develop/authentication-and-authorization/oauth-2.0
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
        # Numbered versions end in September 2027; by date it is /crm/objects/2026-03 and /crm/associations/2026-03.
        "objects_path": "/crm/v3/objects",
        "associations_path": "/crm/v4/associations",
        "mcp_url": "https://mcp.hubspot.com",
        "scopes": "oauth crm.objects.contacts.read crm.objects.companies.read crm.objects.deals.read",
    },
    "google_drive": {
        **GOOGLE,
        "api_url": "https://www.googleapis.com/drive/v3",
        "mcp_url": "https://drivemcp.googleapis.com/mcp/v1",
        "scopes": "openid https://www.googleapis.com/auth/drive.readonly",
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
        "scopes": "openid https://www.googleapis.com/auth/gmail.readonly",
    },
}
# The prefix of a provider's client id and secret: Google's two share one.
CLIENTS = {"hubspot": "HUBSPOT", "google_drive": "GOOGLE", "quickbooks": "QUICKBOOKS", "gmail": "GOOGLE"}
# Calls a minute of one connection, below the limit of each provider: HubSpot 100 in 10 s, QuickBooks 500
# a minute, Gmail 6,000 units a minute of which a thread costs 10, Drive 12,000 a minute and user.
RATE_LIMITS = {"hubspot": 540, "google_drive": 1_200, "quickbooks": 450, "gmail": 540}


def provider_url(env: Env, provider: str, name: str) -> str:
    return str(env.str(f"{provider.upper()}_{name.upper()}", default=PROVIDERS[provider][name]))


def provider_settings(env: Env) -> dict[str, dict[str, Any]]:
    """Return CONNECTORS: by provider, OAuth client, transport, rate limit and the addresses above.

    HUBSPOT_API_URL and the like replace an address: QuickBooks' sandbox, say, or a fake. INTEGRATIONS_TRANSPORT=mcp
    is the transport of every provider that has an MCP server.
    """
    transport = env.str("INTEGRATIONS_TRANSPORT", default="rest")
    has_mcp = {provider for provider in PROVIDERS if provider_url(env, provider, "mcp_url")}
    return {
        provider: {
            "client_id": env.str(f"{CLIENTS[provider]}_CLIENT_ID", default=""),
            "client_secret": env.str(f"{CLIENTS[provider]}_CLIENT_SECRET", default=""),
            "transport": env.str(
                f"{provider.upper()}_TRANSPORT",
                default="rest" if transport == "mcp" and provider not in has_mcp else transport,
            ),
            "requests_per_minute": env.int(f"{provider.upper()}_REQUESTS_PER_MINUTE", default=RATE_LIMITS[provider]),
            **{name: provider_url(env, provider, name) for name in addresses},
        }
        for provider, addresses in PROVIDERS.items()
    }


env = Env()
VAR = var_folder(env)

CONNECTORS = provider_settings(env)
# Each provider's package. A variable as "hubspot=testing.fakes.instant_provider" replaces one.
INTEGRATIONS_PROVIDERS = {provider: f"integrations.providers.{provider}" for provider in PROVIDERS} | {
    name: module for name, _, module in (pair.partition("=") for pair in env.list("INTEGRATIONS_PROVIDERS", default=[]))
}
INTEGRATIONS_USE_FIXTURES = env.bool("INTEGRATIONS_USE_FIXTURES", default=False)
INTEGRATIONS_VAULT_KEYS = env.list("INTEGRATIONS_VAULT_KEYS", default=[])  # the newest first
INTEGRATIONS_VAULT_KEY_IS_LOCAL = not INTEGRATIONS_VAULT_KEYS  # `check --deploy` refuses it
if INTEGRATIONS_VAULT_KEY_IS_LOCAL:
    INTEGRATIONS_VAULT_KEYS = [local_secret(VAR / "vault_key")]
# Tokens are refreshed before they expire, so that none expires during a page (spec 002 §2).
TOKEN_REFRESH_SKEW_SECONDS = env.int("TOKEN_REFRESH_SKEW_SECONDS", default=60)
INGESTION_WORK = env.str("INGESTION_WORK", default="integrations.sync.page_worker.run_page")  # of one page
INGESTION_VT_SECONDS = env.int("INGESTION_VT_SECONDS", default=300)  # spec 002 §4
INGESTION_MAX_DELIVERIES = env.int("INGESTION_MAX_DELIVERIES", default=5)  # spec 002 §4
INGESTION_PAGE_SIZE = env.int("INGESTION_PAGE_SIZE", default=100)  # HubSpot's most
INGESTION_PAGE_SECONDS = env.int("INGESTION_PAGE_SECONDS", default=900)  # then the worker ends itself
# Workers of a cluster that may process connectors' pages at once; 0: half of them, at least one.
INGESTION_WORKERS = env.int("INGESTION_WORKERS", default=0)
# A delta sync reads this much again: searches of providers lag behind their writes.
INGESTION_OVERLAP_SECONDS = env.int("INGESTION_OVERLAP_SECONDS", default=300)
# An account may hold 100,000 threads, and each costs an embedding (spec 002, decision 4).
GMAIL_INITIAL_SYNC_MAX_THREADS = env.int("GMAIL_INITIAL_SYNC_MAX_THREADS", default=500)
DRIVE_INITIAL_SYNC_MAX_FILES = env.int("DRIVE_INITIAL_SYNC_MAX_FILES", default=200)
# New PDFs that a tenant's connectors may bring; its own uploads have UPLOADS_PER_DAY to themselves.
IMPORTS_PER_DAY = env.int("IMPORTS_PER_DAY", default=500)
