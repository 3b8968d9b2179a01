"""Consecutive stages that share a commit: what is written, when, and at which stage a failure or a death is charged."""

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.db.utils import OperationalError

from jobs import claims, failpoints, services, worker
from jobs.choices import Stage
from jobs.claims import Claim, ClaimLost
from jobs.cluster import shared_state
from jobs.models import Event, UploadJob
from jobs.outcomes import Permanent, Retryable, Wait
from jobs.unsaved_stages import UnsavedStage
from testing import stub_pipelines
from testing.cluster import wait_until
from testing.error_codes import error_code
from testing.factories import JobFactory

ALL = [stage.value for stage in Stage]


class Clock:
    """A monotonic clock that stands, and is advanced by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("jobs.claims.MAX_UNSAVED_SECONDS", 1.0)
        self.ahead = 0.0
        began = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: began + self.ahead)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a second's work take a minute, as on a machine that is busy."""
    monkeypatch.setattr("jobs.claims.MAX_UNSAVED_SECONDS", 60.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def during(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[Claim], object]]:
    """Return what happens in a stage of the pipeline "joined", before it ends, by the stage's name."""
    monkeypatch.setattr(stub_pipelines, "DURING", {})
    return stub_pipelines.DURING


def enqueue(user: UUID) -> UploadJob:
    job = JobFactory.create(user_id=user, pipeline="joined", stage="queued")
    return UploadJob.objects.get(pk=job.pk)


def moves(job: UploadJob) -> list[tuple[str, object, object, object]]:
    events = Event.objects.filter(job_id=job.pk, payload__has_key="attempt").order_by("ts")
    return [(each.code, each.payload["stage"], each.payload.get("from"), each.payload["attempt"]) for each in events]


def written(job: UploadJob) -> list[str]:
    events = Event.objects.filter(job_id=job.pk, code="WRITTEN").order_by("ts")
    return [str(each.payload["at"]) for each in events]


