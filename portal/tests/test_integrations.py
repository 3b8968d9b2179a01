"""Page of connected systems: access, status and actions of each source."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import httpx
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.errors import Context, error_codes
from integrations.models import ClientIntelligence, ConnectedSource, IngestionJob, SourceDocument, VaultToken
from integrations.tests import grants
from portal import connected_sources
from portal.tests.conftest import signed_in
from testing.fakes.faults import http_error
from testing.fakes.oauth import OAuthServer
from testing.personas import Person

pytestmark = pytest.mark.django_db
PAGE = "/settings/integrations"


def source(person: Person, provider: str = "hubspot", **fields: Any) -> ConnectedSource:
    return ConnectedSource.objects.create(user_id=person.id, provider=provider, **fields)


def synced(of: ConnectedSource, **fields: Any) -> IngestionJob:
    job = {"kind": "full_sync", "status": "completed"} | fields
    return IngestionJob.objects.create(user_id=of.user_id, source=of, **job)


def shown(person: Person) -> str:
    answer = signed_in(person).get(PAGE)
    assert answer.status_code == 200, answer.content
    return " ".join(answer.content.decode().split())


@pytest.fixture
def configured(settings: Any) -> None:
    """Our client is registered at HubSpot and for Gmail, and nowhere else."""
    ours = {"client_id": "our-id", "client_secret": "our-secret"}
    own = {provider: settings.CONNECTORS[provider] | ours for provider in ("hubspot", "gmail")}
    settings.CONNECTORS = settings.CONNECTORS | own
    settings.PUBLIC_URL = "https://accessa.example.org"


@pytest.fixture
def oauth(settings: Any) -> Iterator[OAuthServer]:
    """Every provider's consent page and token endpoint."""
    with OAuthServer() as server:
        grants.use_fake_oauth(settings, server)
        yield server


# Whose


def test_another_tenants_source_does_not_exist_and_staff_are_tenants_here(
    ana: Person, ben: Person, sam: Person
) -> None:
    own = source(ana, account="5120")
    paths = [("post", "sync"), ("get", "disconnect"), ("post", "disconnect")]

    for person in (ben, sam):
        client = signed_in(person)
        for method, act in paths:
            answer = getattr(client, method)(f"{PAGE}/{own.pk}/{act}")
            assert (answer.status_code, b"There is no such" in answer.content) == (404, True), act
        assert "5120" not in shown(person)
    own.refresh_from_db()
    assert own.status == "active"


def test_sign_in_is_required_and_forms_need_a_csrf_token(ana: Person) -> None:
    own = source(ana)
    strict = Client(enforce_csrf_checks=True, headers={"accept": "text/html"})
    answers = [Client().get(PAGE), Client().get(f"{PAGE}/hubspot/callback?code=x&state=y")]
    strict.force_login(ana.user)

    assert [answer.status_code for answer in answers] == [302, 302]
    for path in (f"{own.pk}/sync", f"{own.pk}/disconnect", "hubspot/connect"):
        assert strict.post(f"{PAGE}/{path}").status_code == 403, path


# How each is


def test_a_provider_that_is_not_set_up_names_whom_to_ask(ana: Person, configured: None, settings: Any) -> None:
    settings.SUPPORT_EMAIL = "help@example.org"
    page = shown(ana)

    assert page.count("Not set up here yet") == page.count('href="mailto:help@example.org"') == 2
    assert f'href="{PAGE}/hubspot/connect"' in page
    assert [name in page for name in ("HubSpot", "Google Drive", "QuickBooks", "Gmail")] == [True] * 4


def test_a_provider_that_is_not_set_up_is_hidden_where_nobody_can_be_asked(ana: Person, configured: None) -> None:
    page = shown(ana)

    assert "Not set up" not in page
    assert [name in page for name in ("HubSpot", "Google Drive", "QuickBooks", "Gmail")].count(True) == 2


def test_a_source_shows_what_it_has_brought_and_when(ana: Person, ben: Person) -> None:
    own = source(ana, last_synced_at=timezone.now(), account="5120")
    unread = [{"external_id": f"deal:{n}", "code": "ITEM_UNREADABLE", "at": ""} for n in range(3)]
    synced(own, items_failed=3, error_details=unread)
    for n in range(3):
        gone = timezone.now() if n == 2 else None
        SourceDocument.objects.create(
            user_id=ana.id, source=own, external_id=f"contact:{n}", document_type="x", raw_payload={}, deleted_at=gone
        )
    ClientIntelligence.objects.create(user_id=ana.id, source=own, external_id="company:1", client_name="Acme")
    ClientIntelligence.objects.create(user_id=ben.id, client_name="Other")

    page = shown(ana)

    assert "2 records, 1 client can be found here." in page
    assert "3 records could not be read." in page
    assert "Account 5120" in page
    assert "Acme" not in page


