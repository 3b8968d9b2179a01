"""OAuth differences between the providers, as a table."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings


def _hub_id(response: Mapping[str, Any]) -> str:
    return str(response.get("hub_id") or response.get("hubId") or "")


def _google_subject(response: Mapping[str, Any]) -> str:
    """Return a hash of the id token's subject. Google itself sent the token, so its signature is not checked."""
    parts = str(response.get("id_token") or "").split(".")
    if len(parts) != 3:
        return ""
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return ""
    subject = claims.get("sub") if isinstance(claims, dict) else None
    return hashlib.sha256(f"google:{subject}".encode()).hexdigest()[:32] if isinstance(subject, str) and subject else ""


@dataclass(frozen=True, slots=True)
class OAuthConfig:
    """The differences of a provider's endpoints. ``read_account`` returns the account that a token response names."""

    basic_auth: bool = False  # the client's id and secret in a header, not in the body
    pkce: bool = True
    revokes_in_json: bool = False
    consent_params: Mapping[str, str] = field(default_factory=dict)  # additional parameters of the consent page
    read_account: Callable[[Mapping[str, Any]], str] = lambda response: ""
    account_in_callback: bool = False


# Without prompt=consent Google returns a refresh token at the first consent only.
_GOOGLE = OAuthConfig(consent_params={"access_type": "offline", "prompt": "consent"}, read_account=_google_subject)
OAUTH_CONFIGS = {
    "hubspot": OAuthConfig(pkce=False, read_account=_hub_id),
    "google_drive": _GOOGLE,
    "gmail": _GOOGLE,
    "quickbooks": OAuthConfig(basic_auth=True, pkce=False, revokes_in_json=True, account_in_callback=True),
}
# Google revokes all that a person has granted to a client, whichever token is sent: its two sources share one grant.
SHARED_GRANTS = {"google_drive": ("gmail",), "gmail": ("google_drive",)}


def uses_pkce(provider: str) -> bool:
    """Return whether consent uses PKCE: HubSpot's MCP apps demand it, its other apps do not support it."""
    is_mcp = settings.CONNECTORS[provider]["transport"] == "mcp"
    return OAUTH_CONFIGS[provider].pkce or (provider == "hubspot" and is_mcp)
