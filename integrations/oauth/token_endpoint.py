"""Token endpoints of the providers, and their differences: code exchange, refresh, introspection, revocation."""

import base64
import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpcore
import httpx
from django.conf import settings

from integrations.error_codes import OAUTH_CLIENT_REFUSED
from jobs.outcomes import Wait
from vendors import calls, http_deadline
from vendors.call_failures import InvalidResponse
from vendors.vendor_account import Vendor

log = logging.getLogger("accessa.integrations")

TIMEOUT_SECONDS = 15.0  # three of them end before a refresh lease does: two holders never call at once
REVOKE_SECONDS = 5.0  # a person waits for it
REQUESTS_PER_MINUTE = 600
DEFAULT_TOKEN_SECONDS = 1800.0  # the life of HubSpot's tokens, the shortest: assumed where the response names none
MOST_TOKEN_CHARS = 4096
CLIENT_REFUSED_SECONDS = 60.0

# VENDORS §7: RFC 6749 §5.2, and HubSpot's own codes for the same.
GRANT_ERRORS = {"invalid_grant", "invalid_token", "BAD_REFRESH_TOKEN", "BAD_AUTH_CODE"}
# Errors of our OAuth client, and so of every tenant's calls: no tenant could mend them by connecting again.
CLIENT_ERRORS = {"invalid_client", "unauthorized_client", "BAD_CLIENT_ID", "BAD_CLIENT_SECRET", "deleted_client"}
# HubSpot's standard errors have no code of their own for it: they name the parameter.
PARAMETER_ERRORS = {"refresh_token": "BAD_REFRESH_TOKEN", "token": "BAD_REFRESH_TOKEN", "code": "BAD_AUTH_CODE"}
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def _google_subject(response: Mapping[str, Any]) -> str:
    """Return a hash of the id token's subject. Google itself sent the token, so its signature is not checked."""
    parts = str(response.get("id_token") or "").split(".")
    if len(parts) != 3:
        return ""
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
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
    "hubspot": OAuthConfig(pkce=False, read_account=lambda body: str(body.get("hub_id") or body.get("hubId") or "")),
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


class GrantRefused(Exception):
    """The provider no longer accepts the code or the refresh token. ``code`` is its error code, never its prose."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class TokenResponse:
    """The response of a token endpoint. ``refresh`` "" means that the refresh token in use stays valid."""

    access: str = field(repr=False)
    refresh: str = field(repr=False)
    seconds: float
    scopes: frozenset[str] | None = None  # None: the requested ones (RFC 6749 §5.1)
    account: str = ""


def is_configured(provider: str) -> bool:
    config = settings.CONNECTORS[provider]
    return bool(config["client_id"] and config["client_secret"])


def exchange_code(provider: str, code: str, *, redirect_uri: str, verifier: str) -> TokenResponse:
    """Return the tokens of a consent; raise ``GrantRefused`` or what ``vendors.calls`` raises."""
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri}
    return _request_tokens(provider, "exchange", form | ({"code_verifier": verifier} if verifier else {}))


def refresh_tokens(provider: str, token: str) -> TokenResponse:
    """Return new tokens; raise ``GrantRefused`` or what ``vendors.calls`` raises. Call it outside of transactions."""
    return _request_tokens(provider, "refresh", {"grant_type": "refresh_token", "refresh_token": token})


def fetch_account(provider: str, access: str) -> str:
    """Return the account of HubSpot's access token, where the token response did not name it."""
    # developers.hubspot.com/docs/api-reference/2026-03/authentication/oauth-tokens/token-introspect
    url = f"{settings.CONNECTORS[provider]['token_url']}/introspect"
    body = _request(provider, "introspect", url, {"token": access, "token_type_hint": "access_token"})
    return OAUTH_CONFIGS[provider].read_account(body)


def revoke_grant(provider: str, token: str) -> None:
    """Revoke a grant; raise ``GrantRefused`` where it is gone already, or what ``vendors.calls`` raises."""
    url, form = settings.CONNECTORS[provider]["revoke_url"], {"token": token}
    if provider == "hubspot":
        form |= {"token_type_hint": "refresh_token"}
    _request(provider, "revoke", url, form, seconds=REVOKE_SECONDS)


