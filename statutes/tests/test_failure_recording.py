"""Failures whose message no consumer held: recorded and archived all the same."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from jobs.choices import Stage
from jobs.models import UploadJob
from statutes import failed_versions
from statutes.models import Law, LawVersion
from statutes.tests import failure_injection, sample_laws
from statutes.tests.sample_laws import KEY, TAXED, bucket_objects, deliver, law_xml
from testing.fakes.faults import http_error
from testing.fakes.s3 import S3Server
from testing.personas import run_all_jobs
from testing.stub_pipelines import fail

pytestmark = pytest.mark.django_db
RECORD = "failed/LIVA/2024-01/error.json"


def age_versions() -> None:
    before = timezone.now() - timedelta(minutes=2)
    UploadJob.objects.update(finished_at=before)
    LawVersion.objects.update(updated_at=before)


def recorded_states() -> tuple[str, str | None]:
    row = LawVersion.objects.get()
    return row.status, row.error_code


def test_a_permanent_failure_is_archived_once(laws: S3Server) -> None:
    sent = deliver(laws, b"no law")
    run_all_jobs()
    job = sample_laws.job_of(sent)
    age_versions()

    failed_versions.record_failures()

    error = json.loads(bucket_objects(laws)[RECORD])
    assert recorded_states() == ("failed", "UNKNOWN_FORMAT")
    assert (error["code"], error["stage"], error["document_id"]) == ("UNKNOWN_FORMAT", "queued", str(job.document_id))
    assert bucket_objects(laws)[error["raw"]] == b"no law"
    laws.ledger.clear()
    age_versions()
    failed_versions.record_failures()
    assert not laws.ledger.counts


def test_an_unavailable_bucket_delays_recording_of_its_failure_only(laws: S3Server) -> None:
    deliver(laws, b"no law")
    run_all_jobs()
    age_versions()
    laws.inject_fault(f"PUT /laws/{RECORD}", http_error(503, code="SlowDown"), times=9)
    deliver(laws, b"no law either", law_id="OTHER", raw_key="raw/other.xml")
    run_all_jobs()
    UploadJob.objects.update(finished_at=timezone.now() - timedelta(minutes=2))
    LawVersion.objects.filter(law_id="OTHER").update(updated_at=timezone.now() - timedelta(minutes=1, seconds=30))

    failed_versions.record_failures()
    failed_versions.record_failures()

    assert set(LawVersion.objects.values_list("law_id", "status")) == {("LIVA", "processing"), ("OTHER", "failed")}
    assert "failed/OTHER/2024-01/error.json" in bucket_objects(laws)
    laws.clear_faults()
    age_versions()
    failed_versions.record_failures()
    assert set(Law.objects.values_list("status", flat=True)) == {"failed"}
    assert RECORD in bucket_objects(laws)


def test_an_exhausted_transient_failure_is_recorded_and_not_archived(laws: S3Server, settings: Any) -> None:
    settings.JOBS_PIPELINES, settings.JOBS_MAX_RETRIES = "statutes.tests.failure_injection.PIPELINES", 0
    with failure_injection.replace_stage(Stage.CHUNKED, fail):
        deliver(laws, law_xml(TAXED))
        run_all_jobs()
    age_versions()

    failed_versions.record_failures()

    assert recorded_states()[0] == "failed"
    assert list(bucket_objects(laws)) == [KEY]
