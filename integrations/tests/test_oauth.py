"""Connecting an account by the provider's own consent page (issue 6, point 7)."""

import logging
from typing import Any

import pytest

from accounts.errors import ApiError
from integrations import disconnect
from integrations.models import ConnectedSource, IngestionJob, VaultToken
from integrations.oauth import authorization_flow, token_refresh
from integrations.tests.consents import BACK, connect, consent_params, refusal_code
from integrations.tests.grants import PROVIDERS, database_dump, fault_name, refresh_token
from testing.concurrency import run_concurrently
from testing.fakes.faults import http_error
from testing.fakes.oauth import CLIENT_SECRET, MARK, OAuthServer
from testing.personas import Person

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_consent_connects_an_account_and_starts_a_full_sync(
    ana: Person, oauth: OAuthServer, provider: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    source = connect(ana, provider)

    token = token_refresh.fresh_token(source.pk)[1]
    job = IngestionJob.objects.get()
    assert oauth.accepts(token)
    assert oauth.requests == 2  # the page and the exchange
    assert (source.user_id, source.provider, source.status, source.transport) == (ana.id, provider, "active", "rest")
    assert (job.source_id, job.kind, job.status) == (source.pk, "full_sync", "queued")
    assert len(source.account) == (32 if provider in ("google_drive", "gmail") else 4)
    for secret in (MARK, CLIENT_SECRET):
        assert secret not in database_dump() + caplog.text
        assert secret.encode().hex() not in database_dump()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_consent_page_gets_its_providers_parameters(ana: Person, oauth: OAuthServer, provider: str) -> None:
    question = consent_params(authorization_flow.start_consent(user_id=ana.id, provider=provider, redirect_uri=BACK))

    google = provider in ("google_drive", "gmail")
    assert question["response_type"] == "code"
    assert question["redirect_uri"] == BACK
    assert (question.get("code_challenge_method") == "S256") == google
    assert (question.get("access_type"), question.get("prompt")) == (("offline", "consent") if google else (None, None))


def test_hubspots_mcp_apps_use_pkce(ana: Person, oauth: OAuthServer, settings: Any) -> None:
    settings.CONNECTORS["hubspot"]["transport"] = "mcp"

    source = connect(ana, "hubspot")

    assert source.transport == "mcp"
    assert refusal_code(ana, "hubspot", verifier="another") == "CODE_REFUSED"


def test_the_code_is_refused_without_its_verifier(ana: Person, oauth: OAuthServer) -> None:
    assert refusal_code(ana, "gmail", verifier="") == "CODE_REFUSED"
    assert refusal_code(ana, "gmail", verifier="guessed") == "CODE_REFUSED"
    assert not ConnectedSource.objects.exists()


def test_a_state_is_bound_to_its_tenant_provider_and_time(
    ana: Person, ben: Person, oauth: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bens = authorization_flow.start_consent(user_id=ben.id, provider="hubspot", redirect_uri=BACK).state
    others = authorization_flow.start_consent(user_id=ana.id, provider="gmail", redirect_uri=BACK).state
    codes = [
        refusal_code(ana, "hubspot", state="forged"),
        refusal_code(ana, "hubspot", state="", expected_state=""),
        refusal_code(ana, "hubspot", expected_state="another"),
        refusal_code(ana, "hubspot", state=bens, expected_state=bens),
        refusal_code(ana, "hubspot", state=others, expected_state=others),
    ]
    monkeypatch.setattr(authorization_flow, "STATE_SECONDS", -1)
    codes.append(refusal_code(ana, "hubspot"))

    assert codes == ["STATE_MISMATCH"] * 6
    assert not oauth.asked


def test_a_refused_consent_connects_nothing(ana: Person, oauth: OAuthServer) -> None:
    oauth.declines = True

    assert refusal_code(ana, "hubspot") == "CONSENT_REFUSED"


def test_a_code_is_exchanged_once(ana: Person, oauth: OAuthServer) -> None:
    assert refusal_code(ana, "quickbooks", code="used") == "CODE_REFUSED"
    assert refusal_code(ana, "hubspot", redirect_uri="https://elsewhere.example.org") == "CODE_REFUSED"


@pytest.mark.parametrize("account", ["", "12/../13", "x"])
def test_quickbooks_account_comes_from_the_callback_only(ana: Person, oauth: OAuthServer, account: str) -> None:
    assert refusal_code(ana, "quickbooks", account=account) == "CODE_REFUSED"


def test_a_consent_with_missing_scopes_is_refused(ana: Person, oauth: OAuthServer) -> None:
    oauth.allows = ["openid"]

    assert [refusal_code(ana, provider) for provider in ("hubspot", "gmail")] == ["SCOPES_MISSING"] * 2


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (http_error(503), "PROVIDER_UNREACHABLE"),
        ("reset", "PROVIDER_UNREACHABLE"),
        ("html-200", "PROVIDER_UNREACHABLE"),
        (http_error(429), "PROVIDER_UNREACHABLE"),
        (http_error(401, code="invalid_client"), "PROVIDER_NOT_CONFIGURED"),
        (http_error(400, code="invalid_request"), "CODE_REFUSED"),
    ],
    ids=fault_name,
)
def test_a_failing_exchange_raises_a_readable_error(ana: Person, oauth: OAuthServer, kind: Any, code: str) -> None:
    oauth.inject_fault("POST *", kind)

    assert refusal_code(ana, "gmail") == code
    assert not ConnectedSource.objects.exists()


