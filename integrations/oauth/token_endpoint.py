"""The providers' token endpoints: a code or a refresh token in, tokens out; and giving a grant back."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpcore
import httpx
from django.conf import settings

from integrations.error_codes import OAUTH_CLIENT_REFUSED
from integrations.oauth.provider_config import OAUTH_CONFIGS
from jobs.outcomes import Wait
from vendors import guard, http_deadline
from vendors.guard import InvalidResponse
from vendors.vendor import Vendor

log = logging.getLogger("accessa.integrations")

TIMEOUT_SECONDS = 15.0  # three of them are over before a refresh lease is: two holders never call at once
REVOKE_SECONDS = 5.0  # a person waits for it
REQUESTS_PER_MINUTE = 600
DEFAULT_TOKEN_SECONDS = 1800.0  # HubSpot's tokens live no longer: assumed where the answer does not say
MOST_TOKEN_CHARS = 4096
CLIENT_REFUSED_SECONDS = 60.0

# VENDORS §7: RFC 6749 §5.2, and HubSpot's own words for the same.
GRANT_ERRORS = {"invalid_grant", "invalid_token", "BAD_REFRESH_TOKEN", "BAD_AUTH_CODE"}
# The client is refused, so every tenant's calls are: no tenant could mend it by connecting again.
CLIENT_ERRORS = {"invalid_client", "unauthorized_client", "BAD_CLIENT_ID", "BAD_CLIENT_SECRET", "deleted_client"}
# HubSpot's standard errors have no code of their own for it: they name the parameter.
PARAMETER_ERRORS = {"refresh_token": "BAD_REFRESH_TOKEN", "token": "BAD_REFRESH_TOKEN", "code": "BAD_AUTH_CODE"}
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class GrantRefused(Exception):
    """The provider takes the code or the refresh token no more. ``code`` is its word for it, never its prose."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class TokenResponse:
    """What a token endpoint gave. ``refresh`` "" means that the one in use stays."""

    access: str = field(repr=False)
    refresh: str = field(repr=False)
    seconds: float
    scopes: frozenset[str] | None = None  # None: those that were asked for (RFC 6749 §5.1)
    account: str = ""


def is_configured(provider: str) -> bool:
    config = settings.CONNECTORS[provider]
    return bool(config["client_id"] and config["client_secret"])


def exchange_code(provider: str, code: str, *, redirect_uri: str, verifier: str) -> TokenResponse:
    """Return the tokens of a consent; raise ``GrantRefused`` or what ``vendors.guard`` raises."""
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri}
    return _tokens(provider, "exchange", form | ({"code_verifier": verifier} if verifier else {}))


def refresh_tokens(provider: str, token: str) -> TokenResponse:
    """Return new tokens; raise ``GrantRefused`` or what ``vendors.guard`` raises. Call it outside of transactions."""
    return _tokens(provider, "refresh", {"grant_type": "refresh_token", "refresh_token": token})


def fetch_account(provider: str, access: str) -> str:
    """Ask HubSpot whose access token it is, where its answer did not say."""
    # developers.hubspot.com/docs/api-reference/2026-03/authentication/oauth-tokens/token-introspect
    url = f"{settings.CONNECTORS[provider]['token_url']}/introspect"
    said = _ask(provider, "introspect", url, {"token": access, "token_type_hint": "access_token"}, read=False)
    return OAUTH_CONFIGS[provider].read_account(said)


def revoke_grant(provider: str, token: str) -> None:
    """Give a grant back; raise ``GrantRefused`` where it is gone already, or what ``vendors.guard`` raises."""
    url, form = settings.CONNECTORS[provider]["revoke_url"], {"token": token}
    if provider == "hubspot":
        form |= {"token_type_hint": "refresh_token"}
    _ask(provider, "revoke", url, form, seconds=REVOKE_SECONDS, read=False)


