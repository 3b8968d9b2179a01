"""Nightly syncs: off by default, once a night, one for all missed nights, in bounded batches."""

import io
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from django_q.models import Schedule

from accounts.audit.models import AuditEntry
from integrations.models import ConnectedSource, IngestionJob
from integrations.sync import nightly_schedule
from testing.concurrency import run_concurrently

pytestmark = pytest.mark.django_db


def sources(number: int, **output: Any) -> list[ConnectedSource]:
    synced = {"last_synced_at": timezone.now() - timedelta(days=1)} | output
    return [ConnectedSource.objects.create(user_id=uuid4(), provider="gmail", **synced) for _ in range(number)]


def planned(*, ago: timedelta = timedelta(minutes=5)) -> Schedule:
    """Plan the nights so that one is due."""
    night = nightly_schedule.schedule_nightly(2, 30)
    Schedule.objects.update(next_run=timezone.now() - ago)
    return night


def begun() -> int:
    return IngestionJob.objects.filter(kind="delta_sync").count()


def command_output(*arguments: str) -> str:
    line = io.StringIO()
    call_command("connectors", *arguments, stdout=line)
    return line.getvalue()


def test_the_newest_sync_and_its_code_are_listed() -> None:
    broken, new = sources(1, status="error", status_message="REFRESH_TOKEN_INVALID") + sources(1, last_synced_at=None)
    for ago, status, code in ((2, "failed", "VENDOR_REFUSED"), (1, "failed", "max_retries_exceeded")):
        job = IngestionJob.objects.create(
            user_id=broken.user_id, source=broken, kind="full_sync", status=status, error_message=code
        )
        IngestionJob.objects.filter(pk=job.pk).update(created_at=timezone.now() - timedelta(days=ago))

    lines = {line.split()[0]: line for line in command_output("list").splitlines() if line}

    assert "error: REFRESH_TOKEN_INVALID" in lines[str(broken.pk)]
    assert "full_sync failed: max_retries_exceeded" in lines[str(broken.pk)]
    assert "VENDOR_REFUSED" not in lines[str(broken.pk)]
    assert lines[str(new.pk)].split()[-1] == "active"


def test_nightly_syncs_are_off_by_default() -> None:
    sources(1)

    nightly_schedule.run_nightly()

    assert begun() == 0
    assert command_output("nightly") == "No nights are planned.\n"


def test_each_active_source_is_synced_once_a_night() -> None:
    sources(3)
    sources(1, status="error")
    sources(1, status="disconnected")
    planned()

    nightly_schedule.run_nightly()
    nightly_schedule.run_nightly()

    assert begun() == 3
    next_run = nightly_schedule.next_nightly_run()
    assert next_run is not None
    assert timedelta(hours=23) < next_run - timezone.now() <= timedelta(hours=24)


def test_a_source_that_syncs_or_has_synced_since_is_left_alone() -> None:
    busy, done, due = sources(3)
    long_ago = timezone.now() - timedelta(hours=2)
    for source, status, at in ((busy, "running", long_ago), (done, "completed", timezone.now())):
        IngestionJob.objects.create(user_id=source.user_id, source=source, kind="full_sync", status=status)
        IngestionJob.objects.filter(source=source).update(created_at=at)
    planned()

    nightly_schedule.run_nightly()

    assert [job.source_id for job in IngestionJob.objects.filter(kind="delta_sync")] == [due.pk]


def test_missed_nights_are_made_up_by_one_sync() -> None:
    (source,) = sources(1)
    IngestionJob.objects.create(user_id=source.user_id, source=source, kind="full_sync", status="completed")
    IngestionJob.objects.update(created_at=timezone.now() - timedelta(days=2))
    planned(ago=timedelta(days=3, minutes=5))

    nightly_schedule.run_nightly()
    nightly_schedule.run_nightly()

    assert begun() == 1
    next_run = nightly_schedule.next_nightly_run()
    assert next_run is not None
    assert next_run > timezone.now()


def test_a_night_continues_where_the_last_run_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nightly_schedule, "BATCH", 2)
    monkeypatch.setattr(nightly_schedule, "MOST_WAITING", 3)
    sources(5)
    planned()

    nightly_schedule.run_nightly()
    assert begun() == 4  # the queue was long enough then
    nightly_schedule.run_nightly()
    assert begun() == 4

    monkeypatch.setattr(nightly_schedule, "MOST_WAITING", 100)
    nightly_schedule.run_nightly()
    assert begun() == 5


@pytest.mark.django_db(transaction=True)
def test_two_clusters_run_a_night_once() -> None:
    sources(4)
    planned()

    run_concurrently(nightly_schedule.run_nightly, nightly_schedule.run_nightly)

    assert begun() == 4


def test_a_nightly_schedule_can_be_created_moved_and_deleted() -> None:
    assert "02:30 UTC" in command_output("nightly", "--at", "02:30")
    assert "03:45 UTC" in command_output("nightly", "--at", "03:45")
    assert Schedule.objects.count() == 1
    assert command_output("nightly", "--off") == "No more nights are planned.\n"
    assert not Schedule.objects.exists()
    with pytest.raises(CommandError, match="no time of day"):
        command_output("nightly", "--at", "25:00")


def test_the_command_lists_sources_and_audits_syncs() -> None:
    (source,) = sources(1, account="ana@corp.example", status_message=None)

    listed, synced = command_output("list"), command_output("sync", str(source.pk), "--full", "--reason", "ticket 7")

    assert str(source.pk) in listed
    assert "corp.example" not in listed
    assert str(source.pk) not in command_output("list", "--tenant", str(uuid4()))
    assert synced.startswith("Full sync begun")
    assert AuditEntry.objects.get().reason == "ticket 7"
    with pytest.raises(CommandError, match="SYNC_ALREADY_ACTIVE"):
        command_output("sync", str(source.pk))
    assert AuditEntry.objects.count() == 1
    with pytest.raises(CommandError, match="no such source"):
        command_output("sync", str(uuid4()))
