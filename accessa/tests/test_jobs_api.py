"""API of jobs: permissions of polling, retry and advance, rate limits, lists."""

import base64
import uuid
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client

from jobs import worker
from jobs.models import UploadJob
from testing.factories import JobFactory
from testing.personas import Person, Upload, age_first_use, claim_at_stage, plan_pdf
from vendors import ledger
from vendors.models import Purchase

PDF = plan_pdf("drugs")
pytestmark = pytest.mark.django_db


def refusal(answer: Any) -> tuple[int, str]:
    body = answer.json()
    assert set(body) <= {"code", "detail", "field"}
    assert all(isinstance(value, str) and value for value in body.values())
    return answer.status_code, body["code"]


@pytest.fixture
def dead(ana: Person) -> Upload:
    uploaded = ana.ingest(b"no PDF")
    assert uploaded.failure == "NOT_A_PDF"
    return uploaded


# Polling


def test_the_eleventh_poll_of_a_minute_gets_retry_after(ana: Person) -> None:
    uploaded, other = ana.upload(PDF), ana.upload(plan_pdf("dental"))
    paths = [f"/job/{uploaded.job_id}", f"/jobs/{uploaded.document_id}"] * 5
    assert {ana.get(path).status_code for path in paths} == {200}

    for path in paths[:2]:
        refused = ana.get(path)
        assert refusal(refused) == (429, "POLL_LIMIT_REACHED")
        assert 1 <= int(refused["Retry-After"]) <= 60
    # Per job: another job and the list are not concerned.
    assert ana.get(f"/job/{other.job_id}").status_code == 200
    assert ana.get("/jobs").status_code == 200

    age_first_use("1 minute")
    assert ana.get(paths[0]).status_code == 200
    assert ana.get(paths[0]).status_code == 429


def test_the_cost_of_calls_without_an_answer_is_shown_beside_the_settled_cost(ana: Person, ben: Person) -> None:
    jobs = [person.upload(PDF) for person in (ana, ben)]
    call: dict[str, Any] = {"stage": "embedding", "vendor": "openai", "model": "m", "unit": "tokens", "quantity": 9}
    for person, uploaded, cents in ((ana, jobs[0], "0.5"), (ana, jobs[0], "0.25"), (ben, jobs[1], "4")):
        ledger.reserve(
            user_id=person.id, document_id=uploaded.document_id, job_id=uploaded.job_id, cents=Decimal(cents), **call
        )
    ledger.settle(Purchase.objects.get(cents="0.5").pk, quantity=9, cents=Decimal("0.5"))
    UploadJob.objects.filter(pk=jobs[0].job_id).update(cost_cents=Decimal("0.5"))

    shown = ana.get(f"/jobs/{jobs[0].document_id}").json()
    listed = ana.get("/jobs").json()["results"]

    assert (shown["cost_cents"], shown["unsettled_cents"]) == (0.5, 0.25)
    assert {job["job_id"]: job["unsettled_cents"] for job in listed} == {str(jobs[0].job_id): 0.25}


def test_job_details_have_counters_and_display_status(ana: Person) -> None:
    uploaded = ana.upload(PDF)

    job = ana.get(f"/jobs/{uploaded.document_id}").json()

    assert job["progress"] == {
        "stage_pct": 0.0, "total_pct": 0.0, "pages_total": 0, "pages_done": 0, "chunks_total": 0, "chunks_done": 0,
        "embeds_total": 0, "embeds_done": 0,
    }  # fmt: skip
    assert (job["status"], job["standing"], job["wait_reason"]) == ("uploaded", "queued", None)


def test_the_standing_tells_the_ways_of_not_moving_apart(ana: Person, settings: Any) -> None:
    def standing() -> str:
        return str(ana.get("/jobs").json()["results"][0]["standing"])

    ana.request_upload(PDF)
    assert standing() == "queued"
    worker.drain()
    assert standing() == "waiting"
    uploaded = ana.upload(PDF)
    claim_at_stage("parsing")
    assert standing() == "working"
    with connection.cursor() as cursor:
        cursor.execute("UPDATE upload_jobs SET lease_until = now() - interval '1 second'")
    settings.EMBEDDER = "testing.personas.BrokenEmbedder"
    worker.services.requeue_due_and_expired() if hasattr(worker, "services") else None
    ana.post(f"/jobs/{uploaded.document_id}/retry")
    UploadJob.objects.update(
        state="retryable", run_after="2099-01-01T00:00Z", claim_token=None, lease_until=None, slot=None
    )
    assert standing() == "retrying"
    UploadJob.objects.update(state="deadletter", run_after=None, finished_at="2025-01-01T00:00Z")
    assert standing() == "dead"


# Lists


