"""A law that failed and whose message nobody held: it is noted and archived as if somebody had."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobs.models import UploadJob
from jobs.states import Stage
from statutes import periodic
from statutes.models import Law, LawVersion
from statutes.tests import failure_helpers, sample_laws
from statutes.tests.sample_laws import KEY, TAXED, arrived, objects, xml
from testing.fakes.faults import http_error
from testing.fakes.s3 import S3Server
from testing.noop_pipelines import fail
from testing.personas import run_all_jobs

pytestmark = pytest.mark.django_db
RECORD = "failed/LIVA/2024-01/error.json"


def a_while_passes() -> None:
    before = timezone.now() - timedelta(minutes=2)
    UploadJob.objects.update(finished_at=before)
    LawVersion.objects.update(updated_at=before)


def noted() -> tuple[str, str | None]:
    found = LawVersion.objects.get()
    return found.status, found.error_code


def test_what_failed_for_good_is_archived_once(laws: S3Server) -> None:
    sent = arrived(laws, b"no law")
    run_all_jobs()
    job = sample_laws.job_of(sent)
    a_while_passes()

    periodic.record_failures()

    error = json.loads(objects(laws)[RECORD])
    assert noted() == ("failed", "UNKNOWN_FORMAT")
    assert (error["code"], error["stage"], error["document_id"]) == ("UNKNOWN_FORMAT", "queued", str(job.document_id))
    assert objects(laws)[error["raw"]] == b"no law"
    laws.ledger.clear()
    a_while_passes()
    periodic.record_failures()
    assert not laws.ledger.counts


def test_a_bucket_that_is_away_keeps_a_failure_unnoted_and_nobody_elses(laws: S3Server) -> None:
    arrived(laws, b"no law")
    run_all_jobs()
    a_while_passes()
    laws.inject_fault(f"PUT /laws/{RECORD}", http_error(503, code="SlowDown"), times=9)
    arrived(laws, b"no law either", law_id="OTHER", raw_key="raw/other.xml")
    run_all_jobs()
    UploadJob.objects.update(finished_at=timezone.now() - timedelta(minutes=2))
    LawVersion.objects.filter(law_id="OTHER").update(updated_at=timezone.now() - timedelta(minutes=1, seconds=30))

    periodic.record_failures()
    periodic.record_failures()

    assert set(LawVersion.objects.values_list("law_id", "status")) == {("LIVA", "processing"), ("OTHER", "failed")}
    assert "failed/OTHER/2024-01/error.json" in objects(laws)
    laws.clear_faults()
    a_while_passes()
    periodic.record_failures()
    assert set(Law.objects.values_list("status", flat=True)) == {"failed"}
    assert RECORD in objects(laws)


def test_what_another_try_may_mend_is_noted_and_not_archived(laws: S3Server, settings: Any) -> None:
    settings.JOBS_PIPELINES, settings.JOBS_MAX_RETRIES = "statutes.tests.failure_helpers.PIPELINES", 0
    with failure_helpers.at(Stage.CHUNKED, fail):
        arrived(laws, xml(TAXED))
        run_all_jobs()
    a_while_passes()

    periodic.record_failures()

    assert noted()[0] == "failed"
    assert list(objects(laws)) == [KEY]
