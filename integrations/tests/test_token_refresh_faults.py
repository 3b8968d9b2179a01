"""Faults of a token endpoint and their effect on the source (spec 002 §2; VENDORS §7)."""

import logging
from typing import Any

import pytest

from integrations.models import ConnectedSource, IngestionJob, VaultToken
from integrations.oauth import token_endpoint, token_refresh
from integrations.oauth.token_refresh import SourceBroken
from integrations.sync import lifecycle, page_worker, pgmq
from integrations.tests.grants import (
    PROVIDERS,
    access_token,
    connect_source,
    fault_name,
    refresh_outcome,
    refresh_token,
)
from jobs.outcomes import Retryable, Wait
from testing.fakes.faults import Fault, delayed, http_error, replacement
from testing.fakes.http_messages import json_response
from testing.fakes.oauth import PROSE, OAuthServer
from testing.personas import Person


@pytest.mark.parametrize("provider", ["hubspot", "google_drive", "quickbooks"])
def test_a_refused_grant_sets_an_error_code_without_prose(
    ana: Person, oauth: OAuthServer, provider: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    source = connect_source(ana, provider, oauth)
    oauth.revoke_refresh_token(refresh_token(source))

    outcomes = [refresh_outcome(source.pk), refresh_outcome(source.pk)]

    source.refresh_from_db()
    code = "BAD_REFRESH_TOKEN" if provider == "hubspot" else "invalid_grant"
    assert outcomes == ["SourceBroken", "SourceBroken"]
    assert (source.status, source.status_message) == ("error", f"refresh_token_invalid: {code}")
    assert oauth.requests == 1
    assert PROSE not in caplog.text


STANDARD = {"category": "VALIDATION_ERROR", "message": PROSE, "errors": [{"in": "refresh_token", "message": PROSE}]}


@pytest.mark.parametrize(
    ("provider", "kind", "code"),
    [
        ("gmail", http_error(401, code="invalid_grant"), "invalid_grant"),
        ("hubspot", replacement("standard-error", json_response(STANDARD, 400)), "BAD_REFRESH_TOKEN"),
    ],
    ids=fault_name,
)
def test_other_forms_of_a_refused_grant_are_recognized(
    ana: Person, oauth: OAuthServer, provider: str, kind: Fault, code: str
) -> None:
    source = connect_source(ana, provider, oauth)
    oauth.inject_fault("POST *", kind)

    with pytest.raises(SourceBroken, match="REFRESH_TOKEN_INVALID"):
        access_token(source.pk)

    assert ConnectedSource.objects.get().status_message == f"refresh_token_invalid: {code}"


# The tenant's grant is well in each of these: nothing of the source may change.
@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        *[(http_error(status), "Retryable") for status in (500, 502, 503, 408)],
        *[(name, "Retryable") for name in ("reset", "reset-after-sale", "reset-mid-body", "refused")],
        *[(name, "Retryable") for name in ("truncated-json", "empty-200", "garbage", "html-200", "json-list")],
        *[(name, "Retryable") for name in ("another-shape", "redirect-302", "status-204")],
        (http_error(429, retry_after="7"), "Wait"),
        (http_error(401, code="invalid_client"), "Wait"),
        (http_error(400, code="unauthorized_client"), "Wait"),
        (http_error(401), "Wait"),
        (http_error(403), "Wait"),
        (http_error(400, code="invalid_request"), "VendorRefused"),
    ],
    ids=fault_name,
)
def test_a_transient_fault_changes_neither_source_nor_vault(
    ana: Person, oauth: OAuthServer, kind: Any, outcome: str
) -> None:
    source = connect_source(ana, "google_drive", oauth)
    before = ConnectedSource.objects.values().get(), list(VaultToken.objects.order_by("id").values_list())
    oauth.inject_fault("POST /google/token", kind)

    assert refresh_outcome(source.pk) == outcome

    assert (ConnectedSource.objects.values().get(), list(VaultToken.objects.order_by("id").values_list())) == before


@pytest.mark.slow
def test_a_slow_response_is_awaited_up_to_the_timeout(
    ana: Person, oauth: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_endpoint, "TIMEOUT_SECONDS", 1.0)
    source = connect_source(ana, "hubspot", oauth)
    oauth.inject_fault("*", "hang")
    oauth.inject_fault("*", delayed(0.2))

    assert [refresh_outcome(source.pk), refresh_outcome(source.pk)] == ["Retryable", "fresh"]


def test_a_wrong_client_secret_does_not_break_sources(
    ana: Person, ben: Person, oauth: OAuthServer, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    sources = [connect_source(person, provider, oauth) for person in (ana, ben) for provider in PROVIDERS]
    right = settings.CONNECTORS
    settings.CONNECTORS = {name: {**config, "client_secret": "wrong"} for name, config in right.items()}
    wrong = [refresh_outcome(source.pk) for source in sources]
    settings.CONNECTORS = right

    assert set(wrong) == {"Wait"}
    assert {refresh_outcome(source.pk) for source in sources} == {"fresh"}
    assert "OAuth client: invalid_client" in caplog.text


def test_an_unconfigured_provider_is_waited_for(ana: Person, oauth: OAuthServer, settings: Any) -> None:
    source = connect_source(ana, "hubspot", oauth)
    settings.CONNECTORS = {"hubspot": {**settings.CONNECTORS["hubspot"], "client_secret": ""}}

    with pytest.raises(Wait, match="PROVIDER_NOT_CONFIGURED"):
        access_token(source.pk)


def test_an_omitted_refresh_token_stays_in_use(ana: Person, oauth: OAuthServer) -> None:
    source = connect_source(ana, "gmail", oauth)
    before = refresh_token(source)

    access_token(source.pk)

    assert refresh_token(source) == before
    assert VaultToken.objects.filter(kind="refresh").count() == 1


def test_a_rotated_refresh_token_is_used_next(ana: Person, oauth: OAuthServer) -> None:
    source = connect_source(ana, "quickbooks", oauth)
    before = refresh_token(source)

    for _ in range(3):
        access_token(source.pk)
        token_refresh.expire_token(source.pk, ConnectedSource.objects.get().token_expires_at)

    assert refresh_token(source) != before
    assert oauth.requests == 3
    assert VaultToken.objects.filter(orphaned_at__isnull=True).count() == 2


def test_after_a_lost_response_the_old_token_is_retried(ana: Person, oauth: OAuthServer) -> None:
    oauth.grace = 1
    source = connect_source(ana, "quickbooks", oauth)
    oauth.inject_fault("POST /intuit/token", "reset-after-sale")

    assert [refresh_outcome(source.pk), refresh_outcome(source.pk)] == ["Retryable", "fresh"]
    assert oauth.asked == {"intuit:refresh_token": 2}


@pytest.mark.django_db
def test_a_refresh_that_fails_is_counted_by_its_sync_and_uses_up_a_delivery(ana: Person, oauth: OAuthServer) -> None:
    source = connect_source(ana, "hubspot", oauth)
    job = lifecycle.start_sync(source, IngestionJob.Kind.FULL, by="a test")
    oauth.inject_fault("POST *", http_error(503))
    message = pgmq.read_message()
    assert message is not None

    with pytest.raises(Retryable):
        page_worker.run_page(message)

    job.refresh_from_db()
    assert (job.status, job.items_failed) == ("running", 1)
    assert [(outcome["external_id"], outcome["code"]) for outcome in job.error_details] == [
        ("token", "VENDOR_UNAVAILABLE")
    ]
    assert ConnectedSource.objects.get().status == "active"
