"""The job machine against an in-memory model: random operations, compared after every step."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.db import connection, transaction
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from accounts.errors import ApiError
from documents import services as documents
from jobs import claims, services
from jobs.choices import Stage
from jobs.claim_batches import ClaimBatch
from jobs.claim_queries import BatchLimit
from jobs.claims import Claim, ClaimLost
from jobs.cluster import heartbeat as heart
from jobs.models import Event, UploadJob
from jobs.outcomes import Advance, Permanent, Retryable, Wait
from testing.error_codes import error_code
from testing.factories import DocumentFactory
from testing.sizes import size

pytestmark = pytest.mark.slow

RUNS, STEPS = size(30, full=2000), 50
USERS = [UUID(int=number) for number in range(1, 4)]
STAGES = [stage.value for stage in Stage]
CAMPAIGN = UUID(int=9)
PAUSE = 1000  # nothing becomes due by itself during a run


@dataclass
class Model:
    """What one job should be."""

    user: UUID
    document: UUID
    born: int
    low: bool = False
    stage: int = 0
    state: str = "queued"
    attempts: int = 0
    in_batch: bool = False
    parked: bool = False
    woken: bool = False
    token: UUID | None = None
    slot: int | None = None
    expired: bool = False
    overloaded: bool = False
    overloads: int = 0
    codes: list[str] = field(default_factory=lambda: ["UPLOAD_ACCEPTED"])

    def let_go(self, state: str, code: str, *, attempts: int | None = None, parked: bool = False) -> None:
        self.state, self.parked, self.token, self.slot = state, parked, None, None
        self.expired = self.woken = self.in_batch = False
        self.attempts = self.attempts if attempts is None else attempts
        self.codes.append(code)

    @property
    def may_join(self) -> bool:
        return (self.stage, self.attempts, self.overloads) == (0, 0, 0)

    @property
    def active(self) -> bool:
        return self.state in ("queued", "working", "retryable")


class Machine(RuleBasedStateMachine):
    jobs = Bundle("jobs")
    claimed = Bundle("claimed")

    def __init__(self) -> None:
        super().__init__()
        self.savepoint = transaction.atomic()
        self.savepoint.__enter__()
        self.model: dict[UUID, Model] = {}
        self.born = 0

    def teardown(self) -> None:
        transaction.set_rollback(True)
        self.savepoint.__exit__(None, None, None)

    # --- who comes first -----------------------------------------------------------------------------------------

    def slot_for(self, user: UUID, *, low: bool) -> int | None:
        held = {job.slot for job in self.model.values() if job.user == user and job.state == "working"}
        return next((slot for slot in range(low, settings.JOBS_ACTIVE_PER_USER) if slot not in held), None)

    def next_after(self, last: UUID, *, low: bool = False) -> UUID | None:
        """Return the job that a claim must take: users after ``last``, then from the first; oldest within a user."""
        return next(self.turns(last, low=low), None)

    def turns(self, last: UUID, *, low: bool = False) -> Iterator[UUID]:
        """Yield the job of each user that claims must take, one after the other."""
        for user in sorted(USERS, key=lambda user: (user <= last, user)):
            due = [
                (job.born, job_id)
                for job_id, job in self.model.items()
                if job.user == user and job.low == low and job.state == "queued" and not job.parked
            ]
            if due and self.slot_for(user, low=low) is not None:
                yield min(due)[1]

    def batch_after(self, last: UUID, most: int) -> list[UUID]:
        """Return the jobs that a claim of several must take: the first, and others while all may join."""
        turns = list(islice(self.turns(last), most))
        may_join = [self.model[job_id].may_join for job_id in turns]
        return turns[: max(1, may_join.index(False) if False in may_join else most)]

    def make_way(self, document: UUID, *, low: bool) -> bool:
        """Whether a job of the document may become active: a campaign's that is active is cancelled for a tenant's."""
        active = next((job for job in self.model.values() if job.document == document and job.active), None)
        if active and active.low and not low:
            active.let_go("deadletter", "SUPERSEDED")
            return True
        return active is None

    # --- what may happen -----------------------------------------------------------------------------------------

    @initialize(target=jobs)
    def begin(self) -> Any:
        """Create three jobs of one user, one more than may run."""
        return multiple(*[self.declare(user) for user in [*USERS, USERS[0], USERS[0]]])

    @rule(target=jobs, user=st.sampled_from(USERS), low=st.booleans())
    def declare(self, user: UUID, low: bool = False) -> UUID:
        return self.enqueue(user, DocumentFactory.create(user_id=user).pk, low=low)

    @rule(target=jobs, job_id=jobs, low=st.booleans())
    def enqueue_again(self, job_id: UUID, low: bool) -> Any:
        """Another job of a document that has one."""
        job = self.model.get(job_id)
        if job is None:
            return multiple()
        if self.make_way(job.document, low=low):
            return self.enqueue(job.user, job.document, low=low)
        with pytest.raises(ApiError, match="JOB_ALREADY_ACTIVE"):
            self.enqueue(job.user, job.document, low=low)
        return multiple()

    def enqueue(self, user: UUID, document: UUID, *, low: bool) -> UUID:
        job = services.enqueue(
            pipeline="stages", user_id=user, document_id=document, raw_path="x", chunks_version="",
            job_id=uuid.UUID(int=1000 + self.born), campaign_id=CAMPAIGN if low else None,
        )  # fmt: skip
        with connection.cursor() as cursor:
            sql = "UPDATE upload_jobs SET created_at = to_timestamp(%s) WHERE job_id = %s"
            cursor.execute(sql, [self.born, job.pk])
        self.model[job.pk] = Model(user, document, self.born, low)
        self.born += 1
        return job.pk

    @rule(target=claimed, last=st.sampled_from([UUID(int=0), *USERS]))
    def claim(self, last: UUID) -> Any:
        expected = self.next_after(last) or self.next_after(last, low=True)

        claim = claims.claim_next("w", last)

        assert (claim and claim.job.pk) == expected
        return self.note(claim) if claim else multiple()

    def note(self, claim: Claim, *, in_batch: bool = False) -> Claim:
        job = self.model[claim.job.pk]
        job.slot, job.state, job.token, job.woken = self.slot_for(job.user, low=job.low), "working", claim.token, False
        job.attempts += 1
        job.overloaded, job.in_batch = False, in_batch
        job.codes.append("CLAIMED")
        return claim

    def holds(self, claim: Claim) -> Model | None:
        job = self.model.get(claim.job.pk)
        return job if job and job.token == claim.token else None

    def attempt(self, claim: Claim, work: Callable[[], object]) -> Model | None:
        """Do it: refused when the claim is lost, and only then."""
        job = self.holds(claim)
        try:
            work()
        except ClaimLost:
            assert job is None
        else:
            assert job is not None
        return job

    @rule(claim=claimed, writes=st.booleans())
    def advance(self, claim: Claim, writes: bool) -> None:
        def work() -> None:
            if not writes:
                claim.settle(Advance())
                return
            with claim.transaction():
                claim.advance()

        if job := self.attempt(claim, work):
            if job.stage == len(STAGES) - 1:
                job.let_go("done", "FINALIZED")
            else:
                job.stage, job.attempts, job.in_batch = job.stage + 1, 1, False
                job.codes.append("STAGE_DONE")

    @rule(target=claimed, claim=consumes(claimed), length=st.integers(2, 4), writes=st.booleans(), dies=st.booleans())
    def chain(self, claim: Claim, length: int, writes: bool, dies: bool) -> Any:
        """Stages that share a commit; a worker that dies before it has saved none of them."""
        if STAGES.index(claim.job.stage) + length >= len(STAGES):
            return claim
        for _ in range(length):
            claim.end_stage((lambda: None) if writes else None)
        if dies:
            return multiple()
        if job := self.attempt(claim, claim.save):
            job.stage, job.attempts, job.in_batch = job.stage + length, 1, False
            job.codes += ["STAGE_DONE"] * length
        return claim

    @rule(claim=claimed)
    def rush(self, claim: Claim) -> None:
        """To the last stage in one go, so that jobs end in runs as short as these."""
        while (job := self.holds(claim)) and job.stage < len(STAGES) - 1:
            self.advance(claim, writes=False)

    @rule(target=claimed, one=consumes(claimed), other=consumes(claimed), most=st.integers(1, 3))
    def finish_and_claim(self, one: Claim, other: Claim, most: int) -> Any:
        """Jobs that have ended, some of which are lost, and the next ones, in one statement."""
        ended = [claim for claim in (one, other) if STAGES.index(claim.job.stage) == len(STAGES) - 1]
        batch = ClaimBatch()
        for claim in ended:
            batch.finish_later(claim, {})
            if job := self.holds(claim):
                job.let_go("done", "FINALIZED")
        left = [claim for claim in (one, other) if claim not in ended]
        return multiple(*left, *self.claim_several(batch, one.job.user_id, most))

    @rule(target=claimed, last=st.sampled_from([UUID(int=0), *USERS]), most=st.integers(2, 3), dies=st.booleans())
    def run_batch(self, last: UUID, most: int, dies: bool) -> Any:
        """Claim several and end the first; then the worker dies, or ends the batch."""
        batch = ClaimBatch()
        claimed = self.claim_several(batch, last, most)
        if dies or not claimed:
            return multiple(*claimed)
        self.rush(claimed[0])
        batch.finish_later(claimed[0], {})
        self.model[claimed[0].job.pk].let_go("done", "FINALIZED")
        batch.end()
        for claim in claimed[1:]:
            job = self.model[claim.job.pk]
            job.let_go("queued", "RELEASED", attempts=job.attempts - 1)
        return multiple(*claimed)

    def claim_several(self, batch: ClaimBatch, last: UUID, most: int) -> list[Claim]:
        expected = self.batch_after(last, most) or [job for job in [self.next_after(last, low=True)] if job]
        batch.limit = BatchLimit("stages", STAGES[0], most)

        first = batch.claim_next("w", last)
        several = [first, *batch.waiting] if first else []

        assert [claim.job.pk for claim in several] == expected
        return [self.note(claim, in_batch=len(several) > 1) for claim in several]

    @rule(claim=claimed)
    def wait(self, claim: Claim) -> None:
        woken = (job := self.holds(claim)) and job.woken
        if job := self.attempt(claim, lambda: claim.settle(Wait(PAUSE, error_code("WAITING_FOR_NOTHING")))):
            job.let_go("queued", "WAITING", attempts=job.attempts - 1, parked=not woken)

    @rule(claim=claimed)
    def release(self, claim: Claim) -> None:
        if job := self.attempt(claim, lambda: claim.move("release")):
            job.let_go("queued", "RELEASED", attempts=job.attempts - 1)

    @rule(claim=claimed)
    def rewind(self, claim: Claim) -> None:
        if job := self.attempt(claim, lambda: claim.move("rewind", stage=STAGES[0])):
            job.stage = 0
            job.let_go("queued", "REWOUND", attempts=0)

    @rule(claim=claimed)
    def fail(self, claim: Claim) -> None:
        if job := self.attempt(claim, lambda: claim.settle(Retryable(error_code("X"), "x", retry_after=PAUSE))):
            if job.attempts <= settings.JOBS_MAX_RETRIES:
                job.let_go("retryable", "RETRY_SCHEDULED", parked=True)
            else:
                job.let_go("deadletter", "DLQ_MOVED")

    @rule(claim=claimed)
    def refuse(self, claim: Claim) -> None:
        if job := self.attempt(claim, lambda: claim.settle(Permanent(error_code("X"), "x"))):
            job.let_go("deadletter", "DLQ_MOVED")

    @rule(claim=claimed, overloaded=st.booleans())
    def heartbeat(self, claim: Claim, overloaded: bool) -> None:
        with connection.cursor() as cursor:
            minute: Any = timedelta(seconds=60)
            cursor.execute(heart.RENEW_LEASE, [minute, overloaded, claim.job.pk, claim.token])
            renewed = bool(cursor.rowcount)
        job = self.holds(claim)
        assert renewed == (job is not None)
        if job:
            job.expired, job.overloaded, job.in_batch = False, overloaded, False

    @rule(job_id=jobs)
    def lease_runs_out(self, job_id: UUID) -> None:
        with connection.cursor() as cursor:
            sql = "UPDATE upload_jobs SET lease_until = to_timestamp(0) WHERE job_id = %s AND state = 'working'"
            cursor.execute(sql, [job_id])
        if (job := self.model.get(job_id)) and job.state == "working":
            job.expired = True

    @rule(job_id=jobs)
    def pause_is_over(self, job_id: UUID) -> None:
        with connection.cursor() as cursor:
            sql = "UPDATE upload_jobs SET run_after = to_timestamp(0) WHERE job_id = %s AND run_after IS NOT NULL"
            cursor.execute(sql, [job_id])
        services.requeue_due_and_expired()
        if (job := self.model.get(job_id)) and job.parked:
            job.let_go("queued", "DUE")
        self.expire()

    @rule()
    def sweep(self) -> None:
        services.requeue_due_and_expired()
        self.expire()

    def expire(self) -> None:
        for job in self.model.values():
            if job.expired and job.in_batch:
                job.overloads += 1
                job.let_go("queued", "BATCH_LOST", attempts=job.attempts - 1)
            elif job.expired and job.overloaded and job.overloads < services.MAX_OVERLOADS:
                job.overloads += 1
                job.let_go("queued", "OVERLOADED", attempts=job.attempts - 1)
            elif job.expired and job.attempts <= settings.JOBS_MAX_RETRIES:
                job.let_go("queued", "LEASE_EXPIRED")
            elif job.expired:
                job.let_go("deadletter", "DLQ_MOVED")

    @rule(job_id=jobs)
    def wake(self, job_id: UUID) -> None:
        if not (job := self.model.get(job_id)):
            return
        services.wake_job(job.document)
        for job in [other for other in self.model.values() if other.document == job.document]:
            if job.state == "queued" and job.parked:
                job.let_go("queued", "DUE")
            job.woken = job.state == "working"

    def ask(self, job_id: UUID, verb: Callable[..., UploadJob], granted: Callable[[Model], bool]) -> Model | None:
        row = UploadJob.objects.filter(pk=job_id).first()
        if row is None:
            assert job_id not in self.model
            return None
        job = self.model[job_id]
        expected = granted(job)
        try:
            with transaction.atomic():
                verb(row, by="sam")
        except ApiError:
            assert not expected
            return None
        assert expected
        return job

    @rule(job_id=jobs)
    def retry(self, job_id: UUID) -> None:
        def granted(job: Model) -> bool:
            return job.state == "deadletter" and self.make_way(job.document, low=job.low)

        if job := self.ask(job_id, services.retry, granted):
            job.overloads = 0
            job.let_go("queued", "REQUEUED", attempts=0)

    @rule(job_id=jobs)
    def cancel(self, job_id: UUID) -> None:
        if job := self.ask(job_id, services.cancel, lambda job: job.active):
            job.let_go("deadletter", "CANCELLED")

    @rule(job_id=jobs)
    def push(self, job_id: UUID) -> None:
        def granted(job: Model) -> bool:
            return job.state in ("queued", "retryable") and job.stage < len(STAGES) - 1

        if job := self.ask(job_id, services.advance, granted):
            job.stage += 1
            job.let_go("queued", "ADVANCED", attempts=0)

    @rule(job_id=jobs)
    def delete(self, job_id: UUID) -> None:
        if row := UploadJob.objects.filter(pk=job_id).first():
            documents.delete(row.document)
            self.model = {pk: job for pk, job in self.model.items() if job.document != row.document_id}

    # --- what must hold after every step -------------------------------------------------------------------------

    @invariant()
    def rows_are_those_of_the_model(self) -> None:
        columns = ("pk", "stage", "state", "attempts", "overloads", "claim_token", "slot", "in_batch", "run_after")
        rows = {row[0]: (*row[1:8], row[8] is not None) for row in UploadJob.objects.values_list(*columns)}

        assert rows == {
            job_id: (
                STAGES[job.stage],
                job.state,
                job.attempts,
                job.overloads,
                job.token,
                job.slot,
                job.in_batch,
                job.parked,
            )
            for job_id, job in self.model.items()
        }

    @invariant()
    def every_move_has_left_its_event(self) -> None:
        codes: dict[UUID, list[str]] = {}
        for job_id, code in Event.objects.order_by("ts").values_list("job_id", "code"):
            codes.setdefault(job_id, []).append(code)

        assert codes == {job_id: job.codes for job_id, job in self.model.items()}


@pytest.mark.django_db
def test_the_machine_does_what_its_model_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.services.async_task", lambda _: None)
    run_state_machine_as_test(
        Machine,
        settings=hypothesis_settings(
            max_examples=RUNS,
            stateful_step_count=STEPS,
            derandomize=True,
            database=None,
            verbosity=Verbosity.quiet,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
