"""Replay of archived messages: their sync continues once, and only where it stopped."""

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from django.db.models.functions import Now

from accounts.audit.models import AuditEntry
from accounts.errors import ApiError
from integrations.models import ConnectedSource, IngestionJob
from integrations.sync import lifecycle, pgmq
from integrations.sync.pgmq import ARCHIVE, QUEUE, Body
from testing.factories import syncs
from testing.personas import Person

pytestmark = pytest.mark.django_db


def given_up(page: int = 0, **columns: Any) -> tuple[int, Body]:
    """Return a sync that failed at ``page``, and the archived message of that page."""
    body = syncs.create_sync(page=page, status="failed", error_message="max_retries_exceeded", **columns)
    msg_id = pgmq.enqueue_page(body)
    message = pgmq.read_message()
    assert message is not None
    assert pgmq.archive_message(message)
    return msg_id, body


def archived() -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT msg_id FROM {ARCHIVE} ORDER BY msg_id")
        return [row[0] for row in cursor.fetchall()]


def refusal(msg_id: int) -> str:
    became = lifecycle.replay_messages([msg_id], by=None)[msg_id]
    assert isinstance(became, ApiError)
    return became.code


@pytest.mark.parametrize(("page", "status"), [(0, "queued"), (4, "running")])
def test_a_replayed_page_is_read_again_and_its_sync_continues(page: int, status: str) -> None:
    began = {"started_at": "2026-01-01T00:00Z"} if page else {}
    msg_id, body = given_up(page, finished_at="2026-01-02T00:00Z", **began)

    sent = lifecycle.replay_messages([msg_id], by=None)[msg_id]

    message = pgmq.read_message()
    assert message is not None
    assert (message.msg_id, message.deliveries, message.body) == (sent, 1, body)
    job = IngestionJob.objects.get(pk=body.job_id)
    assert (job.status, job.error_message, job.finished_at, job.page) == (status, None, None, page)
    assert archived() == []
    assert lifecycle.replay_messages([msg_id], by=None)[msg_id].code == "NOT_FOUND"  # type: ignore[union-attr]


def test_an_insert_from_the_archive_is_answered_with_the_command() -> None:
    msg_id, _ = given_up()
    copy = f"INSERT INTO {pgmq.TABLE} (read_ct, vt, message) SELECT 0, now(), message FROM {ARCHIVE}"

    with (
        pytest.raises(DatabaseError, match=f'Run "manage.py replay_ingestion {msg_id}"'),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(copy)

    assert not pgmq.has_messages()
    call_command("replay_ingestion", str(msg_id), stdout=StringIO())
    assert pgmq.has_messages()


def test_a_replay_is_audited_with_actor_and_reason(sam: Person) -> None:
    msg_id, body = given_up()

    sent = lifecycle.replay_messages([msg_id], by=sam.user, reason="the provider is well again")[msg_id]

    entry = AuditEntry.objects.get(action="ingestion.replay")
    assert (entry.actor_id, entry.reason) == (sam.user.pk, "the provider is well again")
    assert (entry.object_id, entry.tenant_id) == (str(body.job_id), body.user_id)
    assert entry.details == {"archived": msg_id, "message": sent}


def test_a_message_is_not_replayed_beside_another_active_sync() -> None:
    msg_id, body = given_up()
    syncs.create_sync(ConnectedSource.objects.get(pk=body.source_id))

    assert refusal(msg_id) == "SYNC_ALREADY_ACTIVE"

    assert archived() == [msg_id]
    assert not pgmq.has_messages()
    assert IngestionJob.objects.get(pk=body.job_id).status == "failed"
    assert not AuditEntry.objects.filter(action="ingestion.replay").exists()


@pytest.mark.parametrize("status", ["error", "disconnected"])
def test_a_message_of_an_inactive_source_is_not_replayed(status: str) -> None:
    msg_id, body = given_up()
    ConnectedSource.objects.filter(pk=body.source_id).update(status=status)

    assert refusal(msg_id) == "SOURCE_NOT_ACTIVE"


def test_a_purge_of_a_disconnected_source_can_be_replayed() -> None:
    msg_id, body = given_up(kind="forget")
    ConnectedSource.objects.filter(pk=body.source_id).update(status="disconnected")

    assert isinstance(lifecycle.replay_messages([msg_id], by=None)[msg_id], int)


@pytest.mark.parametrize("now", [{"page": 3}, {"status": "completed"}, {"status": "running"}])
def test_a_page_that_its_sync_has_passed_is_not_replayed(now: dict[str, Any]) -> None:
    msg_id, body = given_up(2)
    IngestionJob.objects.filter(pk=body.job_id).update(**now)

    assert refusal(msg_id) == "SYNC_WENT_ON"


def test_a_page_is_not_replayed_after_a_newer_sync() -> None:
    """Its end would take for gone whatever only the newer sync has seen."""
    msg_id, body = given_up()
    newer = IngestionJob.objects.create(
        source_id=body.source_id, user_id=body.user_id, kind="full_sync", status="completed", finished_at=Now()
    )

    assert (refusal(msg_id), newer.page) == ("SYNC_WENT_ON", 0)


def test_a_page_of_a_deleted_source_is_not_replayed() -> None:
    msg_id, _ = given_up()
    ConnectedSource.objects.all().delete()

    assert refusal(msg_id) == "SYNC_GONE"


def test_a_malformed_message_is_not_replayed() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT ingestion_enqueue(%s, '{}'::jsonb)", [QUEUE])
        msg_id = cursor.fetchone()[0]
    assert pgmq.read_message() is None

    assert refusal(msg_id) == "MESSAGE_MALFORMED"


def run(*arguments: str) -> str:
    output = StringIO()
    call_command("replay_ingestion", *arguments, stdout=output)
    return output.getvalue()


def test_the_command_replays_messages_and_reports_refused_ones() -> None:
    first, _ = given_up()
    second, body = given_up()
    third, _ = given_up()
    syncs.create_sync(ConnectedSource.objects.get(pk=body.source_id))

    assert "1 replayed." in run(str(first))
    output = run("--all", "--reason", "they are well again")

    assert f"{second}  SYNC_ALREADY_ACTIVE" in output
    assert f"{third} -> " in output
    assert "1 replayed." in output
    assert archived() == [second]
    assert set(AuditEntry.objects.filter(action="ingestion.replay").values_list("actor", "reason")) == {
        ("command line", "replayed"), ("command line", "they are well again")
    }  # fmt: skip


def test_the_command_needs_messages_or_all() -> None:
    with pytest.raises(CommandError, match="--all"):
        run()