def test_records_are_counted_no_further_than_a_bound(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connected_sources, "MAX_COUNT", 2)
    own = source(ana, "gmail")
    for n in range(5):
        SourceDocument.objects.create(
            user_id=ana.id, source=own, external_id=f"thread:{n}", document_type="x", raw_payload={}
        )

    assert "more than 2 records can be found here" in shown(ana)


def test_a_running_sync_shows_progress_and_polls(ana: Person) -> None:
    own = source(ana)
    synced(own, status="running", items_seen=1240, items_written=20)

    client = signed_in(ana)
    part = " ".join(client.get(f"{PAGE}/list").content.decode().split())
    assert "1,240 records looked at, 20 of them new or changed." in part
    assert 'hx-trigger="every 3s"' in part
    assert "Sync now" not in part

    IngestionJob.objects.update(status="completed")
    assert "every" not in client.get(f"{PAGE}/list").content.decode()
    assert "Sync now" in shown(ana)


@pytest.mark.parametrize(
    ("code", "seconds", "seen", "sentence"),
    [
        ("VENDOR_AWAY", 90, 0, "HubSpot does not answer at present; it continues by itself."),
        ("VENDOR_UNREACHABLE", 90, 7, "7 records looked at, 0 of them new or changed. HubSpot does not answer"),
        ("VENDOR_AWAY", 20, 0, "It begins in a moment."),
        ("BUDGET_SPENT", 90, 0, "It continues by itself."),
    ],
)
def test_a_sync_that_does_not_go_on_says_why(code: str, seconds: int, seen: int, sentence: str, ana: Person) -> None:
    first = timezone.now() - timedelta(seconds=seconds)
    waits = [("page:1", first - timedelta(days=1)), ("page:2", first), ("token", first), ("page:2", timezone.now())]
    details = [{"external_id": what, "code": code, "at": at.isoformat(timespec="seconds")} for what, at in waits]
    synced(source(ana), status="running", page=2, items_seen=seen, error_details=details)

    assert sentence in shown(ana)

    IngestionJob.objects.update(page=3)
    assert "by itself" not in shown(ana)


def test_an_unclaimed_sync_is_shown_as_queued(ana: Person) -> None:
    synced(source(ana), status="queued")
    assert "It begins in a moment." in shown(ana)

    IngestionJob.objects.update(created_at=timezone.now() - timedelta(minutes=2))
    assert "It waits for its turn." in shown(ana)


@pytest.mark.parametrize(("records", "sentence"), [(0, None), (2, "2 records could"), (60, "60 records could")])
def test_token_and_page_waits_are_not_counted_as_unread_records(
    records: int, sentence: str | None, ana: Person
) -> None:
    waits = [{"external_id": what, "code": "VENDOR_AWAY", "at": ""} for what in ("page:0", "token", "page:0")]
    failed = [{"external_id": f"deal:{n}", "code": "ITEM_UNREADABLE", "at": ""} for n in range(records)]
    synced(source(ana), items_failed=records + 1, error_details=[*failed, *waits][-50:])

    page = shown(ana)
    assert "could not be read" not in page if sentence is None else sentence in page


def test_the_newest_sync_counts(ana: Person) -> None:
    own = source(ana)
    synced(own, status="failed", error_message="max_retries_exceeded")
    IngestionJob.objects.update(created_at=timezone.now() - timedelta(days=1))
    assert "broke off too often" in shown(ana)

    synced(own)
    assert "broke off too often" not in shown(ana)


@pytest.mark.parametrize(
    "code", [*error_codes(Context.SYNC_FAILURE), "a-code-of-tomorrow", "refresh_token_invalid: b@example.org", None]
)
def test_a_broken_source_says_how_to_mend_it_and_no_code(code: str | None, ana: Person, configured: None) -> None:
    source(ana, status="error", status_message=code)

    page = shown(ana)

    assert "Not connected any more." in page
    assert f'href="{PAGE}/hubspot/connect">Reconnect<' in page
    assert "Sync now" not in page
    assert "@example.org</p>" not in page
    assert code is None or code not in page


