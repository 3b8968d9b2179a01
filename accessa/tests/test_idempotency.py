"""``Idempotency-Key`` on POST /upload and POST /jobs/{document_id}/retry."""

from functools import partial
from typing import Any

import pytest
from django.db import connection

from accounts import periodic
from accounts.models import IdempotencyKey
from documents.models import Document
from jobs import services
from jobs.models import Event, UploadJob
from testing.concurrency import run_concurrently
from testing.personas import Person, Upload, plan_pdf, upload_request

PDF, OTHER = plan_pdf("drugs"), plan_pdf("dental")
pytestmark = pytest.mark.django_db


def declare(person: Person, content: bytes, key: str, **fields: Any) -> Any:
    return person.post("/upload", upload_request(content) | fields, headers={"Idempotency-Key": key})


def retry(person: Person, uploaded: Upload, key: str, **body: Any) -> Any:
    return person.post(f"/jobs/{uploaded.document_id}/retry", body, headers={"Idempotency-Key": key})


def refusal(answer: Any) -> tuple[int, str, str]:
    return answer.status_code, answer.json()["code"], answer.json()["field"]


REUSED = (422, "IDEMPOTENCY_KEY_REUSED", "Idempotency-Key")


@pytest.fixture
def dead(ana: Person) -> Upload:
    uploaded = ana.ingest(b"no PDF")
    assert uploaded.failure == "NOT_A_PDF"
    return uploaded


def retries(uploaded: Upload) -> int:
    return Event.objects.filter(job_id=uploaded.job_id, code="REQUEUED").count()


# Upload


def test_a_repeated_declaration_has_the_same_ids_and_a_url_that_works(ana: Person) -> None:
    first = declare(ana, PDF, "k1").json()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE documents SET upload_expires_at = now() - interval '1 hour'")

    second = declare(ana, PDF, "k1").json()

    assert (second["job_id"], second["document_id"]) == (first["job_id"], first["document_id"])
    assert second["upload_expires_at"] > first["upload_expires_at"]
    assert ana.client.put(second["signed_url"], PDF, content_type="application/pdf").status_code == 200
    assert UploadJob.objects.get().idempotency_key == "k1"


@pytest.mark.parametrize("changed", [{"filename": "other.pdf"}, {"ocr": True}, {"sha256": "0" * 64}])
def test_another_body_under_the_same_key_is_refused_and_changes_nothing(ana: Person, changed: dict[str, Any]) -> None:
    declare(ana, PDF, "k1")

    assert refusal(declare(ana, PDF, "k1", **changed)) == REUSED

    document = Document.objects.get()
    assert (document.filename, document.ocr) == ("plan.pdf", False)
    assert Event.objects.filter(code="UPLOAD_DEDUP_HIT").count() == 0


def test_a_key_belongs_to_one_tenant_and_one_route(ana: Person, ben: Person, dead: Upload) -> None:
    declare(ana, PDF, "k1")

    assert declare(ben, OTHER, "k1").status_code == 200
    assert retry(ana, dead, "k1").status_code == 202


def test_a_refused_declaration_does_not_use_up_its_key(ana: Person) -> None:
    assert declare(ana, PDF, "k1", mime="image/png").status_code == 415

    assert declare(ana, PDF, "k1").status_code == 200


@pytest.mark.parametrize("key", ["", "k" * 256, "with space", "schlüssel"])
def test_a_malformed_key_is_refused(ana: Person, key: str) -> None:
    assert refusal(declare(ana, PDF, key)) == (400, "INVALID_REQUEST", "Idempotency-Key")
    assert not Document.objects.exists()


def test_a_key_is_forgotten_after_a_day(ana: Person) -> None:
    declare(ana, PDF, "k1")
    declare(ana, PDF, "k2")
    IdempotencyKey.objects.filter(key="k1").update(expires_at="2025-01-01T00:00Z")

    assert declare(ana, OTHER, "k1").status_code == 200
    assert refusal(declare(ana, PDF, "k1")) == REUSED
    IdempotencyKey.objects.filter(key="k1").update(expires_at="2025-01-01T00:00Z")
    periodic.delete_expired_idempotency_keys()

    assert list(IdempotencyKey.objects.values_list("key", flat=True)) == ["k2"]


# Retry


def test_a_repeated_retry_answers_like_the_first_and_retries_once(ana: Person, dead: Upload) -> None:
    first = retry(ana, dead, "r1")
    again = retry(ana, dead, "r1")
    services.cancel(dead.job, by="sam")
    after_the_next_failure = retry(ana, dead, "r1")

    assert [answer.status_code for answer in (first, again, after_the_next_failure)] == [202, 202, 202]
    assert {answer.json()["job_id"] for answer in (first, again, after_the_next_failure)} == {str(dead.job_id)}
    assert (retries(dead), dead.job.state) == (1, "deadletter")
    assert retry(ana, dead, "r2").status_code == 202
    assert retries(dead) == 2


def test_a_retry_key_belongs_to_one_document(ana: Person, dead: Upload) -> None:
    other = ana.ingest(b"no PDF either")
    retry(ana, dead, "r1")

    assert refusal(retry(ana, other, "r1")) == REUSED
    assert (retries(other), other.failure) == (0, "NOT_A_PDF")


def test_a_retry_by_staff_is_repeated_under_its_key_only_with_its_reason(
    ana: Person, sam: Person, dead: Upload
) -> None:
    assert retry(sam, dead, "r1", reason="asked by phone").status_code == 202
    assert retry(sam, dead, "r1", reason="asked by phone").status_code == 202

    assert refusal(retry(sam, dead, "r1", reason="another")) == REUSED
    assert retries(dead) == 1


# Twins


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_concurrent_declarations_under_one_key_make_one_document(ana: Person) -> None:
    answers = run_concurrently(*[partial(declare, ana, PDF, "k1") for _ in range(6)])

    assert [answer.status_code for answer in answers] == [200] * 6
    assert len({answer.json()["document_id"] for answer in answers}) == 1
    assert Document.objects.count() == UploadJob.objects.count() == IdempotencyKey.objects.count() == 1


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_of_concurrent_declarations_of_two_files_under_one_key_one_is_refused(ana: Person) -> None:
    answers = run_concurrently(*[partial(declare, ana, content, "k1") for content in (PDF, OTHER)])

    assert sorted(answer.status_code for answer in answers) == [200, 422]
    assert Document.objects.count() == 1


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_concurrent_retries_under_one_key_retry_once(ana: Person, dead: Upload) -> None:
    answers = run_concurrently(*[partial(retry, ana, dead, "r1") for _ in range(6)])

    assert [answer.status_code for answer in answers] == [202] * 6
    assert retries(dead) == 1
