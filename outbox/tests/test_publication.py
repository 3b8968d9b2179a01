"""Events for webhooks: written with the move that decides, for subscribers only, with ids and codes only."""

from uuid import UUID, uuid4

import pytest
from django.db import transaction

from integrations.models import IngestionJob
from integrations.sync import lifecycle
from jobs import services
from outbox.models import EVENTS, Message, WebhookEndpoint
from outbox.webhooks import endpoints
from testing.factories import JobFactory, syncs
from testing.personas import Person, plan_pdf

pytestmark = pytest.mark.django_db


def listen(user_id: UUID, *events: str) -> WebhookEndpoint:
    url = "https://hooks.example.com/accessa"
    return endpoints.create_endpoint(user_id=user_id, url=url, events=events or EVENTS).endpoint


def test_a_finished_document_is_published_with_ids_and_codes_only(ana: Person) -> None:
    endpoint = listen(ana.id)

    uploaded = ana.ingest(plan_pdf("hospital care"))

    message = Message.objects.get()
    assert (message.user_id, message.target_id, message.state) == (ana.id, endpoint.pk, "queued")
    assert message.payload.pop("timestamp")
    assert message.payload == {
        "type": "document.completed",
        "data": {
            "document_id": str(uploaded.document_id),
            "job_id": str(uploaded.job_id),
            "stage": "embedded",
            "state": "done",
            "status": "complete",
            "code": None,
        },
    }


def test_a_failed_document_is_published_with_its_code(ana: Person) -> None:
    listen(ana.id)

    uploaded = ana.ingest(b"no pdf at all")

    message = Message.objects.get()
    assert message.payload["type"] == "document.failed"
    assert message.payload["data"]["code"] == uploaded.failure
    assert message.payload["data"]["status"] == uploaded.job.status


def test_a_cancelled_job_is_published() -> None:
    job = JobFactory.create(state="queued")
    listen(job.user_id)

    services.cancel(job, by="test")

    assert Message.objects.get().payload["data"]["code"] == "CANCELLED"


def test_only_enabled_endpoints_of_the_tenant_that_want_the_event_get_a_message() -> None:
    job, other = JobFactory.create(state="queued"), uuid4()
    wanted = listen(job.user_id, "document.failed")
    listen(job.user_id, "document.completed", "sync.failed")
    endpoints.update_endpoint(listen(job.user_id), enabled=False)
    listen(other)

    services.cancel(job, by="test")

    assert [message.target_id for message in Message.objects.all()] == [wanted.pk]


def test_the_job_of_a_campaign_is_not_published() -> None:
    job = JobFactory.create(state="queued", campaign_id=uuid4())
    listen(job.user_id)

    services.cancel(job, by="test")

    assert not Message.objects.exists()


def test_a_move_that_is_rolled_back_publishes_nothing() -> None:
    job = JobFactory.create(state="queued")
    listen(job.user_id)

    with transaction.atomic():
        services.cancel(job, by="test")
        assert Message.objects.exists()
        transaction.set_rollback(True)

    assert not Message.objects.exists()


def test_a_failed_sync_is_published_once() -> None:
    body = syncs.create_sync()
    listen(body.user_id)

    assert lifecycle.fail_sync(body.job_id, "SYNC_STOPPED")
    assert not lifecycle.fail_sync(body.job_id, "SYNC_STOPPED")

    message = Message.objects.get()
    assert message.payload["type"] == "sync.failed"
    assert message.payload["data"] == {
        "sync_id": str(body.job_id),
        "source_id": str(body.source_id),
        "kind": body.kind,
        "code": "SYNC_STOPPED",
    }
    assert IngestionJob.objects.get().error_message == "SYNC_STOPPED"