def test_a_source_that_is_let_go_of_offers_nothing(ana: Person, configured: None) -> None:
    own = source(ana, status="disconnected")
    synced(own, kind="forget", status="running")

    page = shown(ana)

    assert "Being removed." in page
    assert "Disconnect<" not in page
    assert ">Connect<" in page


def test_a_page_asks_a_fixed_number_of_queries(ana: Person) -> None:
    def asked() -> int:
        with CaptureQueriesContext(connection) as seen:
            shown(ana)
        return len(seen)

    first = source(ana)
    synced(first)
    before = asked()
    for n in range(4):
        synced(source(ana, "gmail", account=str(n)))

    assert asked() == before


# Consent


def begin(client: Client, provider: str = "hubspot") -> dict[str, str]:
    """Begin, and return what the provider is told."""
    answer = client.get(f"{PAGE}/{provider}/connect")
    assert answer.status_code == 302, answer.content
    return {name: values[0] for name, values in parse_qs(urlsplit(answer["Location"]).query).items()}


def test_consent_redirects_to_the_provider_with_a_session_state(ana: Person, configured: None) -> None:
    client = signed_in(ana)

    first, again = begin(client, "gmail"), begin(client, "gmail")

    assert first["redirect_uri"] == f"https://accessa.example.org{PAGE}/gmail/callback"
    assert first["state"] != again["state"]
    assert set(client.session["consents"]) == {first["state"], again["state"]}
    verifier = client.session["consents"][first["state"]]["verifier"]
    assert verifier
    assert verifier not in str(first)


@pytest.mark.parametrize(
    ("provider", "params", "sentence"),
    [
        ("hubspot", {"code": "x", "state": "another"}, "not started here"),
        ("gmail", {"code": "x"}, "not started here"),  # begun at HubSpot
        ("hubspot", {"error": "access_denied", "error_description": "Prose of ana@corp.example"}, "did not allow us"),
    ],
)
def test_a_callback_that_is_none_connects_nothing_and_repeats_nothing(
    provider: str, params: dict[str, str], sentence: str, ana: Person, configured: None
) -> None:
    client = signed_in(ana)
    state = begin(client)["state"]

    answer = client.get(f"{PAGE}/{provider}/callback", {"state": state} | params, follow=True)

    assert sentence in answer.content.decode()
    assert "corp.example" not in answer.content.decode()
    assert not ConnectedSource.objects.exists()
    if "state" not in params:
        assert state not in client.session["consents"]  # good for once


def test_another_site_cannot_connect_a_system(ana: Person, configured: None) -> None:
    client = signed_in(ana)

    answer = client.get(f"{PAGE}/hubspot/connect", headers={"sec-fetch-site": "cross-site"})

    assert (answer.status_code, "consents" in client.session) == (403, False)


def test_an_unconfigured_provider_cannot_be_connected(ana: Person) -> None:
    answer = signed_in(ana).get(f"{PAGE}/gmail/connect", follow=True)

    assert "not set up here yet" in answer.content.decode()
    assert signed_in(ana).get(f"{PAGE}/salesforce/connect").status_code == 404
    assert signed_in(ana).get(f"{PAGE}/{uuid4()}/connect").status_code == 404


def consented(client: Client, oauth: OAuthServer, provider: str) -> Any:
    """Open the consent page as a browser does, and come back."""
    address = httpx.get(client.get(f"{PAGE}/{provider}/connect")["Location"]).headers["Location"]
    return client.get(address.removeprefix("https://accessa.example.org"), follow=True)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("provider", ["quickbooks", "gmail"])
def test_a_consent_connects_and_a_second_one_of_the_same_account_reconnects(
    provider: str, ana: Person, oauth: OAuthServer, settings: Any
) -> None:
    settings.PUBLIC_URL, client = "https://accessa.example.org", signed_in(ana)

    answer = consented(client, oauth, provider)
    assert "is connected. Its records are being fetched." in answer.content.decode()
    assert answer.redirect_chain == [(PAGE, 302)]
    own = ConnectedSource.objects.get()
    assert IngestionJob.objects.get().kind == "full_sync"

    ConnectedSource.objects.update(status="error", status_message="refresh_token_invalid: invalid_grant")
    consented(client, oauth, provider)
    own.refresh_from_db()
    assert (own.status, ConnectedSource.objects.count()) == ("active", 1)
    assert client.session["consents"] == {}


