"""Fixtures: a document with a submitted parse, and the secret of its callbacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from documents.models import ParseRequest
from jobs.models import UploadJob
from testing.factories import DocumentFactory, JobFactory
from webhooks.tests.signers import SECRET

VENDOR_JOB = "pjb-7f0c"


@pytest.fixture(autouse=True)
def _secret(settings: Any) -> None:
    settings.LLAMAPARSE_WEBHOOK_SECRETS = [SECRET]


@dataclass
class Parse:
    """A submitted parse; its job waits for an hour unless a callback wakes it."""

    document_id: UUID
    job_id: UUID

    @property
    def job(self) -> UploadJob:
        return UploadJob.objects.get(pk=self.job_id)

    @property
    def waits(self) -> bool:
        return self.job.run_after is not None

    @property
    def codes(self) -> list[str]:
        return list(self.job.events.order_by("ts").values_list("code", flat=True))

    def ended(self, state: str) -> None:
        ParseRequest.objects.filter(document_id=self.document_id).update(state=state)


def submitted_parse(vendor_job_id: str = VENDOR_JOB) -> Parse:
    document = DocumentFactory.create(pages=1, stored_at=datetime.now(UTC))
    request = ParseRequest.objects.create(
        parse_id=uuid4(),
        document=document,
        user_id=document.user_id,
        job_id=uuid4(),
        parser_name="llamaparse",
        parser_version="2026-09-28",
        state=ParseRequest.State.SUBMITTED,
        vendor_job_id=vendor_job_id,
    )
    job = JobFactory.create(
        document=document,
        user_id=document.user_id,
        pipeline="insurance",
        stage="parsing",
        run_after=datetime.now(UTC) + timedelta(hours=1),
        wait_reason="WAITING_FOR_PARSER",
        payload={"parse_id": str(request.pk)},
    )
    return Parse(document.pk, job.pk)


@pytest.fixture
def parse(db: None, store: None) -> Parse:
    return submitted_parse()


@pytest.fixture
def effects(transactional_db: None) -> Iterator[JobUpdates]:
    updates = JobUpdates()
    updates.count()
    yield updates
    updates.stop()


class JobUpdates:
    """Counts the UPDATE statements on jobs, also those that change no row."""

    def count(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("""
                CREATE TABLE job_touches (at timestamptz DEFAULT clock_timestamp());
                CREATE FUNCTION job_touched() RETURNS trigger LANGUAGE plpgsql AS
                    $f$ BEGIN INSERT INTO job_touches DEFAULT VALUES; RETURN NULL; END $f$;
                CREATE TRIGGER job_touched AFTER UPDATE ON upload_jobs
                    FOR EACH STATEMENT EXECUTE FUNCTION job_touched();""")

    def stop(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE job_touches; DROP FUNCTION job_touched CASCADE")

    @property
    def touches(self) -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM job_touches")
            return int(cursor.fetchone()[0])
