"""In what the providers' OAuth differs, as a table."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings


def _hub_id(said: Mapping[str, Any]) -> str:
    return str(said.get("hub_id") or said.get("hubId") or "")


def _subject(said: Mapping[str, Any]) -> str:
    """Return a hash of who consented, from the id token: it came from Google itself, so its signature says no more."""
    parts = str(said.get("id_token") or "").split(".")
    if len(parts) != 3:
        return ""
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return ""
    subject = claims.get("sub") if isinstance(claims, dict) else None
    return hashlib.sha256(f"google:{subject}".encode()).hexdigest()[:32] if isinstance(subject, str) and subject else ""


def _nobody(said: Mapping[str, Any]) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class OAuthConfig:
    """How a provider's endpoints are spoken to. ``account`` reads whose tokens an answer brings."""

    basic_auth: bool = False  # the client's id and secret in a header, not in the body
    pkce: bool = True
    revokes_in_json: bool = False
    consent_params: Mapping[str, str] = field(default_factory=dict)  # more of the consent page's parameters
    read_account: Callable[[Mapping[str, Any]], str] = _nobody
    account_in_callback: bool = False


# Without prompt=consent Google gives a refresh token at the first consent only.
_GOOGLE = OAuthConfig(consent_params={"access_type": "offline", "prompt": "consent"}, read_account=_subject)
OAUTH_CONFIGS = {
    "hubspot": OAuthConfig(pkce=False, read_account=_hub_id),
    "google_drive": _GOOGLE,
    "gmail": _GOOGLE,
    "quickbooks": OAuthConfig(basic_auth=True, pkce=False, revokes_in_json=True, account_in_callback=True),
}
# Google takes back all that a person has granted to a client, whichever token it is asked by: its two are one grant.
SHARED_GRANTS = {"google_drive": ("gmail",), "gmail": ("google_drive",)}


def uses_pkce(provider: str) -> bool:
    """HubSpot's MCP apps demand PKCE; its other apps know nothing of it."""
    is_mcp = settings.CONNECTORS[provider]["transport"] == "mcp"
    return OAUTH_CONFIGS[provider].pkce or (provider == "hubspot" and is_mcp)
