"""Pages of webhooks: create, secret shown once, turn off and on, rotate, deliveries, resend, delete."""

import re

import pytest
from django.test import Client
from django.utils import timezone

from outbox.models import EVENTS, Message, WebhookEndpoint
from outbox.webhooks import endpoints
from portal.tests.conftest import signed_in
from testing.personas import Person

pytestmark = pytest.mark.django_db
PAGE = "/settings/webhooks"
WANTED = {"url": "https://hooks.example.com/?a=1&amp", "events": ["document.failed"]}


@pytest.fixture
def endpoint(ana: Person) -> WebhookEndpoint:
    return endpoints.create_endpoint(user_id=ana.id, url="https://hooks.example.com/", events=EVENTS).endpoint


@pytest.fixture
def failed(endpoint: WebhookEndpoint) -> Message:
    endpoints.publish(user_id=endpoint.user_id, type="document.failed", data={})
    entry = {"attempt": 10, "at": "2026-11-23T00:00:00+00:00", "status": 503, "code": "WEBHOOK_STATUS", "ms": 87}
    Message.objects.update(state="failed", last_error="WEBHOOK_STATUS", log=[entry], finished_at=timezone.now())
    return Message.objects.get()


def secrets_in(page: str) -> list[str]:
    return re.findall(r"whsec_[\w+/=]+", page)


def test_a_webhook_is_created_and_its_secret_shown_once(ana: Person) -> None:
    client = signed_in(ana)

    created = client.post(PAGE, WANTED)

    stored = WebhookEndpoint.objects.get()
    assert secrets_in(created.content.decode()) == endpoints.signing_secrets(stored)
    assert created["Cache-Control"] == "no-store"
    page = client.get(PAGE).content.decode()
    assert secrets_in(page) == []
    assert "https://hooks.example.com/?a=1&amp;amp" in page


@pytest.mark.parametrize(
    "wrong", [{"url": ""}, {"url": "http://hooks.example.com/"}, {"url": "https://127.0.0.1/"}, {"events": ["x"]}]
)
def test_a_wrong_form_creates_nothing(wrong: dict[str, object], ana: Person) -> None:
    answer = signed_in(ana).post(PAGE, WANTED | wrong)

    assert 'class="wrong"' in answer.content.decode()
    assert not WebhookEndpoint.objects.exists()


def test_a_webhook_is_turned_off_and_on_and_deleted(ana: Person, endpoint: WebhookEndpoint) -> None:
    client, path = signed_in(ana), f"{PAGE}/{endpoint.pk}"
    WebhookEndpoint.objects.update(enabled=False, disabled_code="WEBHOOK_GONE")
    assert "410 Gone" in client.get(path).content.decode()
    assert "410 Gone" in client.get(PAGE).content.decode()

    client.post(f"{path}/switch", {"enabled": "yes"})
    assert WebhookEndpoint.objects.get().enabled
    client.post(f"{path}/switch", {"enabled": "no"})
    assert not WebhookEndpoint.objects.get().enabled
    client.post(f"{path}/delete")

    assert client.get(path).status_code == 404


def test_a_new_secret_is_shown_once(ana: Person, endpoint: WebhookEndpoint) -> None:
    answer = signed_in(ana).post(f"{PAGE}/{endpoint.pk}/rotate")

    assert secrets_in(answer.content.decode()) == endpoints.signing_secrets(WebhookEndpoint.objects.get())[:1]
    assert "The secret before signs too until" in answer.content.decode()


def test_deliveries_are_listed_and_sent_again(ana: Person, failed: Message) -> None:
    client, path = signed_in(ana), f"{PAGE}/{failed.target_id}"
    page = client.get(path).content.decode()
    assert "Failed (503). The receiver answered with another status than 2xx." in page
    assert '<li value="10">2026-11-23T00:00:00+00:00: 503, 87 ms</li>' in page

    client.post(f"{path}/deliveries/{failed.pk}/resend")

    assert Message.objects.get().state == "queued"
    WebhookEndpoint.objects.update(enabled=False)
    again = client.post(f"{path}/deliveries/{failed.pk}/resend", follow=True)
    assert "This endpoint is disabled" in again.content.decode()


def test_another_tenants_webhooks_are_not_there(ben: Person, failed: Message) -> None:
    client, path = signed_in(ben), f"{PAGE}/{failed.target_id}"

    assert str(failed.target_id) not in client.get(PAGE).content.decode()
    assert client.get(path).status_code == 404
    posts = ("rotate", "switch", "delete", f"deliveries/{failed.pk}/resend")
    assert {client.post(f"{path}/{each}").status_code for each in posts} == {404}


def test_sign_in_and_a_csrf_token_are_needed(ana: Person, endpoint: WebhookEndpoint) -> None:
    strict = Client(enforce_csrf_checks=True, headers={"accept": "text/html"})
    assert strict.get(PAGE).status_code == 302
    strict.force_login(ana.user)

    paths = (PAGE, f"{PAGE}/{endpoint.pk}/rotate", f"{PAGE}/{endpoint.pk}/delete")
    assert [strict.post(path, WANTED).status_code for path in paths] == [403] * 3
