"""Connection of a tenant's account: consent and its state, exchange of the code, the source and its first full sync."""

import base64
import hashlib
import re
import secrets
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode
from uuid import UUID, uuid4

from django.conf import settings
from django.db import connection, transaction
from django.utils.crypto import constant_time_compare, salted_hmac

from accounts.error_codes import ApiError, not_found
from integrations.error_codes import (
    CODE_REFUSED,
    CONSENT_REFUSED,
    OAUTH_CLIENT_REFUSED,
    PROVIDER_NOT_CONFIGURED,
    PROVIDER_UNREACHABLE,
    SCOPES_MISSING,
    STATE_MISMATCH,
    SYNC_ALREADY_ACTIVE,
)
from integrations.models import ConnectedSource, IngestionJob, VaultToken
from integrations.oauth import token_endpoint, token_vault
from integrations.oauth.token_endpoint import OAUTH_CONFIGS, GrantRefused, TokenResponse, uses_pkce
from integrations.sync import sync_jobs
from jobs.outcomes import StageFailure, Wait
from vendors import calls
from vendors.error_codes import VENDOR_REFUSES_KEY

FIXTURE_ACCOUNT = "recorded"  # the account of fixture mode
STATE_SECONDS = 30 * 60  # to sign in at the provider, find the second factor, and choose the account
_STATE_SALT = "integrations.oauth.state"
_NUMBER = re.compile(r"[0-9]{1,32}")

CREATE = """
INSERT INTO connected_sources (id, user_id, provider, account) VALUES (%s, %s, %s, %s)
ON CONFLICT (user_id, provider, account) DO NOTHING
"""
# A refresh under way finds its lease gone, and its tokens do not replace those that the tenant just granted.
REVIVE = """
UPDATE connected_sources SET status = 'active', status_message = NULL, transport = %(transport)s, scopes = %(scopes)s,
    capabilities = '{}', access_token_vault_id = %(access)s, refresh_token_vault_id = %(refresh)s,
    token_expires_at = clock_timestamp() + make_interval(secs => %(seconds)s),
    refresh_lease = NULL, refresh_lease_until = NULL, updated_at = clock_timestamp()
WHERE id = %(id)s
"""


@dataclass(frozen=True, slots=True)
class ConsentRequest:
    """The consent page's address, and what the tenant's session keeps until they return."""

    url: str
    state: str
    verifier: str = field(repr=False)


