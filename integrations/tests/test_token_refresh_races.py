"""Concurrent and interrupted refreshes: one call, and no connection lost."""

import multiprocessing
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import connection, connections
from django.utils import timezone
from psycopg.conninfo import make_conninfo

from integrations.models import ConnectedSource, VaultToken
from integrations.oauth import token_refresh
from integrations.tests.grants import access_token, connect_source, refresh_outcome, refresh_token
from jobs import failpoints
from jobs.outcomes import Wait
from testing.cluster import database_params
from testing.concurrency import run_concurrently
from testing.fakes.faults import http_error
from testing.fakes.oauth import OAuthServer
from testing.personas import Person
from vendors.tests.process_pool import in_processes

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow for a slow machine with fifty threads."""
    monkeypatch.setattr(token_refresh, "PATIENCE_SECONDS", 60.0)


def test_fifty_concurrent_workers_make_one_refresh(ana: Person, oauth: OAuthServer, patient: None) -> None:
    source = connect_source(ana, "quickbooks", oauth)

    tokens = run_concurrently(*[lambda: access_token(source.pk)] * 50)

    assert len(set(tokens)) == 1
    assert oauth.accepts(tokens[0])
    assert oauth.requests == 1


def test_two_processes_make_one_refresh(ana: Person, oauth: OAuthServer, patient: None) -> None:
    """The specification's token-refresh-serializes."""
    source = connect_source(ana, "quickbooks", oauth)
    oauth.delay = 0.3

    tokens = in_processes(2, access_token, source.pk)

    assert len(set(tokens)) == 1
    assert oauth.accepts(tokens[0])
    assert oauth.requests == 1


def test_a_crowd_does_not_call_a_failing_provider_one_after_the_other(ana: Person, oauth: OAuthServer) -> None:
    source = connect_source(ana, "hubspot", oauth)
    oauth.inject_fault("POST /hubspot/token", http_error(503).after_sale(), times=50)
    oauth.delay = 0.6

    outcomes = run_concurrently(*[lambda: refresh_outcome(source.pk)] * 8)

    assert set(outcomes) <= {"Retryable", "Wait"}
    assert oauth.requests <= 2  # and not as many as it takes until the breaker opens


def test_a_worker_that_waits_too_long_uses_up_no_delivery(
    ana: Person, oauth: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_refresh, "PATIENCE_SECONDS", 0.1)
    source = connect_source(ana, "hubspot", oauth)
    ConnectedSource.objects.update(refresh_lease_until=timezone.now() + timedelta(seconds=30))

    with pytest.raises(Wait, match="TOKEN_BEING_REFRESHED"):
        access_token(source.pk)

    assert oauth.requests == 0


def test_no_transaction_is_open_during_the_call(ana: Person, oauth: OAuthServer) -> None:
    source = connect_source(ana, "hubspot", oauth)
    oauth.delay = 0.8
    asks = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'"

    def watch() -> str:
        while oauth.requests == 0:
            time.sleep(0.01)
        with connection.cursor() as cursor:
            cursor.execute(asks)
            return str(cursor.fetchone()[0])

    open_ones, _ = run_concurrently(watch, lambda: access_token(source.pk))

    assert open_ones == "0"


def _die(folder: Path, source_id: UUID) -> None:
    failpoints._ARMED = str(folder)  # what ACCESSA_FAILPOINTS says to a process that is started with it
    connections.close_all()
    token_refresh.fresh_token(source_id)


@pytest.mark.parametrize("point_of_death", ["leased", "answered", "stored", "swung"])
def test_a_crash_between_any_two_steps_loses_no_connection(
    ana: Person, oauth: OAuthServer, tmp_path: Path, point_of_death: str
) -> None:
    # Only what nobody can mend is forgiven: an answer that was in no table yet, of a provider that takes a token once.
    oauth.grace = 1 if point_of_death == "answered" else 0
    source = connect_source(ana, "quickbooks", oauth)
    (tmp_path / f"refresh:{point_of_death}~1").touch()
    connections.close_all()

    dying = multiprocessing.get_context("fork").Process(target=_die, args=(tmp_path, source.pk))
    dying.start()
    dying.join(20)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE connected_sources SET refresh_lease_until = clock_timestamp() - interval '1 second'")
    token = access_token(source.pk)
    token_refresh.expire_token(source.pk, ConnectedSource.objects.get().token_expires_at)
    token = access_token(source.pk)

    assert dying.exitcode == -signal.SIGKILL
    assert oauth.accepts(token)
    assert ConnectedSource.objects.get().status == "active"
    assert VaultToken.objects.filter(orphaned_at__isnull=True).count() == 2


def test_a_worker_that_lost_the_lease_overwrites_nothing(ana: Person, oauth: OAuthServer) -> None:
    source = connect_source(ana, "hubspot", oauth)
    slow = token_refresh._take_lease(source.pk)
    assert slow
    ConnectedSource.objects.update(refresh_lease_until=timezone.now() - timedelta(seconds=1))
    token = access_token(source.pk)

    late_token = token_refresh._refresh(slow)

    assert late_token is None
    assert access_token(source.pk) == token


@pytest.mark.parametrize(
    "changed",
    [{"refresh_lease": None}, {"token_expires_at": timezone.now() + timedelta(hours=1)}],
    ids=["lease", "end"],
)
@pytest.mark.parametrize("is_refused", [True, False])
def test_a_refresh_that_ends_after_a_new_consent_changes_nothing(
    ana: Person, oauth: OAuthServer, changed: dict[str, Any], is_refused: bool
) -> None:
    source = connect_source(ana, "hubspot", oauth)
    slow = token_refresh._take_lease(source.pk)
    assert slow
    if is_refused:
        oauth.revoke_refresh_token(refresh_token(source))
    ConnectedSource.objects.update(**changed)
    before = ConnectedSource.objects.values().get()

    assert token_refresh._refresh(slow) is None

    assert ConnectedSource.objects.values().get() == before


def test_the_advisory_lock_of_the_spec_allows_one_refresh(
    ana: Person, oauth: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_refresh, "PATIENCE_SECONDS", 0.1)
    source = connect_source(ana, "hubspot", oauth)

    with psycopg.connect(make_conninfo(**database_params())) as other:
        other.execute("SELECT pg_advisory_xact_lock(hashtext('refresh:' || %s))", [str(source.pk)])
        held = refresh_outcome(source.pk)

    assert (held, refresh_outcome(source.pk)) == ("Wait", "fresh")


def test_expiring_the_old_token_does_not_disturb_a_refresh(ana: Person, oauth: OAuthServer) -> None:
    source = connect_source(ana, "quickbooks", oauth)
    under_way = token_refresh._take_lease(source.pk)
    assert under_way

    token_refresh.expire_token(source.pk, source.token_expires_at)

    token = token_refresh._refresh(under_way)
    assert token
    assert access_token(source.pk) == token


def test_tokens_refreshed_after_a_disconnect_are_not_stored(ana: Person, oauth: OAuthServer) -> None:
    source = connect_source(ana, "quickbooks", oauth)
    slow = token_refresh._take_lease(source.pk)
    assert slow
    ConnectedSource.objects.update(status="disconnected")

    assert token_refresh._refresh(slow) is None

    assert VaultToken.objects.count() == 2