def _tokens(provider: str, operation: str, form: dict[str, str]) -> TokenResponse:
    said = _ask(provider, operation, settings.CONNECTORS[provider]["token_url"], form)
    return TokenResponse(
        access=str(said["access_token"]),
        refresh=str(said.get("refresh_token") or ""),
        seconds=_seconds(said.get("expires_in")),
        scopes=_scopes(said),
        account=OAUTH_CONFIGS[provider].read_account(said),
    )


def _ask(
    provider: str, operation: str, url: str, form: dict[str, str], *, seconds: float | None = None, read: bool = True
) -> dict[str, Any]:
    """Return the answer's JSON object, checked for its tokens if they are to be ``read``."""
    config = settings.CONNECTORS[provider]
    # By the secret too: what a wrong one has held back goes on as soon as the right one is set.
    vendor = Vendor(provider, f"{config['client_id']}:{config['client_secret']}", REQUESTS_PER_MINUTE, part="oauth")
    with guard.guarded_call(vendor, operation):
        answer = _post(provider, url, form, seconds or TIMEOUT_SECONDS)
        said, refused = _json(answer), None
        if answer.status_code in (400, 401, 403):
            refused = next((code for code in _codes(said) if code in GRANT_ERRORS or code in CLIENT_ERRORS), None)
        if refused is None:
            answer.raise_for_status()
            if read:
                _check(said)
    if refused in CLIENT_ERRORS:
        log.error("Provider %s refuses this installation's OAuth client: %s.", provider, refused)
        raise Wait(CLIENT_REFUSED_SECONDS, OAUTH_CLIENT_REFUSED)
    if refused:
        raise GrantRefused(refused)
    return said


def _post(provider: str, url: str, form: dict[str, str], seconds: float) -> httpx.Response:
    config, dialect = settings.CONNECTORS[provider], OAUTH_CONFIGS[provider]
    client = (config["client_id"], config["client_secret"])
    body = form if dialect.basic_auth else {**form, "client_id": client[0], "client_secret": client[1]}
    as_json = dialect.revokes_in_json and url == config["revoke_url"]
    transport = http_deadline.deadline_transport(httpx, httpcore, seconds)
    with httpx.Client(transport=transport, timeout=seconds, trust_env=False, follow_redirects=False) as http:
        return http.post(
            url,
            json=body if as_json else None,
            data=None if as_json else body,
            auth=client if dialect.basic_auth else httpx.USE_CLIENT_DEFAULT,
            headers={"Accept": "application/json"},
        )


def _json(answer: httpx.Response) -> dict[str, Any]:
    try:
        said = json.loads(answer.content or b"{}")
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _codes(said: Mapping[str, Any]) -> Iterator[str]:
    for name in ("error", "status", "category"):
        code = said.get(name)
        if isinstance(code, str) and _CODE.fullmatch(code):
            yield code
    errors = said.get("errors")
    for error in errors if isinstance(errors, list) else []:
        if isinstance(error, dict) and error.get("in") in PARAMETER_ERRORS:
            yield PARAMETER_ERRORS[error["in"]]


def _check(said: Mapping[str, Any]) -> None:
    for name in ("access_token", "refresh_token"):
        token = said.get(name)
        if token is None and name == "refresh_token":
            continue
        if not isinstance(token, str) or not 0 < len(token) <= MOST_TOKEN_CHARS or not token.isprintable():
            raise InvalidResponse(f"The answer has no usable {name}.")


def _seconds(said: Any) -> float:
    try:
        seconds = float(said)
    except (TypeError, ValueError):
        return DEFAULT_TOKEN_SECONDS
    return seconds if 0 < seconds < 366 * 86400 else DEFAULT_TOKEN_SECONDS


def _scopes(said: Mapping[str, Any]) -> frozenset[str] | None:
    found = said.get("scopes", said.get("scope"))
    if isinstance(found, str):
        return frozenset(found.split())
    return frozenset(map(str, found)) if isinstance(found, list) else None
