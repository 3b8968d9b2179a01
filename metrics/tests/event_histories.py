"""Job histories with known events: the expected metrics are worked out by hand."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import connection
from django.db.models import F
from django.db.models.functions import Now

from documents.models import Document
from jobs.models import Event, UploadJob
from metrics import periodic
from metrics.models import MeasurementRun, MetricRollup, Resolution

TYPES = {
    "CLAIMED": ("stage_started", "info"),
    "WAITING": ("stage_started", "info"),
    "DUE": ("stage_started", "info"),
    "UPLOAD_ACCEPTED": ("stage_started", "info"),
    "RETRY_SCHEDULED": ("retry", "warn"),
    "LEASE_EXPIRED": ("retry", "warn"),
    "REQUEUED": ("retry", "info"),
    "DLQ_MOVED": ("error", "error"),
    "CANCELLED": ("error", "warn"),
    "FINALIZED": ("finalized", "info"),
}


class History:
    """One job; each entry is ``seconds`` after its declaration."""

    def __init__(self, at: datetime, *, pipeline: str = "insurance", user_id: UUID | None = None) -> None:
        self.at, document_id = at, uuid4()
        self.document = Document.objects.create(
            document_id=document_id, user_id=user_id or uuid4(), filename="x.pdf", bytes_len=1000,
            mime="application/pdf", file_sha256=document_id.hex, raw_path="x", pages=3, stored_at=at,
        )  # fmt: skip
        self.job = UploadJob.objects.create(
            user_id=self.document.user_id, document=self.document, raw_path="x", chunks_version="x", pipeline=pipeline,
            created_at=at, state="done", stage="embedded", finished_at=at,
        )  # fmt: skip
        self.add(0, "UPLOAD_ACCEPTED")

    def add(self, seconds: float, code: str, stage: str = "", /, **payload: Any) -> History:
        """One move; ``stage`` is where the job stood before it."""
        kind, severity = TYPES.get(code, ("stage_done", "info"))
        fields: dict[str, Any] = {}
        if code != "UPLOAD_ACCEPTED":
            fields = {"stage": stage, "attempt": 1}
        if code == "FINALIZED" or kind == "stage_done" or code in ("RETRY_SCHEDULED", "DLQ_MOVED", "WAITING"):
            fields["from"] = stage
        self.log(seconds, code, kind, severity, **{**fields, **payload})
        return self

    def log(
        self, seconds: float, code: str, kind: str = "stage_done", severity: str = "info", /, **payload: Any
    ) -> History:
        Event.objects.create(
            job=self.job, document=self.document, user_id=self.job.user_id, ts=self.at + timedelta(seconds=seconds),
            type=kind, severity=severity, code=code, payload=payload,
        )  # fmt: skip
        return self


def database_time() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


def collect_again() -> None:
    """Collect all metrics now, whenever they were collected last."""
    MeasurementRun.objects.exclude(pk=periodic.MOVES).update(measured_at=Now() - timedelta(days=1))
    periodic.collect_metrics()


def rollups_of(metric: str, resolution: str = Resolution.EVER) -> dict[tuple[str, ...], MetricRollup]:
    rows = MetricRollup.objects.filter(metric=metric, resolution=resolution)
    return {tuple(row.labels): row for row in rows}


def all_rollups() -> list[tuple[Any, ...]]:
    """Return the rollups of counters; gauges may be sampled once more."""
    happened = MetricRollup.objects.exclude(metric__in=["status", "standing", "lag", "longest", "workers"])
    fields = ("metric", "resolution", "starts_at", "labels", "count", "total", "peak", "histogram")
    return list(happened.order_by(F("metric"), "resolution", "starts_at", "labels").values_list(*fields))