def start_consent(*, user_id: UUID, provider: str, redirect_uri: str) -> ConsentRequest:
    """Return the consent page's address. Raises ``ApiError`` PROVIDER_NOT_CONFIGURED."""
    config = _client_config(provider)
    state = make_state(user_id, provider)
    verifier = secrets.token_urlsafe(48) if uses_pkce(provider) else ""
    params = {
        "response_type": "code",
        "client_id": config["client_id"],
        "redirect_uri": redirect_uri,
        "state": state,
        **({"scope": config["scopes"]} if config["scopes"] else {}),  # HubSpot's MCP apps have none
        **OAUTH_CONFIGS[provider].consent_params,
    }
    if verifier:
        digest = hashlib.sha256(verifier.encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        params |= {"code_challenge": challenge, "code_challenge_method": "S256"}
    return ConsentRequest(f"{config['authorize_url']}?{urlencode(params)}", state, verifier)


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

    An account that was connected before is revived. Raises ``ApiError``: STATE_MISMATCH, CONSENT_REFUSED (no code came
    back), CODE_REFUSED, SCOPES_MISSING, PROVIDER_NOT_CONFIGURED, PROVIDER_UNREACHABLE.
    """
    config = _client_config(provider)
    is_valid = is_valid_state(state, user_id=user_id, provider=provider)
    if not is_valid or not constant_time_compare(state, expected_state):
        raise ApiError(STATE_MISMATCH)
    if not code:
        raise ApiError(CONSENT_REFUSED)
    in_callback = OAUTH_CONFIGS[provider].account_in_callback
    if in_callback and not _NUMBER.fullmatch(account):
        raise ApiError(CODE_REFUSED, "The provider did not say which company was chosen.", field="realmId")
    tokens = _exchange_code(provider, code, redirect_uri=redirect_uri, verifier=verifier)
    if tokens.scopes is not None and set(config["scopes"].split()) - tokens.scopes:
        raise ApiError(SCOPES_MISSING, "Not everything that we need was allowed. Connect again and allow all of it.")
    if not tokens.refresh:
        raise ApiError(CODE_REFUSED, "The provider gave no lasting access. Remove our app there, then connect again.")
    account = account if in_callback else tokens.account or _fetch_account(provider, tokens)
    return connect_account(user_id, provider, account, tokens)


def connect_fixtures(*, user_id: UUID, provider: str) -> ConnectedSource:
    """Connect recorded responses, where INTEGRATIONS_USE_FIXTURES is set, without consent or calls."""
    if provider not in settings.CONNECTORS:
        raise not_found()
    if not settings.INTEGRATIONS_USE_FIXTURES:
        raise ApiError(PROVIDER_NOT_CONFIGURED)
    return connect_account(user_id, provider, FIXTURE_ACCOUNT, None)


# --- state: binds a consent to its tenant, provider and time --------------------------------------------------------
def make_state(user_id: UUID, provider: str) -> str:
    nonce = f"{secrets.token_urlsafe(18)}.{int(time.time())}"
    return f"{nonce}.{_sign_state(user_id, provider, nonce)}"


def is_valid_state(state: str, *, user_id: UUID, provider: str) -> bool:
    """Return whether this tenant got the state for this provider less than half an hour ago."""
    nonce, _, signature = state.rpartition(".")
    if not constant_time_compare(signature, _sign_state(user_id, provider, nonce)):
        return False
    return time.time() - int(nonce.rpartition(".")[2]) < STATE_SECONDS


def _sign_state(user_id: UUID, provider: str, nonce: str) -> str:
    return salted_hmac(_STATE_SALT, f"{user_id}:{provider}:{nonce}", algorithm="sha256").hexdigest()


# --- the source -----------------------------------------------------------------------------------------------------
def connect_account(user_id: UUID, provider: str, account: str, tokens: TokenResponse | None) -> ConnectedSource:
    """Create or revive the account's source and start a full sync. ``tokens`` None: recorded responses."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(CREATE, [uuid4(), user_id, provider, account])
        sources = ConnectedSource.objects.select_for_update(no_key=True)
        source = sources.get(user_id=user_id, provider=provider, account=account)
        params: dict[str, Any] = {
            "id": source.pk, "transport": "rest", "scopes": "", "access": None, "refresh": None, "seconds": None,
        }  # fmt: skip
        if tokens:
            params |= {
                "transport": settings.CONNECTORS[provider]["transport"],
                "scopes": " ".join(sorted(tokens.scopes or settings.CONNECTORS[provider]["scopes"].split())),
                "access": token_vault.store_token(source, VaultToken.Kind.ACCESS, tokens.access),
                "refresh": token_vault.store_token(source, VaultToken.Kind.REFRESH, tokens.refresh),
                "seconds": tokens.seconds,
            }
        cursor.execute(REVIVE, params)
        token_vault.orphan_replaced_tokens(source.pk)
        source.refresh_from_db()
        try:
            with transaction.atomic():
                sync_jobs.start_sync(source, IngestionJob.Kind.FULL, by=str(source.user_id))
        except ApiError as error:
            if error.code != SYNC_ALREADY_ACTIVE:  # that sync continues with the new tokens
                raise
    return source


# --- the provider ---------------------------------------------------------------------------------------------------
def _client_config(provider: str) -> dict[str, str]:
    if provider not in settings.CONNECTORS:
        raise not_found()
    if not token_endpoint.is_configured(provider):
        raise ApiError(PROVIDER_NOT_CONFIGURED)
    config: dict[str, str] = settings.CONNECTORS[provider]
    return config


def _exchange_code(provider: str, code: str, *, redirect_uri: str, verifier: str) -> TokenResponse:
    try:
        return token_endpoint.exchange_code(provider, code, redirect_uri=redirect_uri, verifier=verifier)
    except (GrantRefused, calls.VendorRefused) as refused:
        raise ApiError(CODE_REFUSED) from refused
    except (Wait, StageFailure) as failure:
        if isinstance(failure, Wait) and failure.reason in (OAUTH_CLIENT_REFUSED, VENDOR_REFUSES_KEY):
            raise ApiError(PROVIDER_NOT_CONFIGURED) from failure
        raise ApiError(PROVIDER_UNREACHABLE, retry_after=5) from failure


def _fetch_account(provider: str, tokens: TokenResponse) -> str:
    """Return the account of the tokens where the provider can name it; "" is one account for each provider."""
    if provider != "hubspot":
        return ""
    try:
        return token_endpoint.fetch_account(provider, tokens.access)
    except GrantRefused as refused:
        raise ApiError(CODE_REFUSED) from refused
    except (Wait, StageFailure) as failure:
        raise ApiError(PROVIDER_UNREACHABLE, retry_after=5) from failure
