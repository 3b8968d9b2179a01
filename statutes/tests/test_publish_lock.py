"""Publish lock: a worker that has lost it writes no manifest, and destroys nothing."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from accessa.integrity.violations import find_changed_artifacts
from jobs import services, worker
from jobs.advisory_locks import holds_session_lock, session_lock, unlock_session
from jobs.outcomes import Wait
from statutes import document_ids
from statutes.intake import accept_message
from statutes.models import Law
from statutes.s3 import artifact_upload
from statutes.tests import sample_laws
from statutes.tests.sample_laws import (
    BUCKET,
    LOWER,
    RATE,
    TAXED,
    are_searchable,
    bucket_objects,
    deliver,
    law_xml,
    process,
    statute_message,
)
from statutes.tests.test_lambda import ARN, Lambda
from testing.fakes.faults import http_error
from testing.fakes.s3 import S3Server
from testing.personas import claim_at_stage, run_all_jobs

pytestmark = pytest.mark.django_db
ELSEWHERE = ARN.replace("eu-west-1", "eu-central-1")  # clients are kept by their region


def standing(s3: S3Server) -> str:
    return str(json.loads(bucket_objects(s3)["normalized/LIVA/manifest.json"])["version"])


# The turn


@contextmanager
def overtaken(s3: S3Server) -> Iterator[list[str]]:
    """While a version is about to be uploaded its turn is lost, and another worker publishes a newer one."""
    seen: list[str] = []

    def watch(execute: Any, sql: Any, *rest: Any) -> Any:
        answer = execute(sql, *rest)
        if sql == artifact_upload.PASSAGES_WITH_VECTORS and not seen:
            seen.append(sql)
            unlock_session(document_ids.publish_lock_key("LIVA"))
            process(s3, law_xml(TAXED, LOWER), "2024-03")
        return answer

    with connection.execute_wrapper(watch):
        yield seen


@pytest.mark.slow
@pytest.mark.parametrize("newer", [None, "2024-02"], ids=["publishing", "mending what is found"])
def test_a_lost_lock_never_overwrites_a_newer_manifest(newer: str | None, laws: S3Server) -> None:
    deliver(laws, law_xml(TAXED))
    claim = claim_at_stage("embedded")
    if newer:
        process(laws, law_xml(TAXED, RATE), newer)

    with overtaken(laws) as seen:
        ending = worker.run_stage(claim)
    left = standing(laws)
    again = worker.run_stage(claim)

    assert seen
    assert isinstance(ending, Wait)
    assert (ending.seconds, ending.reason, left) == (2.0, "LAW_BUSY", "2024-03")
    assert not isinstance(again, Wait)
    assert (standing(laws), Law.objects.get().version) == ("2024-03", "2024-03")
    assert list(find_changed_artifacts()) == []


def test_a_publish_lock_belongs_to_one_session_and_one_law() -> None:
    liva, other, third = map(document_ids.publish_lock_key, ("LIVA", "~ley/ñ", "LISR"))
    before = holds_session_lock(liva)

    with session_lock(liva), session_lock(other):
        held = [holds_session_lock(key) for key in (liva, other, third)]

    assert (before, held, holds_session_lock(liva)) == (False, [True, True, False], False)


# What is there already


@pytest.fixture(scope="module")
def function() -> Iterator[Lambda]:
    with Lambda() as function:
        yield function


@pytest.fixture
def refusing(function: Lambda, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lambda]:
    """Configure a function that does not exist, as when an operator has misspelled it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", function.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    settings.STATUTES_LAMBDA = ELSEWHERE
    function.told_.clear()
    function.inject_fault("*", http_error(404, code="ResourceNotFoundException"), times=99)
    yield function
    function.clear_faults()


def writes(s3: S3Server) -> int:
    routes = s3.ledger.counts.items()
    return sum(count for route, count in routes if route.startswith(("PUT", "DELETE")) and f"/{BUCKET}/" in route)


def test_a_job_waiting_for_the_function_uploads_once(refusing: Lambda, laws: S3Server) -> None:
    sent = deliver(laws, law_xml(TAXED, RATE, LOWER))
    run_all_jobs(1)
    uploaded = writes(laws)
    run_all_jobs(3)
    waiting = sample_laws.job_of(sent).wait_reason

    refusing.clear_faults()
    run_all_jobs()

    assert uploaded > 3
    assert (waiting, writes(laws)) == ("LAMBDA_REFUSED", uploaded)
    assert len(refusing.told_) == 1
    assert are_searchable(TAXED, RATE, LOWER) == [True, True, True]
    assert list(find_changed_artifacts()) == []


def spoil(s3: S3Server, name: str) -> None:
    client = s3.client()
    client.put_object(Bucket=BUCKET, Key=f"normalized/LIVA/{name}.json", Body=b"{}")
    client.close()


def test_a_waiting_job_uploads_again_over_another_manifest(refusing: Lambda, laws: S3Server) -> None:
    deliver(laws, law_xml(TAXED, RATE))
    run_all_jobs(1)
    whole = bucket_objects(laws)

    spoil(laws, "manifest")
    refusing.clear_faults()
    run_all_jobs()

    assert bucket_objects(laws) == whole
    assert Law.objects.get().status == "embedded"


def test_a_restarted_job_always_uploads(refusing: Lambda, laws: S3Server) -> None:
    sent = deliver(laws, law_xml(TAXED, RATE))
    run_all_jobs(1)
    whole = bucket_objects(laws)
    services.cancel(sample_laws.job_of(sent), by="sam")

    spoil(laws, "law")
    refusing.clear_faults()
    accept_message(statute_message(force_reprocess=True))
    run_all_jobs()

    assert sample_laws.job_of(sent).state == "done"
    assert bucket_objects(laws) == whole
