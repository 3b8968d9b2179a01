"""Stopping a sync frees its source; a stopped purge starts again."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from accounts.audit.models import AuditEntry
from integrations.models import ConnectedSource, IngestionJob
from integrations.sync import lifecycle, pgmq, pgmq_consumer
from integrations.sync.pgmq import TABLE, Body
from testing.factories import syncs as paged
from testing.factories.records import create_source
from testing.personas import Person

pytestmark = pytest.mark.django_db
Kind, Status = IngestionJob.Kind, IngestionJob.Status


def lost() -> None:
    """Empty the queue, as a database that was restored without it has it."""
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {TABLE}")


def stop(source_id: object, *more: str) -> str:
    output = StringIO()
    call_command("connectors", "stop", str(source_id), *more, stdout=output)
    return output.getvalue()


def test_a_sync_whose_message_was_lost_can_be_stopped(ana: Person) -> None:
    source = create_source(ana.id)
    stranded = lifecycle.start_sync(source, Kind.FULL, by="test")
    lost()

    output = stop(source.pk, "--reason", "restored without its queue")

    stranded.refresh_from_db()
    assert str(stranded.pk) in output
    assert (stranded.status, stranded.error_message) == (Status.FAILED, "SYNC_STOPPED")
    assert lifecycle.start_sync(source, Kind.FULL, by="test").status == Status.QUEUED
    entry = AuditEntry.objects.get(action="connectors.stop")
    assert (entry.object_id, entry.tenant_id, entry.details) == (str(source.pk), ana.id, {"kind": Kind.FULL})


def test_a_page_of_a_stopped_sync_is_not_run() -> None:
    body = paged.create_sync()
    pgmq.enqueue_page(body)

    stop(body.source_id, "--reason", "it fetches the wrong account")
    pgmq_consumer.drain(float("inf"))

    assert not pgmq.has_messages()
    assert IngestionJob.objects.get(pk=body.job_id).error_message == "SYNC_STOPPED"


def test_stopping_a_purge_starts_it_again(ana: Person) -> None:
    source = create_source(ana.id)
    ConnectedSource.objects.filter(pk=source.pk).update(status=ConnectedSource.Status.DISCONNECTED)
    lifecycle.start_sync(source, Kind.FORGET, by="test")
    lost()

    stop(source.pk, "--reason", "restored without its queue")

    anew = IngestionJob.objects.get(source=source, status=Status.QUEUED)
    message = pgmq.read_message()
    assert message is not None
    assert message.body == Body(anew.pk, source.pk, ana.id, Kind.FORGET)


def test_without_a_sync_or_a_source_nothing_is_stopped(ana: Person) -> None:
    source = create_source(ana.id)

    with pytest.raises(CommandError, match="No sync of the source is running"):
        stop(source.pk, "--reason", "why not")
    with pytest.raises(CommandError, match="no such source"):
        stop(ana.id, "--reason", "why not")

    assert not AuditEntry.objects.filter(action="connectors.stop").exists()
