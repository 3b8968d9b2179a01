"""Delivery of webhooks: signature, statuses, timeouts, redirects, rotation of secrets, disabled endpoints."""

import json
import time
from datetime import timedelta

import pytest
from cryptography.fernet import Fernet
from django.db.models.functions import Now
from django.utils import timezone
from pytest_django import Settings
from standardwebhooks import Webhook, WebhookVerificationError

from outbox import queue
from outbox.models import Message, WebhookEndpoint
from outbox.tests.conftest import Publish
from outbox.webhooks import delivery, endpoints
from outbox.webhooks.endpoints import NewSecret
from testing.fakes.callback_receiver import CallbackReceiver
from testing.fakes.faults import FAULTS, Fault, slow_head
from testing.fakes.http_messages import Request, Response

pytestmark = pytest.mark.django_db


def send() -> Message:
    """Send what is due, and return the one message."""
    queue.drain(time.monotonic() + 60)
    return Message.objects.get()


def verify(secret: str, letter: Request) -> object:
    return Webhook(secret).verify(letter.body, dict(letter.headers))


def test_the_reference_library_verifies_a_webhook(
    endpoint: NewSecret, publish: Publish, receiver: CallbackReceiver
) -> None:
    message = publish()

    send()

    (letter,) = receiver.letters
    assert verify(endpoint.secret, letter) == message.payload == json.loads(letter.body)
    assert (letter.route, letter.headers["content-type"]) == ("POST /hook", "application/json")


def test_both_secrets_sign_for_a_day_after_a_rotation(
    endpoint: NewSecret, publish: Publish, receiver: CallbackReceiver
) -> None:
    renewed = endpoints.rotate_secret(endpoint.endpoint)
    publish()

    send()
    WebhookEndpoint.objects.update(previous_secret_until=Now() - timedelta(seconds=1))
    Message.objects.update(state="queued", finished_at=None, due_at=Now())
    send()

    during, afterwards = receiver.letters
    assert verify(renewed.secret, during) == verify(endpoint.secret, during)
    assert verify(renewed.secret, afterwards)
    with pytest.raises(WebhookVerificationError):
        verify(endpoint.secret, afterwards)


def test_no_secret_is_stored_in_plain_text(endpoint: NewSecret) -> None:
    stored = bytes(WebhookEndpoint.objects.get().secret)

    assert endpoint.secret.encode() not in stored
    assert endpoint.secret.removeprefix("whsec_").encode() not in stored


def test_without_its_key_a_message_waits_and_the_endpoint_is_not_blamed(publish: Publish, settings: Settings) -> None:
    publish()
    settings.INTEGRATIONS_VAULT_KEYS = [Fernet.generate_key().decode()]

    message = send()

    assert (message.state, message.last_error) == ("queued", "WEBHOOK_SECRET_UNREADABLE")
    assert WebhookEndpoint.objects.get().failures == 0


@pytest.mark.parametrize("status", [199 + 101, 302, 307, 400, 404, 429, 500, 503])
def test_any_status_but_2xx_is_retried(status: int, publish: Publish, receiver: CallbackReceiver) -> None:
    receiver.statuses = [status]
    publish()

    message = send()

    assert (message.state, message.last_error, message.log[0]["status"]) == ("queued", "WEBHOOK_STATUS", status)


@pytest.mark.parametrize(
    ("status", "asked", "least", "most"),
    [
        (429, "120", 120, 150),
        (503, "120", 120, 150),
        (503, "999999", 600, 630),  # bounded
        (500, "120", 5, 36),
        (429, "soon", 5, 36),
        (429, "-5", 5, 36),
    ],
)
def test_a_receivers_retry_after_is_followed_up_to_ten_minutes(
    status: int, asked: str, least: int, most: int, publish: Publish, receiver: CallbackReceiver
) -> None:
    receiver.respond = lambda request: Response(status, headers={"Retry-After": asked})  # type: ignore[method-assign]
    publish()

    due, paused = send().due_at, WebhookEndpoint.objects.get().paused_until

    assert paused is not None
    for until in (due, paused):
        assert least - 5 <= (until - timezone.now()).total_seconds() <= most


def test_a_redirect_is_not_followed(publish: Publish, receiver: CallbackReceiver) -> None:
    def redirect(request: Request) -> Response:
        receiver.letters.append(request)
        return Response(307, headers={"Location": f"{receiver.url}/elsewhere"})

    receiver.respond = redirect  # type: ignore[method-assign]
    publish()

    send()

    assert [letter.path for letter in receiver.letters] == ["/hook"]


def test_gone_disables_the_endpoint(publish: Publish, receiver: CallbackReceiver) -> None:
    receiver.statuses = [410]
    publish()

    message = send()

    endpoint = WebhookEndpoint.objects.get()
    assert (message.state, message.last_error) == ("failed", "WEBHOOK_GONE")
    assert (endpoint.enabled, endpoint.disabled_code) == (False, "WEBHOOK_GONE")


def test_three_days_of_failures_disable_the_endpoint(publish: Publish, receiver: CallbackReceiver) -> None:
    receiver.statuses = [500, 500]
    publish()
    WebhookEndpoint.objects.update(failures=5, failing_since=Now() - timedelta(days=2, hours=23))

    send()
    assert WebhookEndpoint.objects.get().enabled
    WebhookEndpoint.objects.update(failing_since=Now() - timedelta(days=3, hours=1), paused_until=None)
    Message.objects.update(due_at=Now())
    send()

    endpoint = WebhookEndpoint.objects.get()
    assert (endpoint.enabled, endpoint.disabled_code) == (False, "WEBHOOK_FAILING")


def test_what_is_due_for_a_disabled_endpoint_fails_and_may_be_resent(
    endpoint: NewSecret, publish: Publish, receiver: CallbackReceiver
) -> None:
    publish()
    endpoints.update_endpoint(endpoint.endpoint, enabled=False)
    message = send()
    assert (message.state, message.last_error, receiver.letters) == ("failed", "WEBHOOK_DISABLED", [])
    endpoints.update_endpoint(endpoint.endpoint, enabled=True)

    endpoints.resend(message)

    assert send().state == "delivered"
    assert receiver.letters[0].headers["webhook-id"] == str(message.pk)


@pytest.mark.parametrize(
    ("fault", "code"),
    [(FAULTS["hang"], "WEBHOOK_TIMEOUT"), (slow_head(0.05), "WEBHOOK_TIMEOUT"), (FAULTS["one-byte-a-second"], None)],
    ids=lambda value: str(getattr(value, "name", value)),
)
def test_a_slow_receiver_is_waited_for_until_the_deadline_and_for_its_status_only(
    fault: Fault, code: str | None, publish: Publish, receiver: CallbackReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "TIMEOUT_SECONDS", 0.3)
    receiver.inject_fault("POST /hook", fault)
    publish()
    began = time.monotonic()

    message = send()

    assert message.last_error == code
    assert time.monotonic() - began < 10


def test_a_receiver_that_drops_or_is_away_is_unreachable(publish: Publish, receiver: CallbackReceiver) -> None:
    receiver.inject_fault("POST /hook", "reset")
    publish()
    assert send().last_error == "WEBHOOK_UNREACHABLE"
    receiver.refuse_connections()
    WebhookEndpoint.objects.update(paused_until=None)
    Message.objects.update(due_at=Now())

    assert send().last_error == "WEBHOOK_UNREACHABLE"
