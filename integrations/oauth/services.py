"""Connecting a tenant's account: consent, tokens, the first full sync."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from dataclasses import dataclass, field
from urllib.parse import urlencode
from uuid import UUID

from django.conf import settings
from django.utils.crypto import constant_time_compare

from accounts.errors import ApiError, not_found
from integrations.error_codes import (
    CODE_REFUSED,
    CONSENT_REFUSED,
    PROVIDER_NOT_CONFIGURED,
    PROVIDER_UNREACHABLE,
    SCOPES_MISSING,
    STATE_MISMATCH,
)
from integrations.models import ConnectedSource
from integrations.oauth import connect_source, token_endpoint
from integrations.oauth import state as states
from integrations.oauth.provider_config import OAUTH_CONFIGS, uses_pkce
from integrations.oauth.token_endpoint import GrantRefused, TokenResponse
from jobs.outcomes import StageFailure, Wait
from vendors import guard
from vendors.error_codes import VENDOR_REFUSES_KEY

FIXTURE_ACCOUNT = "recorded"  # the account of fixture mode
_NUMBER = re.compile(r"[0-9]{1,32}")


@dataclass(frozen=True, slots=True)
class ConsentRequest:
    """Where the tenant consents, and what their session keeps until they are back."""

    url: str
    state: str
    verifier: str = field(repr=False)


def start_consent(*, user_id: UUID, provider: str, redirect_uri: str) -> ConsentRequest:
    """Return the consent page's address. Raises ``Refused`` PROVIDER_NOT_CONFIGURED."""
    config = _config(provider)
    state = states.make_state(user_id, provider)
    verifier = secrets.token_urlsafe(48) if uses_pkce(provider) else ""
    asked = {
        "response_type": "code",
        "client_id": config["client_id"],
        "redirect_uri": redirect_uri,
        "state": state,
        **({"scope": config["scopes"]} if config["scopes"] else {}),  # HubSpot's MCP apps are asked for none
        **OAUTH_CONFIGS[provider].consent_params,
        **({"code_challenge": _challenge(verifier), "code_challenge_method": "S256"} if verifier else {}),
    }
    return ConsentRequest(f"{config['authorize_url']}?{urlencode(asked)}", state, verifier)


def complete_consent(
    *,
    user_id: UUID,
    provider: str,
    code: str,
    state: str,
    expected_state: str,
    verifier: str,
    redirect_uri: str,
    account: str = "",
) -> ConnectedSource:
    """Exchange the callback's code for tokens, keep them, and start a full sync. Call it outside of transactions.

    An account that was connected before is revived. Raises ``Refused``: STATE_MISMATCH, CONSENT_REFUSED (no code came
    back), CODE_REFUSED, SCOPES_MISSING, PROVIDER_NOT_CONFIGURED, PROVIDER_UNREACHABLE.
    """
    _config(provider)
    known = states.is_valid_state(state, user_id=user_id, provider=provider)
    if not known or not constant_time_compare(state, expected_state):
        raise ApiError(STATE_MISMATCH, "This consent was not begun here, or too long ago. Begin again.")
    if not code:
        raise ApiError(CONSENT_REFUSED, "The provider was not allowed to let us in.")
    in_callback = OAUTH_CONFIGS[provider].account_in_callback
    if in_callback and not _NUMBER.fullmatch(account):
        raise ApiError(CODE_REFUSED, "The provider did not say which company was chosen.", field="realmId")
    tokens = _exchanged(provider, code, redirect_uri=redirect_uri, verifier=verifier)
    _check(provider, tokens)
    account = account if in_callback else tokens.account or _asked_account(provider, tokens)
    return connect_source.connect_account(user_id, provider, account, tokens)


def connect_fixtures(*, user_id: UUID, provider: str) -> ConnectedSource:
    """Connect recorded answers, where INTEGRATIONS_USE_FIXTURES says so: nobody consents, nothing is called."""
    if provider not in settings.CONNECTORS:
        raise not_found()
    if not settings.INTEGRATIONS_USE_FIXTURES:
        raise _not_configured()
    return connect_source.connect_account(user_id, provider, FIXTURE_ACCOUNT, None)


def _config(provider: str) -> dict[str, str]:
    if provider not in settings.CONNECTORS:
        raise not_found()
    if not token_endpoint.is_configured(provider):
        raise _not_configured()
    config: dict[str, str] = settings.CONNECTORS[provider]
    return config


def _not_configured() -> ApiError:
    detail = "This provider is not set up here. Our staff must see to it first."
    return ApiError(PROVIDER_NOT_CONFIGURED, detail)


def _challenge(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def _exchanged(provider: str, code: str, *, redirect_uri: str, verifier: str) -> TokenResponse:
    try:
        return token_endpoint.exchange_code(provider, code, redirect_uri=redirect_uri, verifier=verifier)
    except GrantRefused as refused:
        raise _code_refused() from refused
    except Wait as postponed:
        raise _refused_later(postponed.reason) from postponed
    except StageFailure as failure:
        raise (_code_refused() if isinstance(failure, guard.VendorRefused) else _refused_later("")) from failure


def _code_refused() -> ApiError:
    return ApiError(CODE_REFUSED)


def _refused_later(reason: str) -> ApiError:
    if reason in ("OAUTH_CLIENT_REFUSED", VENDOR_REFUSES_KEY):
        return _not_configured()
    detail = "The provider cannot be reached at present. Try again in a moment."
    return ApiError(PROVIDER_UNREACHABLE, detail, retry_after=5)


def _check(provider: str, tokens: TokenResponse) -> None:
    needed = set(settings.CONNECTORS[provider]["scopes"].split())
    if tokens.scopes is not None and needed - tokens.scopes:
        raise ApiError(SCOPES_MISSING, "Not everything that we need was allowed. Connect again and allow all of it.")
    if not tokens.refresh:
        raise ApiError(CODE_REFUSED, "The provider gave no lasting access. Remove our app there, then connect again.")


def _asked_account(provider: str, tokens: TokenResponse) -> str:
    """Ask whose tokens these are, where the provider can tell; "" is one account for each provider."""
    if provider != "hubspot":
        return ""
    try:
        return token_endpoint.fetch_account(provider, tokens.access)
    except GrantRefused as refused:
        raise _code_refused() from refused
    except (Wait, StageFailure) as failure:
        raise _refused_later("") from failure
