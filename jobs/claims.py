"""A claim is a fence: who holds its token may write for the job, nobody else."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.db.utils import IntegrityError
from psycopg.types.json import Jsonb

from jobs import failpoints, lifecycle, queries
from jobs import pipeline as plan
from jobs.events import log_event
from jobs.models import Event, UploadJob
from jobs.outcomes import Moved

MAX_SLOT_COLLISIONS = 8


class ClaimLost(Exception):
    """The claim is no longer ours: its lease ran out, or the job was cancelled or deleted. Nothing was written."""


class Claim:
    """A job held by this worker until its lease ends."""

    def __init__(self, job: UploadJob) -> None:
        self.job = job
        self.token = cast(UUID, job.claim_token)

    @property
    def pipeline(self) -> plan.Pipeline:
        return plan.get_pipeline(self.job.pipeline)

    @property
    def step(self) -> plan.Step:
        return self.pipeline.step(self.job.stage)

    @property
    def time_limit(self) -> float:
        """The longest, in seconds, that the present stage may take."""
        try:
            return self.step.time_limit
        except ImproperlyConfigured:  # no such pipeline here: the try itself will say so
            return plan.DEFAULT_TIME_LIMIT

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[None]:
        """Open the transaction of the stage's one write; raise ``ClaimLost`` when the claim is lost.

        ``durable=False`` spares its commit the wait for the disk: for writes that are in this database only and are
        made again as they were when the server loses them, with the stage, in the second before it fails. Whatever is
        bought, or deleted elsewhere, follows a durable commit: all that was committed before it is then on the disk
        too. An object that is written may come first: made again, it is written to the same place.
        """
        stage = self.job.stage
        with transaction.atomic():
            self._require(queries.LOCK_CLAIM if durable else queries.LOCK_CLAIM_NO_FSYNC)
            yield
            failpoints.failpoint(f"{stage}:before-commit")
        failpoints.failpoint(f"{stage}:after-commit")

    def ensure_held(self) -> None:
        """Raise ``ClaimLost`` when the claim is lost by now; it may be a moment later."""
        self._require(queries.CHECK_CLAIM)

    def _require(self, selection: str) -> None:
        if not lifecycle.execute(selection, {"job_id": self.job.pk, "held": self.token}):
            raise ClaimLost(str(self.job.pk))

    def advance(
        self, *, code: str | None = None, event: Mapping[str, Any] | None = None, durable: bool = True, **fields: Any
    ) -> Moved:
        """working -> working: to the next stage, with the fields that the write has earned. Call inside ``held()``.

        Outside of it, where nothing else was written, ``durable=False`` spares the wait for the disk: lost with the
        server, the stage is run again.
        """
        following = self.pipeline.next_step(self.job.stage)
        if following is None:
            self.move("finish", code=code, event=event, fields=fields)
            return Moved(ended=True)
        values = {"stage": following.stage.value, "total_pct": following.total_pct}
        self.move("advance", code=code, event=event, fields=fields, durable=durable, **values)
        return Moved()

    def save_progress(self, *, total_pct: float, **fields: Any) -> None:
        """Record progress without moving. Call inside ``held()``."""
        high_water = "total_pct = greatest(u.total_pct, %(total_pct)s)"
        sets = ", ".join([*lifecycle.set_clauses(list(fields)), high_water, "updated_at = clock_timestamp()"])
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE upload_jobs u SET {sets} WHERE job_id = %(job_id)s",
                {**lifecycle.adapt_fields(fields), "total_pct": total_pct, "job_id": self.job.pk},
            )

    def log_event(self, code: str, **payload: Any) -> None:
        """Leave an event of this job; inside ``held()`` it is part of the same write."""
        log_event(self.job, code, Event.Type.STAGE_DONE, payload={"stage": self.job.stage, **payload})

    def move(
        self,
        name: str,
        *,
        code: str | None = None,
        event: Mapping[str, Any] | None = None,
        fields: Mapping[str, Any] | None = None,
        durable: bool = True,
        **values: Any,
    ) -> None:
        """Make one of ``lifecycle.MOVES`` with this claim, or raise ``ClaimLost`` when somebody else has the job."""
        given = dict(fields or {})
        sql = lifecycle.move_statement(name, queries.LOCK_CLAIM, fields=tuple(given), durable=durable)
        params = self._journalled(name, code, event) | lifecycle.adapt_fields(given) | values
        rows = lifecycle.execute(sql, params)
        if not rows:
            raise ClaimLost(str(self.job.pk))
        self.job = lifecycle.load_job(rows[0])

    def finish_and_claim_next(self, worker: str, *, event: Mapping[str, Any] | None = None) -> Claim | None:
        """working -> done, and queued -> working for the next due job, in one statement and one commit."""
        params = self._journalled("finish", None, event)
        rows = _take(queries.FINISH_AND_CLAIM, worker, self.job.user_id, params)
        if not rows:  # too many collisions over the next job: end this one by itself
            self.move("finish", event=event)
            return None
        if not rows[0].pop("finished"):
            raise ClaimLost(str(self.job.pk))
        return Claim(lifecycle.load_job(rows[0])) if rows[0]["job_id"] else None

    def should_yield(self) -> bool:
        """Tell whether a tenant's job would run in this one's stead: it then lets go of its worker.

        So a campaign's job does for any tenant's, and one in a slot that not every user has, for another user's.
        """
        job = self.job
        is_low = job.campaign_id is not None
        if not is_low and (job.slot or 0) < settings.JOBS_ACTIVE_PER_USER:
            return False
        but = queries.NIL_UUID if is_low else job.user_id
        params = {"job_id": job.pk, "last": queries.NIL_UUID, "but": but, **queries.concurrency_params()}
        return bool(lifecycle.execute(queries.SHOULD_YIELD, params)[0]["wanted"])

    def _journalled(self, name: str, code: str | None, event: Mapping[str, Any] | None) -> dict[str, Any]:
        payload = Jsonb({"from": self.job.stage, **(event or {})})
        return {"job_id": self.job.pk, "held": self.token, f"{name}_code": code, f"{name}_event": payload}


def claim_next(worker: str, last: UUID = queries.NIL_UUID) -> Claim | None:
    """queued -> working: claim the next due job, the users after ``last`` first. None when nothing may run.

    A campaign's job is claimed when no tenant's may run.
    """
    rows = _take(queries.CLAIM, worker, last, {}) or _take(queries.CLAIM_CAMPAIGN_JOB, worker, last, {})
    return Claim(lifecycle.load_job(rows[0])) if rows else None


def _take(sql: str, worker: str, last: UUID, params: Mapping[str, Any]) -> list[lifecycle.Row]:
    """Run a claiming statement; when another worker took the same slot of the user first, claim again."""
    fixed = {
        **params,
        "worker": worker,
        "last": last,
        **queries.concurrency_params(),
        "lease": timedelta(seconds=settings.JOBS_LEASE_SECONDS),
        "claim_code": None,
        "claim_event": Jsonb({"worker": worker}),
    }
    for _ in range(MAX_SLOT_COLLISIONS):
        try:
            return lifecycle.execute(sql, {**fixed, "token": uuid.uuid4()})
        except IntegrityError as error:
            if "uq_job_user_slot" not in str(error):
                raise
    return []
