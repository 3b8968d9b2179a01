"""API of webhook endpoints: create, list, change, rotate, delete, deliveries, resend; bad input; other tenants."""

import json
from typing import Any

import pytest
from django.core.management import call_command
from pytest_django import Settings
from standardwebhooks import Webhook

from outbox import queue
from outbox.attempts import Attempt
from outbox.error_codes import WEBHOOK_STATUS
from outbox.models import Message, WebhookEndpoint
from outbox.webhooks import endpoints
from testing.personas import Person

pytestmark = pytest.mark.django_db
URL = "https://hooks.example.com/accessa?key=7"


def create(person: Person, **body: Any) -> dict[str, Any]:
    answer = person.post("/webhook-endpoints", {"url": URL} | body)
    assert answer.status_code == 201, answer.content
    return dict(answer.json())


def publish(person: Person) -> Message:
    endpoints.publish(user_id=person.id, type="document.failed", data={"code": "NOT_A_PDF"})
    return Message.objects.get()


def test_an_endpoint_shows_its_secret_once(ana: Person) -> None:
    created = create(ana)

    secret = created.pop("secret")
    assert secret.startswith("whsec_")
    assert Webhook(secret)
    assert created["events"] == ["document.completed", "document.failed", "sync.failed"]
    assert ana.get(f"/webhook-endpoints/{created['id']}").json() == created
    assert ana.get("/webhook-endpoints").json()["results"] == [created]


def test_a_rotation_shows_the_new_secret_and_when_the_old_one_ends(ana: Person) -> None:
    created = create(ana)

    rotated = ana.post(f"/webhook-endpoints/{created['id']}/rotate")

    assert rotated.json()["secret"] not in ("", created["secret"])
    assert rotated.json()["previous_secret_until"]
    assert rotated["Cache-Control"] == "no-store"


def test_an_endpoint_is_changed_disabled_and_deleted(ana: Person) -> None:
    path = f"/webhook-endpoints/{create(ana)['id']}"

    changed = ana.patch(path, {"events": ["sync.failed", "sync.failed"], "enabled": False}).json()
    assert (changed["events"], changed["enabled"], changed["url"]) == (["sync.failed"], False, URL)
    assert ana.patch(path, {"url": "https://10.0.0.1/"}).json()["code"] == "WEBHOOK_URL_INVALID"
    ana.patch(path, {"enabled": True})
    endpoints.publish(user_id=ana.id, type="sync.failed", data={})
    assert ana.delete(path).status_code == 204

    assert ana.get(path).status_code == 404
    assert not Message.objects.exists()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "INVALID_REQUEST"),
        ({"url": 7}, "INVALID_REQUEST"),
        ({"url": "https://" + "a" * 3000}, "INVALID_REQUEST"),
        ({"url": URL, "events": []}, "INVALID_REQUEST"),
        ({"url": URL, "events": ["document.deleted"]}, "INVALID_REQUEST"),
        ({"url": URL, "events": "document.failed"}, "INVALID_REQUEST"),
        ({"url": "http://hooks.example.com/"}, "WEBHOOK_URL_INVALID"),
        ({"url": "https://127.0.0.1/"}, "WEBHOOK_URL_INVALID"),
    ],
)
def test_bad_input_creates_nothing(body: dict[str, Any], code: str, ana: Person) -> None:
    answer = ana.post("/webhook-endpoints", body)

    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert not WebhookEndpoint.objects.exists()


def test_a_tenant_has_ten_endpoints_at_most(ana: Person, ben: Person) -> None:
    for _ in range(10):
        create(ana)

    answer = ana.post("/webhook-endpoints", {"url": URL})

    assert (answer.status_code, answer.json()["code"]) == (409, "WEBHOOK_LIMIT_REACHED")
    create(ben)


def test_the_delivery_log_has_attempts_and_a_resend(ana: Person) -> None:
    path = f"/webhook-endpoints/{create(ana)['id']}/deliveries"
    message = publish(ana)
    resend = f"{path}/{message.pk}/resend"
    (claimed,) = queue.claim_due()
    assert ana.post(resend).json()["code"] == "MESSAGE_IN_FLIGHT"
    queue.settle(claimed, Attempt(WEBHOOK_STATUS, 503), 87)

    (delivery,) = ana.get(path).json()["results"]
    assert delivery["id"] == str(message.pk)
    assert (delivery["type"], delivery["state"], delivery["last_error"]) == (
        "document.failed",
        "queued",
        "WEBHOOK_STATUS",
    )
    ((attempt),) = delivery["log"]
    assert attempt.pop("at")
    assert attempt == {"attempt": 1, "status": 503, "code": "WEBHOOK_STATUS", "duration_ms": 87}

    assert ana.post(resend).status_code == 202
    assert [claimed.pk for claimed in queue.claim_due()] == [message.pk]


def test_nothing_is_resent_to_a_disabled_endpoint(ana: Person) -> None:
    path = f"/webhook-endpoints/{create(ana)['id']}"
    message = publish(ana)
    ana.patch(path, {"enabled": False})

    answer = ana.post(f"{path}/deliveries/{message.pk}/resend")

    assert (answer.status_code, answer.json()["code"]) == (409, "WEBHOOK_NOT_ENABLED")


def test_another_tenants_endpoint_does_not_exist(ana: Person, ben: Person) -> None:
    path = f"/webhook-endpoints/{create(ana)['id']}"
    message = publish(ana)

    answers = [
        ben.get(path),
        ben.patch(path, {"enabled": False}),
        ben.delete(path),
        ben.post(f"{path}/rotate"),
        ben.get(f"{path}/deliveries"),
        ben.post(f"{path}/deliveries/{message.pk}/resend"),
    ]

    assert {answer.status_code for answer in answers} == {404}
    assert WebhookEndpoint.objects.get().enabled


def test_a_delivery_of_another_endpoint_is_not_resent(ana: Person) -> None:
    create(ana)
    message = publish(ana)
    other = create(ana)["id"]

    assert ana.post(f"/webhook-endpoints/{other}/deliveries/{message.pk}/resend").status_code == 404


def test_a_change_of_vault_keys_encrypts_secrets_anew(ana: Person, settings: Settings) -> None:
    old, new = "an old key of thirty-two characters", "a new key of thirty-two characters!"
    settings.INTEGRATIONS_VAULT_KEYS = [old]
    secret = create(ana)["secret"]
    ana.post(f"/webhook-endpoints/{WebhookEndpoint.objects.get().pk}/rotate")
    settings.INTEGRATIONS_VAULT_KEYS = [new, old]

    call_command("rotate_vault")
    settings.INTEGRATIONS_VAULT_KEYS = [new]

    call_command("rotate_vault", "--check")
    assert endpoints.signing_secrets(WebhookEndpoint.objects.get())[1] == secret


def test_no_log_line_has_an_address_or_a_secret(ana: Person, caplog: pytest.LogCaptureFixture) -> None:
    secret = create(ana)["secret"]
    publish(ana)
    (claimed,) = queue.claim_due()
    queue.settle(claimed, Attempt(WEBHOOK_STATUS, 503), 87)

    lines = caplog.text + json.dumps([str(record.msg) for record in caplog.records])
    assert "Message sent." in lines
    assert secret not in lines
    assert "hooks.example.com" not in lines
