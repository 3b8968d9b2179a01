"""Access tokens: refreshed in time by the database's clock, and never logged (issue 6, point 3; spec 002 §2)."""

import logging
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from integrations.models import ConnectedSource
from integrations.oauth import token_refresh, token_vault
from integrations.oauth.token_refresh import SourceBroken
from integrations.tests.grants import (
    PROVIDERS,
    access_token,
    connect_source,
    database_dump,
    refresh_outcome,
    refresh_token,
)
from testing.fakes.faults import http_error
from testing.fakes.oauth import CLIENT_SECRET, MARK, OAuthServer
from testing.personas import Person

transactional = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_token_that_ends_soon_is_refreshed(ana: Person, oauth: OAuthServer, provider: str) -> None:
    source = connect_source(ana, provider, oauth, seconds=59)

    new_source, token = token_refresh.fresh_token(source.pk)

    assert oauth.accepts(token)
    assert new_source.access_token_vault_id
    assert token_vault.read_token(new_source.access_token_vault_id, new_source) == token
    assert new_source.token_expires_at
    left = new_source.token_expires_at - timezone.now()
    assert timedelta(seconds=1700) < left <= timedelta(seconds=1800)
    assert (new_source.refresh_lease, new_source.refresh_lease_until) == (None, None)


def test_a_token_that_lasts_is_used_as_it_is(ana: Person, oauth: OAuthServer) -> None:
    source = connect_source(ana, "hubspot", oauth, seconds=120)

    first, second = access_token(source.pk), access_token(source.pk)

    assert first == second
    assert oauth.requests == 0


def test_a_token_without_an_end_is_refreshed(ana: Person, oauth: OAuthServer) -> None:
    source = connect_source(ana, "hubspot", oauth, seconds=900)
    ConnectedSource.objects.update(token_expires_at=None)

    access_token(source.pk)

    assert oauth.asked == {"hubspot:refresh_token": 1}


@transactional
def test_expiry_is_judged_by_the_databases_clock(
    ana: Person, oauth: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose own clock is hours off refreshes neither too early nor too late."""
    source = connect_source(ana, "hubspot", oauth)
    right = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: right() - timedelta(hours=5))
    ends = "UPDATE connected_sources SET token_expires_at = clock_timestamp() + make_interval(secs => %s)"

    for seconds, calls in ((90, 0), (50, 1)):
        with connection.cursor() as cursor:
            cursor.execute(ends, [seconds])
        access_token(source.pk)

        assert oauth.asked["hubspot:refresh_token"] == calls


def test_an_expired_token_is_refreshed_unless_it_was_already(ana: Person, oauth: OAuthServer) -> None:
    source = connect_source(ana, "hubspot", oauth, seconds=900)
    new_source, first = token_refresh.fresh_token(source.pk)

    token_refresh.expire_token(source.pk, new_source.token_expires_at)
    second = access_token(source.pk)
    token_refresh.expire_token(source.pk, new_source.token_expires_at)  # of somebody who was slow to tell
    third = access_token(source.pk)

    assert first != second == third
    assert oauth.requests == 1


def test_recorded_sources_need_no_token(ana: Person, oauth: OAuthServer, settings: Any) -> None:
    settings.INTEGRATIONS_USE_FIXTURES = True
    source = ConnectedSource.objects.create(user_id=ana.id, provider="hubspot", account="recorded")

    assert access_token(source.pk) == "recorded"

    ConnectedSource.objects.update(status="disconnected")
    with pytest.raises(SourceBroken, match="SOURCE_DISCONNECTED"):
        access_token(source.pk)


@transactional
def test_no_token_is_in_a_dump_or_in_a_log(ana: Person, oauth: OAuthServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for provider in PROVIDERS:
        source = connect_source(ana, provider, oauth)
        access_token(source.pk)
        oauth.inject_fault("*", http_error(503))
        token_refresh.expire_token(source.pk, ConnectedSource.objects.get(pk=source.pk).token_expires_at)
        refresh_outcome(source.pk)
        oauth.revoke_refresh_token(refresh_token(source))
        refresh_outcome(source.pk)

    dump, logged = database_dump(), caplog.text + repr([vars(record) for record in caplog.records])
    assert "refresh_token_invalid" in dump
    for secret in (MARK, CLIENT_SECRET):
        for form in (secret, secret.encode().hex(), secret.encode().hex().upper()):
            assert form not in dump
            assert form not in logged