def test_lists_are_paged_by_cursor_newest_first(ana: Person) -> None:
    ids = [ana.upload(plan_pdf(f"care {number}")) for number in range(5)]
    expected = [str(uploaded.document_id) for uploaded in reversed(ids)]

    for path in ("/jobs", "/documents"):
        seen, at = [], f"{path}?page_size=2"
        while at:
            page = ana.client.get(at).json()
            assert set(page) == {"next", "previous", "results"}
            seen += [row["document_id"] for row in page["results"]]
            at = page["next"]
        assert seen == expected


def test_only_active_jobs_if_one_asks_for_them(ana: Person, dead: Upload) -> None:
    waiting = ana.upload(PDF)

    rows = ana.get("/jobs", active="true").json()["results"]

    assert [row["job_id"] for row in rows] == [str(waiting.job_id)]
    assert len(ana.get("/jobs").json()["results"]) == 2


def test_campaign_jobs_are_hidden_and_block_no_retry(ana: Person, sam: Person, dead: Upload) -> None:
    campaigns = JobFactory.create(user_id=ana.id, document=dead.job.document, campaign_id=uuid.uuid4())
    JobFactory.create(user_id=ana.id, state="working", campaign_id=uuid.uuid4())

    assert refusal(ana.get(f"/job/{campaigns.pk}")) == (404, "NOT_FOUND")
    assert ana.get(f"/jobs/{dead.document_id}").json()["job_id"] == str(dead.job_id)
    assert [row["job_id"] for row in ana.get("/jobs").json()["results"]] == [str(dead.job_id)]
    assert sam.post(f"/jobs/{dead.document_id}/retry").json()["job_id"] == str(dead.job_id)
    campaigns.refresh_from_db()
    assert campaigns.state == "deadletter"


def test_bytes_declared_again_revive_the_tenants_job_whatever_a_campaign_does(ana: Person, dead: Upload) -> None:
    campaigns = JobFactory.create(user_id=ana.id, document=dead.job.document, campaign_id=uuid.uuid4())

    answer = ana.request_upload(b"no PDF")

    assert (answer.status_code, answer.json()["job_id"]) == (200, str(dead.job_id))
    assert dead.job.state == "queued"
    campaigns.refresh_from_db()
    assert campaigns.state == "deadletter"


POSITIONS = ["garbage", "", "\0", "2025-13-45", "1e999", "9" * 400, "' OR 1=1", "😀", "-1", "1.5", "0",
             "9999-12-31T23:59:59-23:59"]  # fmt: skip


@pytest.mark.slow
def test_a_forged_cursor_is_a_client_error(ana: Person) -> None:
    uploaded = ana.ingest(PDF)
    forms = ("p={}", "r=1&p={}", "o=99999999999999999999&p={}", "o=-1")
    for query in (form.format(quote(position)) for position in POSITIONS for form in forms):
        cursor = base64.b64encode(query.encode()).decode()
        for path in ("/jobs", "/documents", f"/documents/{uploaded.document_id}/chunks"):
            answer = ana.get(path, cursor=cursor)
            assert answer.status_code == 200 or refusal(answer) == (404, "NOT_FOUND"), (path, query)


@pytest.mark.parametrize("cursor", ["x", "=", "é", "%00", "A" * 3000])
def test_a_cursor_that_is_none_is_a_client_error(cursor: str, ana: Person) -> None:
    answer = ana.get("/jobs", cursor=cursor)

    assert answer.status_code == 200 or refusal(answer) == (404, "NOT_FOUND")


@pytest.mark.parametrize("size", ["0", "-1", "x", "1e9", "99999999999999999999", "", "\0"])
def test_a_page_size_that_is_none_is_the_usual_one(size: str, ana: Person) -> None:
    assert ana.get("/documents", page_size=size).status_code == 200


# Retry and advance


def test_the_owner_retries_a_failed_job(ana: Person, dead: Upload) -> None:
    answer = ana.post(f"/jobs/{dead.document_id}/retry")

    assert answer.status_code == 202
    assert (answer.json()["state"], answer.json()["last_error"]) == ("queued", None)
    assert refusal(ana.post(f"/jobs/{dead.document_id}/retry")) == (409, "JOB_ALREADY_ACTIVE")


def test_a_completed_job_is_not_retried(ana: Person) -> None:
    uploaded = ana.ingest(PDF)

    assert refusal(ana.post(f"/jobs/{uploaded.document_id}/retry")) == (409, "JOB_DONE")


def test_staff_retry_for_any_tenant_by_token_and_by_session(dead: Upload, sam: Person) -> None:
    assert sam.post(f"/jobs/{dead.document_id}/retry").status_code == 202
    worker.drain()
    browser = Client()
    browser.force_login(sam.user)

    assert browser.post(f"/jobs/{dead.document_id}/retry").status_code == 202
    assert refusal(sam.post("/jobs/6c8a1e6e-1f0b-4aa8-9f0a-1a7c2e6f2b42/retry")) == (404, "NOT_FOUND")


