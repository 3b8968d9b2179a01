"""Retries that check invariants without a lock while the job changes."""

from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from accounts.audit.models import AuditEntry
from accounts.errors import ApiError
from accounts.models import User
from console.job_invariants import invariant_report
from documents.storage.local import LocalSignedStorage
from jobs import services, staff_actions
from jobs.models import Event, UploadJob
from testing.concurrency import run_concurrently
from testing.factories import UserFactory
from testing.personas import Person, Upload, plan_pdf

pytestmark = pytest.mark.django_db(transaction=True)
WHY = "ticket 4711"


@pytest.fixture
def on_store_read(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[str], object]]:
    """Return callbacks that run at each read of the store, which is the real one."""
    doing: list[Callable[[str], object]] = []
    for name in ("exists", "size", "read"):
        real = getattr(LocalSignedStorage, name)

        def look(self: Any, path: str, *, _name: str = name, _real: Any = real) -> Any:
            for each in doing:
                each(_name)
            return _real(self, path)

        monkeypatch.setattr(LocalSignedStorage, name, look)
    return doing


@pytest.fixture
def dead_letter(ana: UUID, settings: Any, store: None) -> Upload:
    settings.JOBS_PIPELINES = "accessa.pipelines.PIPELINES"
    upload = Person("mia").ingest(plan_pdf("dental", lines=5))
    assert upload.job.state == "done"
    UploadJob.objects.filter(pk=upload.job_id).update(**{"state": "deadletter", "last_error": {"code": "X"}})
    return upload


@pytest.fixture
def sue(db: None) -> User:
    return UserFactory.create(username="sue")


def test_a_retry_reads_the_store_outside_transactions(dead_letter: Upload, sue: User, on_store_read: list[Any]) -> None:
    open_then: list[bool] = []
    on_store_read.append(lambda _: open_then.append(connection.in_atomic_block))

    staff_actions.retry(dead_letter.job, by=sue, reason=WHY)

    assert open_then
    assert not any(open_then)


def test_advance_checks_the_invariant_outside_transactions(dead_letter: Upload, on_store_read: list[Any]) -> None:
    open_then: list[bool] = []
    services.retry(dead_letter.job, by="sam", stage="parsing")
    on_store_read.append(lambda _: open_then.append(connection.in_atomic_block))

    assert services.advance(dead_letter.job, by="service").stage == "parsed"

    assert open_then
    assert not any(open_then)


def test_a_job_that_changes_during_the_check_is_checked_again(
    dead_letter: Upload, sue: User, on_store_read: list[Any]
) -> None:
    changes = Counter[str]()

    def change(_: str) -> None:
        if not changes["made"]:  # under the proof's feet: another worker's doing
            UploadJob.objects.filter(pk=dead_letter.job_id).update(
                **{"stage": "parsed", "updated_at": "2026-01-01T00:00Z"}
            )
            changes["made"] += 1

    on_store_read.append(change)

    staff_actions.retry(dead_letter.job, by=sue, reason=WHY)

    assert dead_letter.job.stage == "parsed"
    assert AuditEntry.objects.get().details["from"] == "parsed"


def test_a_job_that_keeps_changing_is_left_unchanged(dead_letter: Upload, sue: User, on_store_read: list[Any]) -> None:
    on_store_read.append(lambda _: services.reset_plan(dead_letter.job))

    with pytest.raises(ApiError, match="JOB_STATE_CHANGED"):
        staff_actions.retry(dead_letter.job, by=sue, reason=WHY)

    assert dead_letter.job.state == "deadletter"
    assert not AuditEntry.objects.exists()


def test_one_of_two_concurrent_retries_moves_the_job(dead_letter: Upload, sue: User, on_store_read: list[Any]) -> None:
    tom = UserFactory.create(username="tom")
    done = Counter[str]()

    def other(_: str) -> None:
        if not done["other"]:
            done["other"] += 1
            run_concurrently(lambda: staff_actions.retry(dead_letter.job, by=tom, reason=WHY))

    on_store_read.append(other)

    with pytest.raises(ApiError, match="JOB_ALREADY_ACTIVE"):
        staff_actions.retry(dead_letter.job, by=sue, reason=WHY)

    assert AuditEntry.objects.get().actor == "tom"
    assert Event.objects.filter(code="REQUEUED").count() == 1


def test_all_invariants_are_checked_with_one_read_of_the_parse(dead_letter: Upload, on_store_read: list[Any]) -> None:
    calls = Counter[str]()
    on_store_read.append(lambda name: calls.update([name]))

    report = invariant_report(dead_letter.job)

    assert [each.verdict for each in report].count("holds") >= 5
    assert calls == {"exists": 2, "size": 1, "read": 1}
    calls.clear()
    invariant_report(dead_letter.job)
    assert calls["read"] == 1  # another look is another pass
