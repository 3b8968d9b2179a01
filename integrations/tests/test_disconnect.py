"""Letting go of an account: given back, forgotten, and removed (issue 6, point 7)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from accounts.audit.models import AuditEntry
from accounts.errors import ApiError
from integrations import disconnect, vendor_key
from integrations.disconnect import Grant
from integrations.models import ConnectedSource, IngestionJob, VaultToken
from integrations.oauth import token_refresh, token_vault
from integrations.sync import page_messages, page_worker, sync_jobs
from integrations.tests.consents import connected
from integrations.tests.grants import PROVIDERS, connect, named, refresh_token
from testing.concurrency import at_once
from testing.fakes.faults import Status
from testing.fakes.oauth import OAuthServer
from testing.personas import Person
from vendors import guard
from vendors.models import Breaker, Pace

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_disconnect_gives_back_forgets_and_has_all_removed(ana: Person, oauth: OAuthServer, provider: str) -> None:
    source = connected(ana, provider)
    token = token_refresh.fresh(source.pk)[1]

    told = disconnect.disconnect(source, by=ana.user)

    assert told == Grant.GIVEN_BACK
    assert not oauth.accepts(token)
    assert not VaultToken.objects.exists()
    assert source.status == "disconnected"
    assert list(IngestionJob.objects.order_by("created_at").values_list("kind", "status", "error_message")) == [
        ("full_sync", "failed", "SOURCE_DISCONNECTED"),
        ("forget", "queued", None),
    ]
    assert not AuditEntry.objects.exists()
    with pytest.raises(token_refresh.SourceBroken):
        token_refresh.fresh(source.pk)


@pytest.mark.parametrize(
    "kind", ["refused", Status(503), "hang", Status(400), Status(401, code="invalid_client")], ids=named
)
def test_a_disconnect_forgets_even_when_the_provider_is_down(
    ana: Person, oauth: OAuthServer, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("integrations.oauth.token_endpoint.REVOKE_SECONDS", 0.3)
    source = connected(ana, "quickbooks")
    oauth.misbehave("*revoke", kind)

    told = disconnect.disconnect(source, by=ana.user)

    assert told == Grant.UNTOLD
    assert source.status == "disconnected"
    assert not VaultToken.objects.exists()
    assert IngestionJob.objects.filter(kind="forget").exists()


def test_a_disconnect_forgets_what_no_key_opens(ana: Person, oauth: OAuthServer, settings: Any) -> None:
    source = connected(ana, "hubspot")
    settings.INTEGRATIONS_VAULT_KEYS = ["x" * 40]

    assert disconnect.disconnect(source, by=ana.user) == Grant.UNTOLD

    assert not VaultToken.objects.exists()


def test_a_grant_that_is_gone_already_is_given_back(ana: Person, oauth: OAuthServer) -> None:
    source = connected(ana, "gmail")
    oauth.take_back(refresh_token(source))

    assert disconnect.disconnect(source, by=ana.user) == Grant.GIVEN_BACK


def test_googles_grant_is_given_back_with_the_last_of_its_two_sources(ana: Person, oauth: OAuthServer) -> None:
    drive, mail = connected(ana, "google_drive"), connected(ana, "gmail")

    assert disconnect.disconnect(drive, by=ana.user) == Grant.SHARED
    assert oauth.asked["google:revoke"] == 0
    assert oauth.accepts(token_refresh.fresh(mail.pk)[1])

    assert disconnect.disconnect(mail, by=ana.user) == Grant.GIVEN_BACK
    assert oauth.asked["google:revoke"] == 1


def test_googles_grant_stays_while_another_tenant_has_connected_the_account(
    ana: Person, ben: Person, oauth: OAuthServer
) -> None:
    anas, bens = connected(ana, "gmail"), connected(ben, "gmail")
    assert anas.account == bens.account

    assert disconnect.disconnect(anas, by=ana.user) == Grant.SHARED
    assert oauth.accepts(token_refresh.fresh(bens.pk)[1])
    assert disconnect.disconnect(bens, by=ben.user) == Grant.GIVEN_BACK


def test_of_the_last_two_of_a_google_account_one_gives_the_grant_back(ana: Person, oauth: OAuthServer) -> None:
    sources = [connected(ana, provider) for provider in ("google_drive", "gmail")]

    told = at_once(*[partial(disconnect.disconnect, source, by=ana.user) for source in sources])

    assert Grant.GIVEN_BACK in told
    assert oauth.asked["google:revoke"] >= 1


def test_a_second_disconnect_changes_nothing(ana: Person, oauth: OAuthServer) -> None:
    source = connected(ana, "hubspot")

    told = at_once(*[lambda: disconnect.disconnect(ConnectedSource.objects.get(), by=ana.user)] * 3)

    assert told == [Grant.GIVEN_BACK] * 3
    assert IngestionJob.objects.filter(kind="forget").count() == 1
    assert disconnect.disconnect(source, by=ana.user) == Grant.GIVEN_BACK


def test_what_was_disconnected_can_be_connected_at_once(ana: Person, oauth: OAuthServer) -> None:
    old = connected(ana, "hubspot")
    disconnect.disconnect(old, by=ana.user)

    new = connected(ana, "hubspot")

    assert new.pk != old.pk
    assert oauth.accepts(token_refresh.fresh(new.pk)[1])
    assert ConnectedSource.objects.get(pk=old.pk).status == "disconnected"


def test_staff_say_why_they_disconnect_and_it_is_kept(ana: Person, sam: Person, oauth: OAuthServer) -> None:
    source = connect(ana, "hubspot", oauth)
    with pytest.raises(ApiError, match="REASON_REQUIRED"):
        disconnect.disconnect(source, by=sam.user)
    assert ConnectedSource.objects.get().status == "active"
    assert token_vault.read(source.refresh_token_vault_id or source.pk, source)

    disconnect.disconnect(source, by=sam.user, reason="Ticket 7")

    entry = AuditEntry.objects.get()
    assert (entry.action, entry.reason, entry.actor_id) == ("sources.disconnect", "Ticket 7", sam.id)
    assert (entry.object_id, entry.tenant_id, entry.details) == (str(source.pk), ana.id, {"provider": "hubspot"})


def test_a_forgotten_connections_budget_and_breaker_are_dropped(ana: Person) -> None:
    source = ConnectedSource.objects.create(user_id=ana.id, provider="hubspot", status="disconnected")
    with guard.calling(vendor_key.vendor(source, 100), "a test"):
        pass
    sync_jobs.start(source, IngestionJob.Kind.FORGET, by="a test")

    while message := page_messages.read():
        page_worker.work(message)
        page_messages.delete(message)

    assert not ConnectedSource.objects.exists()
    assert not Pace.objects.filter(key=vendor_key.vendor(source).key).exists()
    assert not Breaker.objects.filter(key=vendor_key.vendor(source).key).exists()
