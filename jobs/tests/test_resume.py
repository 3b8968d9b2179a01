"""A retry proves first, without a lock, and moves only what it has proven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from accounts.audit.models import AuditEntry
from accounts.errors import ApiError
from accounts.models import User
from console.invariant_report import invariant_report
from documents.storage import LocalSignedStorage
from jobs import services, staff_actions
from jobs.models import Event, UploadJob
from testing.concurrency import run_concurrently
from testing.factories import UserFactory
from testing.personas import Person, Upload, plan_pdf

pytestmark = pytest.mark.django_db(transaction=True)
WHY = "ticket 4711"


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[str], object]]:
    """What is done whenever the store is looked at; the store itself is the real one."""
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
def dead(ana: UUID, settings: Any, store: None) -> Upload:
    settings.JOBS_PIPELINES = "accessa.pipelines.PIPELINES"
    made = Person("mia").ingest(plan_pdf("dental", lines=5))
    assert made.job.state == "done"
    UploadJob.objects.filter(pk=made.job_id).update(**{"state": "deadletter", "last_error": {"code": "X"}})
    return made


@pytest.fixture
def sue(db: None) -> User:
    return UserFactory.create(username="sue")


def test_while_the_store_is_looked_at_no_transaction_is_open(dead: Upload, sue: User, looked: list[Any]) -> None:
    open_then: list[bool] = []
    looked.append(lambda _: open_then.append(connection.in_atomic_block))

    staff_actions.retry(dead.job, by=sue, reason=WHY)

    assert open_then
    assert not any(open_then)


def test_a_job_is_advanced_with_no_transaction_open_while_it_is_proven(dead: Upload, looked: list[Any]) -> None:
    open_then: list[bool] = []
    services.retry(dead.job, by="sam", stage="parsing")
    looked.append(lambda _: open_then.append(connection.in_atomic_block))

    assert services.advance(dead.job, by="service").stage == "parsed"

    assert open_then
    assert not any(open_then)


def test_what_changes_while_it_is_proven_is_proven_again(dead: Upload, sue: User, looked: list[Any]) -> None:
    changes = Counter[str]()

    def change(_: str) -> None:
        if not changes["made"]:  # under the proof's feet: another worker's doing
            UploadJob.objects.filter(pk=dead.job_id).update(**{"stage": "parsed", "updated_at": "2026-01-01T00:00Z"})
            changes["made"] += 1

    looked.append(change)

    staff_actions.retry(dead.job, by=sue, reason=WHY)

    assert dead.job.stage == "parsed"
    assert AuditEntry.objects.get().details["from"] == "parsed"


def test_what_never_stands_still_is_left_as_it_is(dead: Upload, sue: User, looked: list[Any]) -> None:
    looked.append(lambda _: services.reset_plan(dead.job))

    with pytest.raises(ApiError, match="JOB_STATE_CHANGED"):
        staff_actions.retry(dead.job, by=sue, reason=WHY)

    assert dead.job.state == "deadletter"
    assert not AuditEntry.objects.exists()


def test_of_two_who_have_both_proven_a_job_one_moves_it(dead: Upload, sue: User, looked: list[Any]) -> None:
    tom = UserFactory.create(username="tom")
    done = Counter[str]()

    def other(_: str) -> None:
        if not done["other"]:
            done["other"] += 1
            run_concurrently(lambda: staff_actions.retry(dead.job, by=tom, reason=WHY))

    looked.append(other)

    with pytest.raises(ApiError, match="JOB_ALREADY_ACTIVE"):
        staff_actions.retry(dead.job, by=sue, reason=WHY)

    assert AuditEntry.objects.get().actor == "tom"
    assert Event.objects.filter(code="REQUEUED").count() == 1


def test_all_stages_of_a_job_are_proven_with_one_read_of_its_parse(dead: Upload, looked: list[Any]) -> None:
    calls = Counter[str]()
    looked.append(lambda name: calls.update([name]))

    found = invariant_report(dead.job)

    assert [each.verdict for each in found].count("holds") >= 5
    assert calls == {"exists": 2, "size": 1, "read": 1}
    calls.clear()
    invariant_report(dead.job)
    assert calls["read"] == 1  # another look is another pass
