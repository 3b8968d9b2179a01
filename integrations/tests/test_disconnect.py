"""Disconnect of a source: grant revoked, tokens deleted, records purged (issue 6, point 7)."""

from functools import partial
from typing import Any

import pytest

from accounts.audit.models import AuditEntry
from accounts.errors import ApiError
from integrations import disconnect
from integrations.disconnect import GrantOutcome
from integrations.models import ConnectedSource, IngestionJob, VaultToken
from integrations.oauth import token_refresh, token_vault
from integrations.sync import lifecycle, page_worker, pgmq
from integrations.tests.consents import connect
from integrations.tests.grants import PROVIDERS, connect_source, fault_name, refresh_token
from integrations.transports.responses import source_vendor
from testing.concurrency import run_concurrently
from testing.fakes.faults import http_error
from testing.fakes.oauth import OAuthServer
from testing.personas import Person
from vendors import calls
from vendors.models import Breaker, RateLimit

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_disconnect_revokes_the_grant_deletes_tokens_and_purges_records(
    ana: Person, oauth: OAuthServer, provider: str
) -> None:
    source = connect(ana, provider)
    token = token_refresh.fresh_token(source.pk)[1]

    outcome = disconnect.disconnect_source(source, by=ana.user)

    assert outcome == GrantOutcome.REVOKED
    assert not oauth.accepts(token)
    assert not VaultToken.objects.exists()
    assert source.status == "disconnected"
    assert list(IngestionJob.objects.order_by("created_at").values_list("kind", "status", "error_message")) == [
        ("full_sync", "failed", "SOURCE_DISCONNECTED"),
        ("forget", "queued", None),
    ]
    assert not AuditEntry.objects.exists()
    with pytest.raises(token_refresh.SourceBroken):
        token_refresh.fresh_token(source.pk)


@pytest.mark.parametrize(
    "kind",
    ["refused", http_error(503), "hang", http_error(400), http_error(401, code="invalid_client")],
    ids=fault_name,
)
def test_a_disconnect_deletes_tokens_when_the_provider_is_down(
    ana: Person, oauth: OAuthServer, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("integrations.oauth.token_endpoint.REVOKE_SECONDS", 0.3)
    source = connect(ana, "quickbooks")
    oauth.inject_fault("*revoke", kind)

    outcome = disconnect.disconnect_source(source, by=ana.user)

    assert outcome == GrantOutcome.NOT_REVOKED
    assert source.status == "disconnected"
    assert not VaultToken.objects.exists()
    assert IngestionJob.objects.filter(kind="forget").exists()


def test_a_disconnect_deletes_tokens_that_cannot_be_decrypted(ana: Person, oauth: OAuthServer, settings: Any) -> None:
    source = connect(ana, "hubspot")
    settings.INTEGRATIONS_VAULT_KEYS = ["x" * 40]

    assert disconnect.disconnect_source(source, by=ana.user) == GrantOutcome.NOT_REVOKED

    assert not VaultToken.objects.exists()


def test_an_already_revoked_grant_counts_as_revoked(ana: Person, oauth: OAuthServer) -> None:
    source = connect(ana, "gmail")
    oauth.revoke_refresh_token(refresh_token(source))

    assert disconnect.disconnect_source(source, by=ana.user) == GrantOutcome.REVOKED


def test_googles_grant_is_revoked_with_the_last_of_its_two_sources(ana: Person, oauth: OAuthServer) -> None:
    drive, mail = connect(ana, "google_drive"), connect(ana, "gmail")

    assert disconnect.disconnect_source(drive, by=ana.user) == GrantOutcome.SHARED
    assert oauth.asked["google:revoke"] == 0
    assert oauth.accepts(token_refresh.fresh_token(mail.pk)[1])

    assert disconnect.disconnect_source(mail, by=ana.user) == GrantOutcome.REVOKED
    assert oauth.asked["google:revoke"] == 1


def test_googles_grant_stays_while_another_tenant_has_connected_the_account(
    ana: Person, ben: Person, oauth: OAuthServer
) -> None:
    anas, bens = connect(ana, "gmail"), connect(ben, "gmail")
    assert anas.account == bens.account

    assert disconnect.disconnect_source(anas, by=ana.user) == GrantOutcome.SHARED
    assert oauth.accepts(token_refresh.fresh_token(bens.pk)[1])
    assert disconnect.disconnect_source(bens, by=ben.user) == GrantOutcome.REVOKED


def test_concurrent_disconnects_of_the_last_two_google_sources_revoke_the_grant(
    ana: Person, oauth: OAuthServer
) -> None:
    sources = [connect(ana, provider) for provider in ("google_drive", "gmail")]

    outcomes = run_concurrently(*[partial(disconnect.disconnect_source, source, by=ana.user) for source in sources])

    assert GrantOutcome.REVOKED in outcomes
    assert oauth.asked["google:revoke"] >= 1


def test_a_second_disconnect_changes_nothing(ana: Person, oauth: OAuthServer) -> None:
    source = connect(ana, "hubspot")

    outcomes = run_concurrently(*[lambda: disconnect.disconnect_source(ConnectedSource.objects.get(), by=ana.user)] * 3)

    assert outcomes == [GrantOutcome.REVOKED] * 3
    assert IngestionJob.objects.filter(kind="forget").count() == 1
    assert disconnect.disconnect_source(source, by=ana.user) == GrantOutcome.REVOKED


def test_a_disconnected_account_can_be_connected_at_once(ana: Person, oauth: OAuthServer) -> None:
    old = connect(ana, "hubspot")
    disconnect.disconnect_source(old, by=ana.user)

    new = connect(ana, "hubspot")

    assert new.pk != old.pk
    assert oauth.accepts(token_refresh.fresh_token(new.pk)[1])
    assert ConnectedSource.objects.get(pk=old.pk).status == "disconnected"


def test_a_staff_disconnect_needs_a_reason_and_is_audited(ana: Person, sam: Person, oauth: OAuthServer) -> None:
    source = connect_source(ana, "hubspot", oauth)
    with pytest.raises(ApiError, match="REASON_REQUIRED"):
        disconnect.disconnect_source(source, by=sam.user)
    assert ConnectedSource.objects.get().status == "active"
    assert token_vault.read_token(source.refresh_token_vault_id or source.pk, source)

    disconnect.disconnect_source(source, by=sam.user, reason="Ticket 7")

    entry = AuditEntry.objects.get()
    assert (entry.action, entry.reason, entry.actor_id) == ("sources.disconnect", "Ticket 7", sam.id)
    assert (entry.object_id, entry.tenant_id, entry.details) == (str(source.pk), ana.id, {"provider": "hubspot"})


def test_a_purge_deletes_the_sources_rate_limit_and_circuit_breaker(ana: Person) -> None:
    source = ConnectedSource.objects.create(user_id=ana.id, provider="hubspot", status="disconnected")
    with calls.guarded_call(source_vendor(source, 100), "a test"):
        pass
    lifecycle.start_sync(source, IngestionJob.Kind.FORGET, by="a test")

    while message := pgmq.read_message():
        page_worker.run_page(message)
        pgmq.delete_message(message)

    assert not ConnectedSource.objects.exists()
    assert not RateLimit.objects.filter(key=source_vendor(source).key).exists()
    assert not Breaker.objects.filter(key=source_vendor(source).key).exists()