def _request_tokens(provider: str, operation: str, form: dict[str, str]) -> TokenResponse:
    body = _request(provider, operation, settings.CONNECTORS[provider]["token_url"], form)
    scopes = body.get("scopes", body.get("scope"))
    if isinstance(scopes, str):
        scopes = scopes.split()
    try:
        seconds = float(body.get("expires_in") or 0)
    except (TypeError, ValueError):
        seconds = 0
    return TokenResponse(
        access=str(body["access_token"]),
        refresh=str(body.get("refresh_token") or ""),
        seconds=seconds if 0 < seconds < 366 * 86400 else DEFAULT_TOKEN_SECONDS,
        scopes=frozenset(map(str, scopes)) if isinstance(scopes, list) else None,
        account=OAUTH_CONFIGS[provider].read_account(body),
    )


def _request(
    provider: str, operation: str, url: str, form: dict[str, str], seconds: float | None = None
) -> dict[str, Any]:
    """Return the response's JSON object; that of the token endpoint itself has tokens."""
    config = settings.CONNECTORS[provider]
    # Keyed by the secret too: calls held back by a wrong secret continue as soon as the right one is set.
    vendor = Vendor(provider, f"{config['client_id']}:{config['client_secret']}", REQUESTS_PER_MINUTE, part="oauth")
    with calls.guarded_call(vendor, operation):
        response = _post(provider, url, form, seconds or TIMEOUT_SECONDS)
        try:
            body = json.loads(response.content or b"{}")
        except (ValueError, RecursionError):
            body = {}
        body, refused = body if isinstance(body, dict) else {}, None
        if response.status_code in (400, 401, 403):
            codes = _error_codes(body)
            refused = next((code for code in codes if code in GRANT_ERRORS or code in CLIENT_ERRORS), None)
        if refused is None:
            response.raise_for_status()
            if url == config["token_url"]:
                _check_tokens(body)
    if refused in CLIENT_ERRORS:
        log.error("Provider %s refuses this installation's OAuth client: %s.", provider, refused)
        raise Wait(CLIENT_REFUSED_SECONDS, OAUTH_CLIENT_REFUSED)
    if refused:
        raise GrantRefused(refused)
    return body


def _post(provider: str, url: str, form: dict[str, str], seconds: float) -> httpx.Response:
    config, oauth = settings.CONNECTORS[provider], OAUTH_CONFIGS[provider]
    client = (config["client_id"], config["client_secret"])
    body = form if oauth.basic_auth else {**form, "client_id": client[0], "client_secret": client[1]}
    as_json = oauth.revokes_in_json and url == config["revoke_url"]
    transport = http_deadline.deadline_transport(httpx, httpcore, seconds)
    with httpx.Client(transport=transport, timeout=seconds, trust_env=False, follow_redirects=False) as http:
        return http.post(
            url,
            json=body if as_json else None,
            data=None if as_json else body,
            auth=client if oauth.basic_auth else httpx.USE_CLIENT_DEFAULT,
            headers={"Accept": "application/json"},
        )


def _error_codes(body: Mapping[str, Any]) -> Iterator[str]:
    for name in ("error", "status", "category"):
        code = body.get(name)
        if isinstance(code, str) and _CODE.fullmatch(code):
            yield code
    errors = body.get("errors")
    for error in errors if isinstance(errors, list) else []:
        if isinstance(error, dict) and error.get("in") in PARAMETER_ERRORS:
            yield PARAMETER_ERRORS[error["in"]]


def _check_tokens(body: Mapping[str, Any]) -> None:
    for name in ("access_token", "refresh_token"):
        token = body.get(name)
        if token is None and name == "refresh_token":
            continue
        if not isinstance(token, str) or not 0 < len(token) <= MOST_TOKEN_CHARS or not token.isprintable():
            raise InvalidResponse(f"The answer has no usable {name}.")
