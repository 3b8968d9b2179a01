"""Failures of a law, whole or partial, and the settlement of its message (spec 004 §5.1)."""

import json
from typing import Any

import pytest

from jobs import services, worker
from jobs.choices import Stage
from jobs.models import UploadJob
from statutes.consumer.message_jobs import settle_message
from statutes.intake import IntakeStatus, accept_message
from statutes.models import Law
from statutes.tests import failure_injection, sample_laws
from statutes.tests.sample_laws import (
    BUCKET,
    KEY,
    LOWER,
    RATE,
    TAXED,
    are_searchable,
    bucket_objects,
    deliver,
    law_xml,
    process,
    put_file,
    statute_message,
)
from testing.fakes import faults
from testing.fakes.faults import FAULTS, http_error
from testing.fakes.http_messages import Response
from testing.fakes.s3 import S3Server
from testing.personas import run_all_jobs, run_stages
from testing.stub_pipelines import fail, refuse

pytestmark = pytest.mark.django_db


DENIED = http_error(403, code="AccessDenied")


def code(job: UploadJob) -> str:
    return str((job.last_error or {}).get("code"))


@pytest.mark.parametrize(
    ("content", "tags", "expected"),
    [
        (b"", "", "EMPTY_FILE"),
        (b"%PDF-1.7\n%cut short", "", "PDF_TRUNCATED"),
        (b"GIF89a", "", "UNKNOWN_FORMAT"),
        (b'<!DOCTYPE x [<!ENTITY a "b">]><law>&a;</law>', "", "XML_ENTITY_REFUSED"),
        (law_xml(TAXED), "GuardDutyMalwareScanStatus=THREATS_FOUND", "RAW_FILE_INFECTED"),
        (law_xml(TAXED), "document_id=LISR", "RAW_FILE_TAGS_DIFFER"),
        (law_xml(TAXED * 20), "", "FILE_TOO_LARGE"),
    ],
)
def test_an_invalid_file_is_archived_with_its_error(
    content: bytes, tags: str, expected: str, laws: S3Server, settings: Any
) -> None:
    settings.STATUTES_MAX_BYTES = 20_000
    sent = statute_message()
    put_file(laws, content, tags=tags)
    accept_message(sent)
    run_all_jobs()

    outcome = settle_message(sent, sample_laws.job_of(sent))

    lies = bucket_objects(laws)
    error = json.loads(lies["failed/LIVA/2024-01/error.json"])
    assert (outcome, error["code"], code(sample_laws.job_of(sent))) == ("delete", expected, expected)
    assert lies[error["raw"]] == content
    assert len(lies) == 3
    assert (Law.objects.get().status, sample_laws.version_of(sent).error_code) == ("failed", expected)


def test_a_missing_file_is_reported_and_processed_once_uploaded(laws: S3Server) -> None:
    accept_message(statute_message())
    run_all_jobs()
    missing = sample_laws.job_of(statute_message())
    outcome = settle_message(statute_message(), missing)

    put_file(laws, law_xml(TAXED))
    again = accept_message(statute_message())
    run_all_jobs()

    assert (code(missing), outcome) == ("RAW_FILE_MISSING", "delete")
    assert (again.status, again.job_id) == (IntakeStatus.ACCEPTED, missing.pk)
    assert sample_laws.job_of(statute_message()).state == "done"
    assert (Law.objects.get().status, sample_laws.version_of(statute_message()).error_code) == ("embedded", None)


def test_a_replaced_file_is_downloaded_after_a_failure(laws: S3Server) -> None:
    first = process(laws, b"<law><title>Nothing else.</title></law>")

    second = process(laws, law_xml(TAXED))

    assert (code(first), second.pk, second.state) == ("NO_ARTICLES", first.pk, "done")


@pytest.mark.parametrize("stage", list(Stage))
def test_transient_failures_return_to_the_queue_and_permanent_ones_are_archived(
    stage: Stage, laws: S3Server, settings: Any
) -> None:
    settings.JOBS_PIPELINES, settings.JOBS_MAX_RETRIES = "statutes.tests.failure_injection.PIPELINES", 0
    with failure_injection.replace_stage(stage, fail):
        sent = deliver(laws, law_xml(TAXED))
        worker.drain()
        transient = settle_message(sent, sample_laws.job_of(sent))
    archived = bucket_objects(laws, "failed/")
    with failure_injection.replace_stage(stage, refuse):
        again = accept_message(sent)
        worker.drain()
        fatal = settle_message(sent, sample_laws.job_of(sent))

    error = json.loads(bucket_objects(laws, "failed/")["failed/LIVA/2024-01/error.json"])
    assert (transient, again.status, fatal) == ("reappear", IntakeStatus.ACCEPTED, "delete")
    assert not archived
    assert (error["stage"], error["code"]) == (stage, "NEVER_GOOD")
    assert (are_searchable(TAXED), Law.objects.get().status) == ([False], "failed")


