"""Connection of a tenant's account: consent and its state, exchange of the code, the source and its first full sync."""

import base64
import hashlib
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode
from uuid import UUID, uuid4

from django.conf import settings
from django.core.signing import BadSignature, TimestampSigner
from django.db import connection, transaction
from django.utils.crypto import constant_time_compare

from accounts.common_error_codes import not_found
from accounts.errors import ApiError
from integrations import error_codes
from integrations.models import ConnectedSource, IngestionJob, VaultToken
from integrations.oauth import token_endpoint, token_vault
from integrations.oauth.token_endpoint import OAUTH_CONFIGS, GrantRefused, TokenResponse, uses_pkce
from integrations.sync import lifecycle
from jobs.outcomes import StageFailure, Wait
from vendors import calls
from vendors.error_codes import VENDOR_REFUSES_KEY

FIXTURE_ACCOUNT = "recorded"  # the account of fixture mode
STATE_SECONDS = 30 * 60  # to sign in at the provider, find the second factor, and choose the account
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
    state = _state_signer(user_id, provider).sign(secrets.token_urlsafe(18))
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
    try:
        _state_signer(user_id, provider).unsign(state, max_age=STATE_SECONDS)
    except BadSignature:
        raise ApiError(error_codes.STATE_MISMATCH) from None
    if not constant_time_compare(state, expected_state):
        raise ApiError(error_codes.STATE_MISMATCH)
    if not code:
        raise ApiError(error_codes.CONSENT_REFUSED)
    in_callback = OAUTH_CONFIGS[provider].account_in_callback
    if in_callback and not _NUMBER.fullmatch(account):
        raise ApiError(error_codes.CODE_REFUSED, "The provider did not say which company was chosen.", field="realmId")
    with _provider_errors():
        tokens = token_endpoint.exchange_code(provider, code, redirect_uri=redirect_uri, verifier=verifier)
    if tokens.scopes is not None and set(config["scopes"].split()) - tokens.scopes:
        raise ApiError(
            error_codes.SCOPES_MISSING, "Not everything that we need was allowed. Connect again and allow all of it."
        )
    if not tokens.refresh:
        raise ApiError(
            error_codes.CODE_REFUSED, "The provider gave no lasting access. Remove our app there, then connect again."
        )
    if not in_callback:
        account = tokens.account
        if not account and provider == "hubspot":  # of the others, "" is one account for each provider
            with _provider_errors():
                account = token_endpoint.fetch_account(provider, tokens.access)
    return connect_account(user_id, provider, account, tokens)


def connect_fixtures(*, user_id: UUID, provider: str) -> ConnectedSource:
    """Connect recorded responses, where INTEGRATIONS_USE_FIXTURES is set, without consent or calls."""
    if provider not in settings.CONNECTORS:
        raise not_found()
    if not settings.INTEGRATIONS_USE_FIXTURES:
        raise ApiError(error_codes.PROVIDER_NOT_CONFIGURED)
    return connect_account(user_id, provider, FIXTURE_ACCOUNT, None)


def _state_signer(user_id: UUID, provider: str) -> TimestampSigner:
    """Return the signer of states, which binds a consent to its tenant, provider and time."""
    return TimestampSigner(salt=f"integrations.oauth.state:{user_id}:{provider}")


def connect_account(user_id: UUID, provider: str, account: str, tokens: TokenResponse | None) -> ConnectedSource:
    """Create or revive the account's source and start a full sync. ``tokens`` None: recorded responses."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(CREATE, [uuid4(), user_id, provider, account])
        sources = ConnectedSource.objects.select_for_update(no_key=True)
        source = sources.get(user_id=user_id, provider=provider, account=account)
        params: dict[str, Any] = dict.fromkeys(("access", "refresh", "seconds"))
        params |= {"id": source.pk, "transport": "rest", "scopes": ""}
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
                lifecycle.start_sync(source, IngestionJob.Kind.FULL, by=str(source.user_id))
        except ApiError as error:
            if error.code != error_codes.SYNC_ALREADY_ACTIVE:  # that sync continues with the new tokens
                raise
    return source


def _client_config(provider: str) -> dict[str, str]:
    if provider not in settings.CONNECTORS:
        raise not_found()
    if not token_endpoint.is_configured(provider):
        raise ApiError(error_codes.PROVIDER_NOT_CONFIGURED)
    config: dict[str, str] = settings.CONNECTORS[provider]
    return config


@contextmanager
def _provider_errors() -> Iterator[None]:
    """Raise ``ApiError`` for what a token endpoint raises."""
    try:
        yield
    except (GrantRefused, calls.VendorRefused) as refused:
        raise ApiError(error_codes.CODE_REFUSED) from refused
    except (Wait, StageFailure) as failure:
        if isinstance(failure, Wait) and failure.reason in (error_codes.OAUTH_CLIENT_REFUSED, VENDOR_REFUSES_KEY):
            raise ApiError(error_codes.PROVIDER_NOT_CONFIGURED) from failure
        raise ApiError(error_codes.PROVIDER_UNREACHABLE, retry_after=5) from failure
