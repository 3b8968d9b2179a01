"""Fixtures of the outbox: a receiver on this machine, an endpoint that leads to it, and messages for it."""

from collections.abc import Callable, Iterator
from uuid import UUID

import pytest
from pytest_django import Settings

from outbox.models import EVENTS, Message
from outbox.webhooks import endpoints
from outbox.webhooks.endpoints import NewSecret
from testing.fakes.callback_receiver import CallbackReceiver

TENANT = UUID("0b0c0d0e-0000-4000-8000-000000000001")
Publish = Callable[[], Message]


@pytest.fixture
def receiver(settings: Settings) -> Iterator[CallbackReceiver]:
    settings.WEBHOOKS_ALLOW_LOOPBACK = True
    with CallbackReceiver() as receiver:
        yield receiver


@pytest.fixture
def endpoint(receiver: CallbackReceiver, db: None) -> NewSecret:
    return endpoints.create_endpoint(user_id=TENANT, url=f"{receiver.url}/hook", events=EVENTS)


@pytest.fixture
def publish(endpoint: NewSecret) -> Publish:
    """Return a function that publishes an event for the endpoint and returns its message."""

    def publish() -> Message:
        known = set(Message.objects.values_list("pk", flat=True))
        endpoints.publish(user_id=TENANT, type="document.completed", data={"document_id": "d"})
        return Message.objects.exclude(pk__in=known).get()

    return publish