def test_an_exhausted_job_resumes_at_its_stage(laws: S3Server, settings: Any) -> None:
    settings.JOBS_PIPELINES, settings.JOBS_MAX_RETRIES = "statutes.tests.failure_injection.PIPELINES", 0
    with failure_injection.replace_stage(Stage.EMBEDDED, fail):
        sent = deliver(laws, law_xml(TAXED))
        worker.drain()
        settle_message(sent, sample_laws.job_of(sent))

    accept_message(sent)
    seen = [claim.job.stage for claim in run_stages()]

    assert seen == ["embedded"]
    assert (Law.objects.get().status, sample_laws.version_of(sent).error_code) == ("embedded", None)


def test_a_failed_version_leaves_the_live_one_alone(laws: S3Server) -> None:
    process(laws, law_xml(TAXED, RATE))
    sent = statute_message("2024-02")
    put_file(laws, b"no law")
    accept_message(sent)
    run_all_jobs()
    settle_message(sent, sample_laws.job_of(sent))

    law = Law.objects.get()
    assert (law.version, law.status) == ("2024-01", "embedded")
    assert are_searchable(TAXED, RATE) == [True, True]
    assert sample_laws.version_of(sent).status == "failed"


def test_a_cancelled_job_deletes_its_message(laws: S3Server) -> None:
    sent = deliver(laws, law_xml(TAXED))

    services.cancel(sample_laws.job_of(sent), by="sam")

    assert settle_message(sent, sample_laws.job_of(sent)) == "delete"
    assert list(bucket_objects(laws)) == [KEY]


def test_an_unavailable_bucket_costs_no_attempt(laws: S3Server) -> None:
    laws.refuse_connections()
    sent = statute_message()
    accept_message(sent)
    worker.drain()
    waiting = sample_laws.job_of(sent)

    laws.open()
    put_file(laws, law_xml(LOWER))
    run_all_jobs()

    assert (waiting.state, waiting.attempts, waiting.wait_reason) == ("queued", 0, "STORAGE_UNAVAILABLE")
    assert sample_laws.job_of(sent).state == "done"


@pytest.mark.parametrize("bucket", ["nowhere", "anothers"])
def test_a_foreign_bucket_without_access_leaves_the_message_to_the_queue(
    bucket: str, laws: S3Server, settings: Any
) -> None:
    settings.STATUTES_RAW_BUCKETS, settings.JOBS_MAX_RETRIES = [bucket], 0
    laws.inject_fault("* /anothers*", DENIED, times=99)
    sent = statute_message(bucket=bucket)
    accept_message(sent)
    worker.drain()

    outcome = settle_message(sent, sample_laws.job_of(sent))

    assert (outcome, code(sample_laws.job_of(sent)), bucket_objects(laws)) == ("reappear", "RAW_BUCKET_CLOSED", {})


def test_credentials_without_access_to_any_bucket_are_waited_for(laws: S3Server, settings: Any) -> None:
    settings.STATUTES_RAW_BUCKETS = ["anothers"]
    laws.inject_fault("*", http_error(403, code="AccessDenied"), times=9)
    sent = statute_message(bucket="anothers")
    accept_message(sent)

    worker.drain()

    waiting = sample_laws.job_of(sent)
    assert (waiting.state, waiting.wait_reason) == ("queued", "STORAGE_UNAVAILABLE")


@pytest.mark.parametrize(
    ("key", "route", "answer"),
    [
        (KEY, f"GET /{BUCKET}/{KEY}", http_error(403, code="InvalidObjectState")),
        (KEY, f"GET /{BUCKET}/{KEY}", DENIED),  # so S3 tells of a kms:Decrypt that is missing, after a HEAD of 200
        (KEY, f"GET /{BUCKET}/{KEY}", http_error(400, code="KMS.DisabledException")),
        (KEY, f"HEAD /{BUCKET}/{KEY}", http_error(400)),  # encrypted with a key that only its owner has
        (KEY, f"* /{BUCKET}/raw/federal/*", DENIED),
        ("others/iva.xml", f"* /{BUCKET}/others/*", DENIED),
    ],
    ids=["archived", "kms-right", "kms-key", "customers-key", "folder", "first-folder"],
)
def test_a_file_refused_alone_fails_with_RAW_FILE_CLOSED_and_can_be_retried(
    key: str, route: str, answer: faults.Fault, laws: S3Server, settings: Any
) -> None:
    settings.JOBS_MAX_RETRIES = 0
    sent = deliver(laws, law_xml(TAXED), raw_key=key)
    laws.inject_fault(route, answer, times=99)
    worker.drain()
    dead = sample_laws.job_of(sent)
    outcome = settle_message(sent, dead)
    laws.clear_faults()
    left = list(bucket_objects(laws))

    again = accept_message(sent)
    run_all_jobs()

    assert (code(dead), outcome, left) == ("RAW_FILE_CLOSED", "reappear", [key])
    assert (again.status, again.job_id) == (IntakeStatus.ACCEPTED, dead.pk)
    assert (sample_laws.job_of(sent).state, are_searchable(TAXED)) == ("done", [True])