def test_staff_read_no_tenants_documents_through_the_tenants_api(dead: Upload, sam: Person) -> None:
    for path in (f"/job/{dead.job_id}", f"/jobs/{dead.document_id}", f"/documents/{dead.document_id}"):
        assert refusal(sam.get(path)) == (404, "NOT_FOUND")


def test_only_the_service_advances(ana: Person, ben: Person, sam: Person, platform: Person) -> None:
    uploaded = ana.upload(PDF)
    path = f"/jobs/{uploaded.document_id}/advance"
    browser = Client()
    browser.force_login(sam.user)

    for answer in (ana.post(path), ben.post(path), sam.post(path), browser.post(path)):
        assert refusal(answer) == (403, "INSUFFICIENT_SCOPE")
    assert refusal(platform.post(path)) == (409, "INVARIANT_VIOLATED")
    assert refusal(platform.post("/jobs/6c8a1e6e-1f0b-4aa8-9f0a-1a7c2e6f2b42/advance")) == (404, "NOT_FOUND")
    assert uploaded.job.stage == "queued"


def test_a_tenant_learns_nothing_from_a_refused_advance(ana: Person, ben: Person) -> None:
    uploaded = ana.upload(PDF)
    paths = [f"/jobs/{uploaded.document_id}/advance", "/jobs/6c8a1e6e-1f0b-4aa8-9f0a-1a7c2e6f2b42/advance"]

    assert len({ben.post(path).content for path in paths} | {ana.post(paths[0]).content}) == 1


def test_a_claimed_or_ended_job_is_not_advanced(ana: Person, platform: Person) -> None:
    uploaded = ana.upload(PDF)
    claim_at_stage("parsing")
    assert refusal(platform.post(f"/jobs/{uploaded.document_id}/advance")) == (409, "JOB_NOT_WAITING")

    done = ana.ingest(plan_pdf("dental"))
    assert refusal(platform.post(f"/jobs/{done.document_id}/advance")) == (409, "JOB_NOT_WAITING")


# One shape


@pytest.mark.parametrize("method", ["get", "put", "patch", "delete", "post"])
def test_an_unknown_method_is_405_in_the_error_shape(method: str, ana: Person) -> None:
    uploaded = ana.upload(PDF)
    allowed = {
        "/upload": {"post"}, "/search": {"post"}, "/jobs": {"get"}, "/documents": {"get"},
        f"/job/{uploaded.job_id}": {"get"}, f"/jobs/{uploaded.document_id}": {"get"},
        f"/jobs/{uploaded.document_id}/retry": {"post"},
        f"/documents/{uploaded.document_id}": {"get", "patch", "delete"},
        f"/documents/{uploaded.document_id}/chunks": {"get"},
    }  # fmt: skip
    for path, methods in allowed.items():
        if method not in methods:
            answer = getattr(ana.client, method)(path)
            assert refusal(answer) == (405, "METHOD_NOT_ALLOWED"), path
            assert answer["Allow"]


def test_only_json_is_answered(ana: Person) -> None:
    assert refusal(ana.client.get("/documents", headers={"accept": "text/html"})) == (406, "NOT_ACCEPTABLE")


@pytest.mark.parametrize("path", ["/nowhere", "/upload/", "/job/", "/jobs//retry", "/.env", "/storage/x"])
def test_no_address_is_404_in_the_one_shape(path: str, ana: Person) -> None:
    assert refusal(ana.get(path)) == (404, "NOT_FOUND")


def test_a_bug_is_500_in_the_one_shape_and_shows_nothing(
    ana: Person, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def bug(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError(f"policy {secret}")

    secret = "-".join(["123", "45", "6789"])
    monkeypatch.setattr("jobs.display_status.count_running", bug)

    answer = ana.get("/jobs")

    assert refusal(answer) == (500, "INTERNAL")
    assert secret not in answer.content.decode() + caplog.text


def test_a_documents_fields_are_those_of_the_contract(ana: Person) -> None:
    uploaded = ana.ingest(PDF)

    assert set(ana.get(f"/documents/{uploaded.document_id}").json()) == {
        "document_id", "filename", "mime", "bytes_len", "file_sha256", "parsed_sha256", "pages", "processing_status",
        "failed_pages", "doubtful_pages", "parser_name", "parser_version", "parse_fallback", "saved", "tags",
        "created_at", "updated_at",
    }  # fmt: skip
    assert settings.REST_FRAMEWORK["EXCEPTION_HANDLER"] == "accessa.error_responses.exception_handler"