def test_an_unconfigured_provider_offers_no_consent(ana: Person, oauth: OAuthServer, settings: Any) -> None:
    settings.CONNECTORS["hubspot"]["client_id"] = ""
    refused = []
    for provider in ("hubspot", "salesforce"):
        with pytest.raises(ApiError) as error:
            authorization_flow.start_consent(user_id=ana.id, provider=provider, redirect_uri=BACK)
        refused.append(error.value.code)

    assert refused == ["PROVIDER_NOT_CONFIGURED", "NOT_FOUND"]


def test_hubspots_account_is_introspected_when_the_response_omits_it(
    ana: Person, oauth: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = oauth._tokens

    def silent(*args: Any, **how: Any) -> Any:
        answer = honest(*args, **how)
        return type(answer)(200, answer.body.replace(b'"hub_id"', b'"hub"'), answer.headers)

    monkeypatch.setattr(oauth, "_tokens", silent)

    assert connect(ana, "hubspot").account == "1001"
    assert oauth.asked["hubspot:introspect"] == 1


def test_connecting_again_revives_the_same_source(ana: Person, oauth: OAuthServer) -> None:
    first = connect(ana, "hubspot")
    IngestionJob.objects.update(status="failed")
    oauth.revoke_refresh_token(refresh_token(first))
    token_refresh.expire_token(first.pk, first.token_expires_at)
    with pytest.raises(token_refresh.SourceBroken):
        token_refresh.fresh_token(first.pk)

    second = connect(ana, "hubspot")

    assert second.pk == first.pk
    assert (second.status, second.status_message) == ("active", None)
    assert oauth.accepts(token_refresh.fresh_token(second.pk)[1])
    assert sorted(IngestionJob.objects.values_list("status", flat=True)) == ["failed", "queued"]
    assert VaultToken.objects.filter(orphaned_at__isnull=True).count() == 2


def test_reconnecting_during_a_sync_lets_it_continue(ana: Person, oauth: OAuthServer) -> None:
    connect(ana, "hubspot")

    connect(ana, "hubspot")

    assert IngestionJob.objects.get().status == "queued"


def test_two_accounts_are_two_sources_and_two_tenants_share_none(ana: Person, ben: Person, oauth: OAuthServer) -> None:
    connect(ana, "gmail")
    connect(ben, "gmail")
    oauth.person = "1002"
    connect(ana, "gmail")

    assert ConnectedSource.objects.count() == 3
    assert len(set(ConnectedSource.objects.values_list("account", flat=True))) == 2


def test_two_consents_of_one_account_at_once_are_one_source(ana: Person, oauth: OAuthServer) -> None:
    sources = run_concurrently(*[lambda: connect(ana, "quickbooks")] * 4)

    assert len({source.pk for source in sources}) == 1
    assert IngestionJob.objects.count() == 1


def test_fixtures_are_connected_in_fixture_mode_only(ana: Person, oauth: OAuthServer, settings: Any) -> None:
    with pytest.raises(ApiError, match="PROVIDER_NOT_CONFIGURED"):
        authorization_flow.connect_fixtures(user_id=ana.id, provider="gmail")

    settings.INTEGRATIONS_USE_FIXTURES = True
    source = authorization_flow.connect_fixtures(user_id=ana.id, provider="gmail")

    assert (source.status, IngestionJob.objects.get().kind) == ("active", "full_sync")
    assert token_refresh.fresh_token(source.pk)[1] == "recorded"
    assert disconnect.disconnect_source(source, by=ana.user) == disconnect.GrantOutcome.REVOKED
    assert oauth.requests == 0