def transactions(job: UploadJob) -> int:
    """Count the transactions in which stages have ended."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(DISTINCT xmin::text) FROM events WHERE job_id = %s AND type = 'stage_done'", [job.pk]
        )
        return int(cursor.fetchone()[0])


def run_one_by_one(user: UUID) -> UploadJob:
    job = enqueue(user)
    claim = claims.claim_next("w")
    assert claim
    while claim.settle(worker.run_stage(claim)):
        pass
    return job


@pytest.mark.django_db(transaction=True)
def test_stages_that_join_are_one_commit_and_leave_the_same_as_one_by_one(ana: UUID) -> None:
    job = enqueue(ana)

    worker.drain()

    other = run_one_by_one(ana)
    # The plan: two that join the first, one that does not, one that joins it.
    assert (transactions(job), transactions(other)) == (2, 5)
    assert moves(job) == moves(other)
    assert written(job) == written(other) == ALL[:5]
    rows = UploadJob.objects.filter(pk__in=[job.pk, other.pk])
    same = {(row.stage, row.state, row.total_pct, row.attempts, str(row.payload), str(row.progress)) for row in rows}
    assert len(same) == 1
    assert UploadJob.objects.get(pk=job.pk).progress == {"written": 4}


@pytest.mark.django_db(transaction=True)
def test_the_time_of_each_event_is_when_its_stage_ended(
    ana: UUID, during: dict[str, Callable[[Claim], object]], clock: Clock
) -> None:
    seconds = {"queued": 0.2, "job_validated": 0.3, "parsing": 0.4}

    def work(claim: Claim) -> None:
        clock.ahead += seconds[claim.job.stage]

    during.update(dict.fromkeys(seconds, work))
    job = enqueue(ana)

    worker.drain()

    assert transactions(job) == 2
    times = [each.ts for each in Event.objects.filter(job_id=job.pk, payload__has_key="from").order_by("ts")]
    took = [(after - before).total_seconds() for before, after in pairwise(times[:3])]
    assert took == pytest.approx([0.3, 0.4], rel=0.05, abs=0.01)


@pytest.mark.django_db(transaction=True)
def test_work_that_was_done_ahead_counts_for_its_own_stage(
    ana: UUID, during: dict[str, Callable[[Claim], object]], clock: Clock
) -> None:
    def ahead(claim: Claim) -> None:
        clock.ahead += 0.5
        claim.lead_seconds = 0.5

    def use(claim: Claim) -> None:
        claim.lead_seconds = 0.0

    during |= {"queued": ahead, "parsing": use}
    job = enqueue(ana)

    worker.drain()

    times = [each.ts for each in Event.objects.filter(job_id=job.pk, payload__has_key="from").order_by("ts")]
    took = [(after - before).total_seconds() for before, after in pairwise(times[:3])]
    assert took == pytest.approx([0.0, 0.5], rel=0.05, abs=0.01)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("seconds", [(1.1, 0.0), (0.6, 0.6)], ids=str)
def test_a_second_of_unsaved_work_is_saved_before_the_next_stage(
    ana: UUID, seconds: tuple[float, float], during: dict[str, Callable[[Claim], object]], clock: Clock
) -> None:
    def work(claim: Claim) -> None:
        clock.ahead += seconds[ALL.index(claim.job.stage)]

    during |= {"queued": work, "job_validated": work}
    job = enqueue(ana)

    worker.drain()

    assert transactions(job) == 3
    assert written(job) == ALL[:5]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("stage", ALL[1:3])
@pytest.mark.parametrize(
    ("error", "state"),
    [
        (Retryable(error_code("ALWAYS_FAILS")), "retryable"),
        (Permanent(error_code("NEVER_GOOD")), "deadletter"),
        (Wait(60, error_code("waiting_for_nothing")), "queued"),
        (RuntimeError("a bug"), "retryable"),
    ],
    ids=["retryable", "permanent", "wait", "bug"],
)
@pytest.mark.parametrize("where", ["handler", "write"])
def test_a_failure_is_charged_to_its_stage_and_those_before_are_saved(
    ana: UUID,
    during: dict[str, Callable[[Claim], object]],
    stage: str,
    error: Exception,
    state: str,
    where: str,
) -> None:
    def fail(*_: object) -> None:
        raise error

    during[stage if where == "handler" else f"{stage}:write"] = fail
    job = enqueue(ana)

    worker.drain()

    row = UploadJob.objects.get(pk=job.pk)
    assert (row.stage, row.state) == (stage, state)
    assert written(job) == ALL[: ALL.index(stage)]
    if state != "queued":
        assert row.last_error is not None
        assert (row.last_error["stage"], row.last_error["attempt"]) == (stage, 1)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("lose", ["cancelled", "deleted", "expired"])
def test_a_lost_claim_saves_none_of_its_stages(
    ana: UUID, during: dict[str, Callable[[Claim], object]], lose: str
) -> None:
    lost: list[str] = []

    def work(claim: Claim) -> None:
        if lose == "cancelled":
            services.cancel(claim.job, by="ana")
        elif lose == "deleted":
            UploadJob.objects.filter(pk=claim.job.pk).delete()
        else:
            UploadJob.objects.filter(pk=claim.job.pk).update(lease_until=claim.job.created_at)
            services.requeue_due_and_expired()
            claims.claim_next("other")

    during |= {"parsing": work, "lost": lambda claim: lost.append("queued")}
    job = enqueue(ana)

    worker.drain()

    assert written(job) == []
    assert lost == ["queued"]
    assert not UploadJob.objects.filter(pk=job.pk).exclude(stage="queued").exists()


class Died(BaseException):
    pass


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("point", ["chain:middle", "chain:before-commit", "chain:after-commit"])
def test_a_death_repeats_only_what_is_not_saved_and_one_by_one(
    ana: UUID, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = enqueue(ana)
    with monkeypatch.context() as patch:

        def reach(reached: str) -> None:
            if reached == point:
                raise Died

        patch.setattr(failpoints, "failpoint", reach)
        with pytest.raises(Died):
            worker.drain()
    was_saved = written(job)
    UploadJob.objects.filter(state="working").update(lease_until=job.created_at)
    services.requeue_due_and_expired()

    worker.drain()

    assert was_saved == (ALL[:3] if point == "chain:after-commit" else [])
    assert written(job) == ALL[:5]
    assert UploadJob.objects.get(pk=job.pk).state == "done"
    # The culprit would be known: after a death nothing is shared.
    assert transactions(job) == (3 if was_saved else 5)


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_stops_saves_what_is_done_and_releases_the_job(
    ana: UUID, during: dict[str, Callable[[Claim], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(claim: Claim) -> None:
        monkeypatch.setattr(shared_state, "is_stopping", lambda: True)

    during["job_validated"] = stop
    job = enqueue(ana)

    worker.drain()

    row = UploadJob.objects.get(pk=job.pk)
    assert (row.stage, row.state, row.attempts) == ("parsing", "queued", 0)
    assert written(job) == ALL[:2]


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_stage_that_is_slow_shows_its_progress_while_it_runs(
    ana: UUID, during: dict[str, Callable[[Claim], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.claims.MAX_UNSAVED_SECONDS", 1.0)
    shown: list[tuple[str, list[str]]] = []
    job = enqueue(ana)

    def look() -> bool:
        shown.append((UploadJob.objects.get(pk=job.pk).stage, written(job)))
        return shown[-1][0] == "parsing"

    def work(claim: Claim) -> None:
        wait_until(look, seconds=20)

    during["parsing"] = work

    worker.drain()

    assert shown[0] == ("queued", [])
    assert shown[-1] == ("parsing", ALL[:2])
    assert written(job) == ALL[:5]
    assert [code for code, *_ in moves(job)].count("STAGE_DONE") == 5


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_the_heartbeat_outlives_a_cleanup_that_fails(
    ana: UUID, during: dict[str, Callable[[Claim], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.claims.MAX_UNSAVED_SECONDS", 1.0)
    failures: list[str] = []
    job = enqueue(ana)

    def fail(claim: Claim) -> None:
        failures.append("the store is away")
        raise OSError(failures[-1])

    def lose(claim: Claim) -> None:
        services.cancel(claim.job, by="ana")
        wait_until(lambda: len(failures) > 1, seconds=20)

    during |= {"parsing": lose, "lost": fail}

    worker.drain()

    assert len(failures) > 1
    assert UploadJob.objects.get(pk=job.pk).state == "deadletter"


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_commit_of_the_heartbeat_whose_answer_is_lost_is_not_made_again(
    ana: UUID, during: dict[str, Callable[[Claim], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.claims.MAX_UNSAVED_SECONDS", 1.0)
    job = enqueue(ana)
    lost: list[str] = []

    def lose_answer() -> None:
        lost.append("its answer")
        raise OperationalError("the connection is lost after the commit")

    def work(claim: Claim) -> None:
        wait_until(lambda: UploadJob.objects.get(pk=job.pk).stage == "parsing", seconds=20)

    during |= {
        "job_validated:write": lambda claim: (
            transaction.on_commit(lose_answer) if threading.current_thread().name == "heartbeat" else None
        ),
        "parsing": work,
    }
    worker.drain()
    during.clear()
    UploadJob.objects.filter(state="working").update(lease_until=job.created_at)
    services.requeue_due_and_expired()

    worker.drain()

    assert lost == ["its answer"]
    assert written(job) == ALL[:5]
    assert [code for code, *_ in moves(job)].count("STAGE_DONE") == 5


@pytest.mark.django_db(transaction=True)
def test_a_write_that_failed_may_be_made_by_the_heartbeat_before_it_is_undone(
    ana: UUID, during: dict[str, Callable[[Claim], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [RuntimeError("a deadlock, say")]
    return_to = Claim.return_to

    def fail_once(claim: Claim) -> None:
        while failures:
            raise failures.pop()

    def save_first(claim: Claim, stage: UnsavedStage) -> None:
        monkeypatch.setattr(claim, "_is_overdue", lambda: True)
        claim.save_overdue()
        return_to(claim, stage)

    monkeypatch.setattr(Claim, "return_to", save_first)
    during["job_validated:write"] = fail_once
    job = enqueue(ana)

    worker.drain()

    assert written(job) == ALL[:3]
    assert (UploadJob.objects.get(pk=job.pk).stage, UploadJob.objects.get(pk=job.pk).state) == ("parsed", "retryable")


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_the_heartbeat_and_the_worker_save_a_stage_once(ana: UUID) -> None:
    """Whoever comes first: the other finds nothing left."""
    for _ in range(20):
        job = enqueue(ana)
        claim = claims.claim_next("w")
        assert claim
        claim.shares_commits = True
        worker.run_stage(claim)
        began = threading.Barrier(2)

        def save(claim: Claim = claim, began: threading.Barrier = began) -> None:
            began.wait()
            claim._is_overdue = lambda: bool(claim._unsaved)  # type: ignore[method-assign]
            claim.save_overdue()
            connection.close()

        other = threading.Thread(target=save)
        other.start()
        began.wait()
        claim.save()
        other.join()

        assert written(job) == ["queued"]
        assert [move[0] for move in moves(job)] == ["CLAIMED", "STAGE_DONE"]
        claim.move("release")
        services.cancel(claim.job, by="ana")


@pytest.mark.django_db(transaction=True)
def test_a_claim_that_is_lost_meanwhile_raises(ana: UUID) -> None:
    enqueue(ana)
    claim = claims.claim_next("w")
    assert claim
    claim.end_stage()
    services.cancel(UploadJob.objects.get(pk=claim.job.pk), by="ana")

    with pytest.raises(ClaimLost):
        claim.save()
