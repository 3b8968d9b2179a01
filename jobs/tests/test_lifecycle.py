"""Every move from every state: it sets exactly its target and writes one event, or does nothing."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from accounts.prepared_statements import Row
from jobs import claims, lifecycle
from jobs.choices import State
from jobs.models import Event, UploadJob
from testing.factories import JobFactory

# The machine as DESIGN §3 draws it, written down a second time: a changed row of MOVES must be changed here too.
# fmt: off
DRAWN = {
    #           from                              to
    "claim":   ("queued",                         "working",    "stage_started", "info",  "CLAIMED"),
    "advance": ("working",                        "working",    "stage_done",    "info",  "STAGE_DONE"),
    "finish":  ("working",                        "done",       "finalized",     "info",  "FINALIZED"),
    "wait":    ("working",                        "queued",     "stage_started", "info",  "WAITING"),
    "release": ("working",                        "queued",     "stage_started", "info",  "RELEASED"),
    "rewind":  ("working",                        "queued",     "stage_started", "info",  "REWOUND"),
    "retry":   ("working",                        "retryable",  "retry",         "warn",  "RETRY_SCHEDULED"),
    "expire":  ("working",                        "queued",     "retry",         "warn",  "LEASE_EXPIRED"),
    "overload": ("working",                       "queued",     "stage_started", "warn",  "OVERLOADED"),
    "disband": ("working",                        "queued",     "stage_started", "warn",  "BATCH_LOST"),
    "discard": ("working",                        "deadletter", "error",         "error", "DLQ_MOVED"),
    "due":     ("queued retryable",               "queued",     "stage_started", "info",  "DUE"),
    "push":    ("queued retryable",               "queued",     "stage_done",    "info",  "ADVANCED"),
    "deliver": ("queued working retryable",       "queued",     "stage_done",    "info",  "DELIVERED"),
    "cancel":  ("queued working retryable",       "deadletter", "error",         "warn",  "CANCELLED"),
    "requeue": ("deadletter",                     "queued",     "retry",         "info",  "REQUEUED"),
}
# fmt: on
PICK = "SELECT job_id, 0::smallint AS slot, false AS in_batch FROM upload_jobs WHERE job_id = %(job_id)s FOR UPDATE"
VALUES: dict[str, Any] = {
    "worker": "w",
    "lease": timedelta(seconds=20),
    "pause": timedelta(seconds=3),
    "reason": "WAITING_FOR_NOTHING",
    "error": {"code": "X"},
    "traceback": "frames",
    "stage": "embedded",
    "total_pct": 99.0,
}
EVERY = [(name, state) for name in lifecycle.MOVES for state in State.values]


def make_move(name: str, job: UploadJob, **values: Any) -> list[Row]:
    return lifecycle.make_move(name, PICK, event={"seen": "here"}, **{"job_id": job.pk, **VALUES, **values})


def job_row(job: UploadJob) -> dict[str, object]:
    return dict(UploadJob.objects.values().get(pk=job.pk))


def test_the_table_of_moves_equals_the_drawn_one() -> None:
    moves = {
        name: (
            " ".join(s for s in State.values if s in move.sources),
            str(move.target),
            move.type,
            move.severity,
            move.code,
        )
        for name, move in lifecycle.MOVES.items()
    }

    assert moves == DRAWN


@pytest.mark.django_db
@pytest.mark.parametrize(("name", "state"), EVERY)
def test_a_move_sets_its_target_and_writes_one_event_or_does_nothing(name: str, state: str) -> None:
    sources, target, type_, severity, code = DRAWN[name]
    job = JobFactory.create(state=state)
    before = job_row(job)

    moved = make_move(name, job)

    events = list(Event.objects.values_list("job_id", "type", "severity", "code"))
    if state in sources.split():
        assert [moved_row["job_id"] for moved_row in moved] == [job.pk]
        assert job_row(job)["state"] == target
        assert events == [(job.pk, type_, severity, code)]
    else:
        assert moved == []
        assert job_row(job) == before
        assert events == []


@pytest.mark.django_db
@pytest.mark.parametrize(("name", "state"), [pair for pair in EVERY if pair[1] in DRAWN[pair[0]][0].split()])
def test_only_a_working_job_is_held(name: str, state: str) -> None:
    job = JobFactory.create(state=state)

    make_move(name, job)

    job.refresh_from_db()
    held = (job.claim_token, job.lease_until, job.slot)
    assert all(value is not None for value in held) if job.state == "working" else held == (None, None, None)
    assert (job.finished_at is not None) == (job.state in ("done", "deadletter"))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", lifecycle.MOVES)
def test_a_move_that_is_rolled_back_leaves_neither_its_state_nor_its_event(name: str) -> None:
    job = JobFactory.create(state=DRAWN[name][0].split()[0])
    before = job_row(job)

    with transaction.atomic():
        assert make_move(name, job)
        transaction.set_rollback(True)

    assert job_row(job) == before
    assert not Event.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("name", lifecycle.MOVES)
def test_an_event_has_stage_attempt_and_correlation_of_the_moved_row(name: str) -> None:
    job = JobFactory.create(state=DRAWN[name][0].split()[0])

    make_move(name, job)

    job.refresh_from_db()
    event = Event.objects.get()
    assert event.payload == {"stage": job.stage, "attempt": job.attempts, "seen": "here"}
    assert (event.document_id, event.user_id) == (job.document_id, job.user_id)
    assert event.correlation_id == job.correlation_id


@pytest.mark.django_db
def test_a_rewind_resets_the_stage_and_keeps_the_progress() -> None:
    columns = {"stage": "embeddings_buffered", "total_pct": 95.0, "attempts": 3, "retry_count": 2}
    job = JobFactory.create(state="working", pipeline="stages", **columns)

    make_move("rewind", job, stage="chunked")

    assert {name: job_row(job)[name] for name in columns} == {
        "stage": "chunked", "total_pct": 95.0, "attempts": 0, "retry_count": 0,
    }  # fmt: skip
    claim = claims.claim_next("w")
    assert claim is not None
    assert (claim.job.pk, claim.job.attempts, claim.job.run_after) == (job.pk, 1, None)
    with claim.transaction():
        claim.advance()
    assert (claim.job.stage, claim.job.total_pct) == ("embedding", 95.0)


@pytest.mark.django_db
def test_a_move_sets_only_what_a_handler_may_report() -> None:
    with pytest.raises(ValueError, match="state"):
        lifecycle.make_move("advance", PICK, fields={"state": "done"})


@pytest.mark.django_db
def test_a_move_of_many_rows_moves_each_once() -> None:
    jobs = JobFactory.create_batch(3, state="working", lease_until="2000-01-01T00:00Z")
    Event.objects.all().delete()
    for slot, job in enumerate(jobs):
        with connection.cursor() as cursor:
            cursor.execute("UPDATE upload_jobs SET slot = %s WHERE job_id = %s", [slot, job.pk])

    moved = lifecycle.make_move("expire", "SELECT job_id FROM upload_jobs FOR UPDATE", **VALUES)

    assert len(moved) == 3
    assert sorted(Event.objects.values_list("job_id", flat=True)) == sorted(job.pk for job in jobs)