def test_a_readable_head_and_a_refused_body_are_RAW_FILE_CLOSED(
    laws: S3Server,
) -> None:
    put_file(laws, law_xml(TAXED))
    for route in (f"GET /{BUCKET}/{KEY}", f"HEAD /{BUCKET}/raw/.accessa-looks"):
        laws.inject_fault(route, DENIED, times=99)
    accept_message(statute_message())

    worker.drain()

    assert code(sample_laws.job_of(statute_message())) == "RAW_FILE_CLOSED"


def test_an_infected_file_behind_a_policy_is_recognized_by_its_tags(laws: S3Server) -> None:
    put_file(laws, law_xml(TAXED), tags="GuardDutyMalwareScanStatus=THREATS_FOUND")
    laws.inject_fault(f"HEAD /{BUCKET}/{KEY}", DENIED, times=99)
    accept_message(statute_message())

    worker.drain()

    assert code(sample_laws.job_of(statute_message())) == "RAW_FILE_INFECTED"


@pytest.mark.parametrize("route", [f"* /{BUCKET}/raw/*", f"* /{BUCKET}*"])
def test_a_permission_missing_for_all_files_is_waited_for(route: str, laws: S3Server) -> None:
    laws.inject_fault(route, DENIED, times=9)
    accept_message(statute_message())

    worker.drain()

    waiting = sample_laws.job_of(statute_message())
    assert (waiting.state, waiting.attempts, waiting.wait_reason) == ("queued", 0, "STORAGE_UNAVAILABLE")


def test_a_bucket_outside_the_settings_is_neither_read_nor_copied(laws: S3Server) -> None:
    client = laws.client()
    client.create_bucket(Bucket="tenants")
    client.put_object(Bucket="tenants", Key="u/d.pdf", Body=law_xml(TAXED))
    client.close()
    sent = statute_message(bucket="tenants", raw_key="u/d.pdf")
    accept_message(sent)
    run_all_jobs()

    outcome = settle_message(sent, sample_laws.job_of(sent))

    assert (outcome, bucket_objects(laws)) == ("reappear", {})
    assert (code(sample_laws.job_of(sent)), are_searchable(TAXED)) == ("RAW_BUCKET_CLOSED", [False])


@pytest.mark.parametrize(
    ("answer", "times"),
    [
        (http_error(503), 2),
        (FAULTS["html-200"], 2),
        (http_error(400, code="ExpiredToken"), 1),
        (faults.replacement("object", Response(200, law_xml(TAXED), {"ETag": '"0"'})), 1),
    ],
    ids=["503", "no-s3", "expired", "untold"],
)
def test_unreadable_tags_do_not_pass_an_infected_file(answer: faults.Fault, times: int, laws: S3Server) -> None:
    put_file(laws, law_xml(TAXED), tags="GuardDutyMalwareScanStatus=THREATS_FOUND")
    laws.inject_fault(f"GET /{BUCKET}/{KEY}", answer, times=times)  # as often as the tags are asked for
    accept_message(statute_message())

    worker.drain()
    waiting = sample_laws.job_of(statute_message())
    run_all_jobs()

    assert waiting.wait_reason == "STORAGE_UNAVAILABLE"
    assert code(sample_laws.job_of(statute_message())) == "RAW_FILE_INFECTED"


@pytest.mark.parametrize(
    "answer",
    [DENIED, http_error(501, code="NotImplemented"), http_error(404, code="NoSuchTagSet")],
    ids=["denied", "no-tags", "none-set"],
)
def test_a_store_without_tags_is_read_without_them(answer: faults.Fault, laws: S3Server) -> None:
    put_file(laws, law_xml(TAXED))
    laws.inject_fault(f"GET /{BUCKET}/{KEY}", answer, times=1)
    accept_message(statute_message())

    worker.drain()

    assert sample_laws.job_of(statute_message()).stage != Stage.QUEUED


def test_an_unreadable_infected_file_is_archived_as_a_record_alone(laws: S3Server) -> None:
    sent = statute_message()
    put_file(laws, law_xml(TAXED), tags="GuardDutyMalwareScanStatus=THREATS_FOUND")
    accept_message(sent)
    run_all_jobs()
    laws.inject_fault(f"PUT /{BUCKET}/failed/LIVA/2024-01/ley-iva.xml", http_error(403, code="AccessDenied"))

    outcome = settle_message(sent, sample_laws.job_of(sent))

    error = json.loads(bucket_objects(laws)["failed/LIVA/2024-01/error.json"])
    assert (outcome, error["code"], error["raw"]) == ("delete", "RAW_FILE_INFECTED", None)