def test_a_declined_consent_shows_a_message(ana: Person, oauth: OAuthServer, settings: Any) -> None:
    settings.PUBLIC_URL, oauth.declines = "https://accessa.example.org", True

    answer = consented(signed_in(ana), oauth, "hubspot")

    assert "You did not allow us" in answer.content.decode()
    assert not ConnectedSource.objects.exists()


# Acts


def test_recorded_answers_are_connected_at_once_and_by_a_form_only(ana: Person, settings: Any) -> None:
    settings.INTEGRATIONS_USE_FIXTURES = True
    client = signed_in(ana)

    client.get(f"{PAGE}/hubspot/connect")
    assert not ConnectedSource.objects.exists()
    answer = client.post(f"{PAGE}/hubspot/connect", follow=True)

    assert "HubSpot is connected" in answer.content.decode()
    assert "Recorded answers" in shown(ana)
    assert IngestionJob.objects.get().kind == "full_sync"


def test_recorded_answers_are_not_connected_where_they_are_not_meant(ana: Person, configured: None) -> None:
    answer = signed_in(ana).post(f"{PAGE}/hubspot/connect", follow=True)

    assert "not set up here yet" in answer.content.decode()
    assert not ConnectedSource.objects.exists()


def test_a_second_sync_is_refused_with_a_message(ana: Person) -> None:
    own, client = source(ana, last_synced_at=timezone.now()), signed_in(ana)

    client.post(f"{PAGE}/{own.pk}/sync")
    again = client.post(f"{PAGE}/{own.pk}/sync", follow=True)

    assert IngestionJob.objects.get().kind == "delta_sync"
    assert "are being fetched already" in again.content.decode()
    assert client.get(f"{PAGE}/{own.pk}/sync").status_code == 405


@pytest.mark.django_db(transaction=True)
def test_disconnecting_is_asked_first_and_forgets(ana: Person, oauth: OAuthServer, settings: Any) -> None:
    settings.PUBLIC_URL, client = "https://accessa.example.org", signed_in(ana)
    consented(client, oauth, "hubspot")
    own = ConnectedSource.objects.get()

    confirmation = client.get(f"{PAGE}/{own.pk}/disconnect").content.decode()
    own.refresh_from_db()
    assert "Disconnect HubSpot?" in confirmation
    assert own.status == "active"

    answer = client.post(f"{PAGE}/{own.pk}/disconnect", follow=True)
    own.refresh_from_db()
    assert own.status == "disconnected"
    assert "is disconnected" in answer.content.decode()
    assert "could not tell" not in answer.content.decode()
    assert "Being removed." in answer.content.decode()
    assert not VaultToken.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_shared_google_grant_is_announced_before_and_after(ana: Person, oauth: OAuthServer, settings: Any) -> None:
    settings.PUBLIC_URL, client = "https://accessa.example.org", signed_in(ana)
    for provider in ("gmail", "google_drive"):
        consented(client, oauth, provider)
    mail, drive = ConnectedSource.objects.order_by("-provider")[::-1]

    confirmation = client.get(f"{PAGE}/{mail.pk}/disconnect").content.decode()
    answer = client.post(f"{PAGE}/{mail.pk}/disconnect", follow=True).content.decode()
    last = client.get(f"{PAGE}/{drive.pk}/disconnect").content.decode()

    assert "Google continues to list our access" in confirmation
    assert "Google still lists our access" in answer
    assert "Our access is revoked." in last
    assert "Google goes on" not in last


@pytest.mark.django_db(transaction=True)
def test_a_token_endpoint_that_is_away_is_the_providers(ana: Person, oauth: OAuthServer, settings: Any) -> None:
    settings.PUBLIC_URL, client = "https://accessa.example.org", signed_in(ana)
    oauth.inject_fault("POST *", http_error(503))

    answer = consented(client, oauth, "hubspot")

    assert "The other system cannot be reached at present" in answer.content.decode()
    assert "Our service" not in answer.content.decode()


@pytest.mark.django_db(transaction=True)
def test_a_failed_revocation_names_the_provider(ana: Person, oauth: OAuthServer, settings: Any) -> None:
    settings.PUBLIC_URL, client = "https://accessa.example.org", signed_in(ana)
    consented(client, oauth, "hubspot")
    settings.CONNECTORS["hubspot"]["revoke_url"] = "http://127.0.0.1:9/nobody-listens"

    answer = client.post(f"{PAGE}/{ConnectedSource.objects.get().pk}/disconnect", follow=True)

    assert "We could not tell HubSpot." in answer.content.decode()
    assert ConnectedSource.objects.get().status == "disconnected"
