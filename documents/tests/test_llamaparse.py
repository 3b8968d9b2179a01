"""LlamaParse over HTTP: bought once, found again, collected by poller or callback, billed."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection

from accessa.pipelines import INSURANCE
from documents import periodic
from documents.models import Document, ObjectDeletion, ParseRequest
from documents.parsers import registry
from documents.storage import buckets
from jobs import failpoints, services, worker
from jobs.models import Event, UploadJob
from testing.fakes.faults import hang, http_error
from testing.fakes.llamaparse import LlamaParseServer
from testing.pdfs import text_pdf
from testing.personas import Person, Upload, claim_at_stage, make_parked_jobs_due, plan_pdf, run_all_jobs
from vendors.models import Breaker, Purchase

PDF = plan_pdf("hospital care", "drugs", "dental care")
THREE_PAGES_CENTS = Decimal("1.125")  # 3 credits a page at 0.125 cents
pytestmark = pytest.mark.django_db


@pytest.fixture
def vendor(settings: Any) -> Iterator[LlamaParseServer]:
    """LlamaParse instead of the local parser, done as soon as it is asked."""
    with LlamaParseServer() as server:
        settings.PARSER = "llamaparse"
        settings.LLAMAPARSE_API_KEY = server.key
        settings.LLAMAPARSE_BASE_URL = server.url
        settings.PARSE_POLL_FIRST_SECONDS = 0.0
        settings.VENDOR_TIMEOUT_SECONDS = 3.0
        registry.vendor_client.cache_clear()
        yield server
    registry.vendor_client.cache_clear()


def parse_request(uploaded: Upload) -> ParseRequest:
    return ParseRequest.objects.get(document_id=uploaded.document_id)


def document(uploaded: Upload) -> Document:
    return Document.objects.get(pk=uploaded.document_id)


def sold_parses(vendor: LlamaParseServer) -> int:
    return vendor.ledger.sold


def ingest(ana: Person, content: bytes = PDF, **options: Any) -> Upload:
    uploaded = ana.upload(content, **options)
    run_all_jobs(8)
    return uploaded


# The good story


def test_a_document_is_parsed_by_the_vendor_and_billed(ana: Person, vendor: LlamaParseServer) -> None:
    uploaded = ingest(ana)

    assert uploaded.job.state == "done"
    shown = ana.get(f"/documents/{uploaded.document_id}").json()
    assert (shown["parser_name"], shown["parser_version"]) == ("llamaparse", "2026-09-28+cost_effective")
    assert (shown["failed_pages"], shown["parse_fallback"]) == ([], False)
    assert sold_parses(vendor) == 1
    (bought,) = Purchase.objects.filter(vendor="llamaparse")
    assert (bought.state, bought.unit, bought.quantity, bought.cents) == ("settled", "pages", 3, THREE_PAGES_CENTS)
    assert ana.get(f"/job/{uploaded.job_id}").json()["cost_cents"] == float(THREE_PAGES_CENTS)
    passage = ana.post("/search", {"query": "dental care", "k": 1}).json()["passages"][0]
    assert passage["pages"][1] == 3


def test_the_price_is_known_before_the_first_paid_call(ana: Person, vendor: LlamaParseServer) -> None:
    uploaded = ana.upload(PDF)
    vendor.inject_fault("POST *", http_error(503), times=100)

    worker.drain()

    assert sold_parses(vendor) == 0
    shown = ana.get(f"/jobs/{uploaded.document_id}").json()
    assert (shown["stage"], shown["predicted_cents"]) == ("job_validated", float(THREE_PAGES_CENTS))


def test_the_file_name_is_not_sent_to_the_vendor(ana: Person, vendor: LlamaParseServer) -> None:
    ingest(ana, filename="Jane Doe 078-05-1120.pdf")

    request = ParseRequest.objects.get()
    assert [file.name for file in vendor.files.values()] == [f"{request.pk}-1-{request.job_id}.pdf"]


def test_ocr_is_passed_on_and_is_another_version(ana: Person, vendor: LlamaParseServer) -> None:
    uploaded = ingest(ana, ocr=True)

    assert document(uploaded).parser_version == "2026-09-28+cost_effective.ocr"
    (job,) = vendor.jobs.values()
    assert job.options["processing_options"] == {"ignore": {"ignore_text_in_image": False}}
    assert job.options["processing_control"] == {"timeouts": {"base_in_seconds": 120}}


def test_pages_that_failed_in_a_completed_job_are_shown(ana: Person, vendor: LlamaParseServer) -> None:
    vendor.failed_pages = [2]

    uploaded = ingest(ana)

    assert uploaded.job.state == "done"
    assert ana.get(f"/documents/{uploaded.document_id}").json()["failed_pages"] == [2]
    event = Event.objects.get(job_id=uploaded.job_id, code="PARSE_PAGES_FAILED")
    assert (event.severity, event.payload) == ("warn", {"pages": [2]})
    starts = document(uploaded).page_starts or []
    assert starts[1] == starts[2]


# Bought once


def test_a_retry_after_a_storage_failure_fetches_the_parse_and_buys_none(ana: Person, vendor: LlamaParseServer) -> None:
    uploaded = ana.upload(PDF)
    claim_at_stage("parsed")
    parsed = document(uploaded)
    from_store = parsed.parsed_path
    assert from_store is not None
    services.cancel(uploaded.job, by="test")
    _overwrite(from_store)

    services.retry(uploaded.job, by="test")
    run_all_jobs(8)

    assert uploaded.job.state == "done"
    assert sold_parses(vendor) == 1
    assert uploaded.job.cost_cents == THREE_PAGES_CENTS


def _overwrite(path: str) -> None:
    bucket, name = buckets.locate(path)
    bucket.put(name, b"another text")


@pytest.mark.parametrize("point", ["job_validated:uploaded", "job_validated:submitted"])
def test_a_submit_interrupted_by_a_crash_finds_the_vendor_job_again(
    point: str, ana: Person, vendor: LlamaParseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(BaseException):
        pass

    def die(reached: str) -> None:
        if reached == point:
            raise Died

    uploaded = ana.upload(PDF)
    claim = claim_at_stage("job_validated")
    monkeypatch.setattr(failpoints, "failpoint", die)
    with pytest.raises(Died):
        worker.run_stage(claim)
    monkeypatch.undo()
    _expire(uploaded)

    run_all_jobs(8)

    assert uploaded.job.state == "done"
    assert (sold_parses(vendor), len(vendor.files)) == (1, 1)
    assert [each.state for each in Purchase.objects.filter(vendor="llamaparse")] == ["settled"]


def _expire(uploaded: Upload) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE upload_jobs SET lease_until = now() - interval '1 hour' WHERE state = 'working'")
    services.requeue_due_and_expired()


@pytest.mark.slow
def test_a_submit_whose_response_was_lost_is_not_repeated(ana: Person, vendor: LlamaParseServer) -> None:
    vendor.inject_fault("POST /api/v2/parse", hang(sold=True))

    uploaded = ingest(ana)

    assert uploaded.job.state == "done"
    assert sold_parses(vendor) == 1
    assert uploaded.job.cost_cents == THREE_PAGES_CENTS


def test_a_refused_submit_costs_nothing(ana: Person, vendor: LlamaParseServer) -> None:
    vendor.inject_fault("POST /api/v2/parse", http_error(422), times=100)

    uploaded = ingest(ana)

    assert uploaded.failure == "VENDOR_REFUSED"
    assert not Purchase.objects.exists()


def test_declaring_the_same_bytes_twice_buys_one_parse(ana: Person, vendor: LlamaParseServer) -> None:
    ingest(ana)

    ana.request_upload(PDF)
    run_all_jobs(3)

    assert sold_parses(vendor) == 1


def test_a_failed_parse_is_dead_lettered_and_a_retry_buys_another(ana: Person, vendor: LlamaParseServer) -> None:
    vendor.fails = True
    uploaded = ingest(ana)
    assert uploaded.failure == "PARSE_FAILED"
    vendor.fails = False

    ana.post(f"/jobs/{uploaded.document_id}/retry")
    run_all_jobs(8)

    assert uploaded.job.state == "done"
    assert parse_request(uploaded).round == 2


def test_a_parse_that_never_ends_is_cancelled_at_its_deadline(ana: Person, vendor: LlamaParseServer) -> None:
    vendor.delay = 1000
    uploaded = ana.upload(PDF)
    run_all_jobs(2)
    assert uploaded.job.wait_reason == "WAITING_FOR_PARSER"
    ParseRequest.objects.update(deadline="2020-01-01T00:00Z")

    run_all_jobs(2)

    assert uploaded.failure == "PARSE_TIMEOUT"
    assert [job.status for job in vendor.jobs.values()] == ["CANCELLED"]
    assert sold_parses(vendor) == 1


def test_a_parse_that_the_vendor_no_longer_has_is_named(ana: Person, vendor: LlamaParseServer) -> None:
    vendor.delay = 1000
    uploaded = ana.upload(PDF)
    run_all_jobs(2)
    vendor.jobs.clear()
    run_all_jobs(2)
    assert uploaded.job.wait_reason == "WAITING_FOR_PARSER", "just submitted, it may not be found at once"
    ParseRequest.objects.update(deadline="2020-01-01T00:00Z")

    run_all_jobs(2)

    assert uploaded.failure == "PARSE_LOST"


# The poller's cadence


def test_the_poller_waits_first_and_then_longer_each_time(ana: Person, vendor: LlamaParseServer, settings: Any) -> None:
    settings.PARSE_POLL_FIRST_SECONDS, settings.PARSE_POLL_MOST_SECONDS = 5.0, 30.0
    vendor.delay = 1000
    uploaded = ana.upload(PDF)
    pauses = []

    for elapsed in (0, 6, 12, 25, 50, 100):
        ParseRequest.objects.update(submitted_at=_ago(elapsed), deadline=_ago(-500))
        make_parked_jobs_due()
        worker.drain()
        pauses.append(_pause(uploaded))

    assert pauses == [5, 6, 12, 25, 30, 30]


def _ago(seconds: float) -> Any:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp() - make_interval(secs => %s)", [seconds])
        return cursor.fetchone()[0]


def _pause(uploaded: Upload) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT round(extract(epoch FROM run_after - clock_timestamp())) FROM upload_jobs WHERE job_id = %s",
            [uploaded.job_id],
        )
        return int(cursor.fetchone()[0])


# Deleting


def test_deleting_a_document_deletes_the_vendors_copy(ana: Person, vendor: LlamaParseServer) -> None:
    uploaded = ingest(ana)
    assert (len(vendor.files), len(vendor.jobs)) == (1, 1)

    ana.delete(f"/documents/{uploaded.document_id}")
    periodic.delete_vendor_copies()

    assert (len(vendor.files), len(vendor.jobs)) == (0, 0)
    assert not ObjectDeletion.objects.filter(path__startswith="llamaparse").exists()
    assert not ParseRequest.objects.exists()
    assert Purchase.objects.exists(), "what was spent stays spent"


@pytest.mark.slow
def test_a_copy_is_deleted_even_when_its_submit_was_never_recorded(ana: Person, vendor: LlamaParseServer) -> None:
    vendor.inject_fault("POST /api/v2/parse", hang(sold=True))
    uploaded = ana.upload(PDF)
    run_all_jobs(1)
    assert parse_request(uploaded).vendor_job_id is None

    ana.delete(f"/documents/{uploaded.document_id}")
    periodic.delete_vendor_copies()

    assert (len(vendor.files), len(vendor.jobs)) == (0, 0)


# While the vendor is away


def test_the_local_parser_is_the_fallback_while_the_circuit_is_open(
    ana: Person, vendor: LlamaParseServer, settings: Any
) -> None:
    settings.PARSE_FALLBACK = True
    vendor.inject_fault("*", http_error(503), times=1000)

    uploaded = ingest(ana)

    assert uploaded.job.state == "done"
    shown = ana.get(f"/documents/{uploaded.document_id}").json()
    assert (shown["parser_name"], shown["parse_fallback"]) == ("liteparse", True)
    assert sold_parses(vendor) == 0


def test_without_a_fallback_documents_wait_for_the_vendor_and_none_is_charged(
    ana: Person, vendor: LlamaParseServer
) -> None:
    vendor.inject_fault("*", http_error(503), times=1000)
    uploaded = ingest(ana)
    job = uploaded.job
    assert (job.state, job.wait_reason) == ("queued", "VENDOR_AWAY")
    vendor.clear_faults()
    Breaker.objects.update(opened_at=_ago(60))

    run_all_jobs(8)

    assert uploaded.job.state == "done"
    assert sold_parses(vendor) == 1


# Budget


def test_a_spent_budget_stops_the_document_before_the_purchase(
    ana: Person, vendor: LlamaParseServer, settings: Any
) -> None:
    settings.TENANT_DAILY_CENTS = 2.0
    first = ingest(ana)
    second = ingest(ana, plan_pdf("vision care", "foot care", "eye care"))

    assert first.job.state == "done"
    assert (second.job.state, second.job.wait_reason) == ("queued", "BUDGET_SPENT")
    assert sold_parses(vendor) == 1


def test_a_document_that_no_days_budget_covers_is_refused(ana: Person, vendor: LlamaParseServer, settings: Any) -> None:
    settings.TENANT_DAILY_CENTS = 1.0

    uploaded = ingest(ana)

    assert uploaded.failure == "BUDGET_TOO_SMALL"
    assert sold_parses(vendor) == 0


# Twins: the same text in other bytes


def test_two_files_with_the_same_text_share_its_canonical_path(ana: Person) -> None:
    first, second = ana.ingest(text_pdf("the same text")), ana.ingest(text_pdf("the same text") + b"\n% other bytes\n")

    assert document(second).parsed_path == document(first).parsed_path
    assert UploadJob.objects.get(pk=second.job_id).parsed_path == document(first).parsed_path
    assert Event.objects.filter(job_id=second.job_id, code="PARSE_DEDUP_HIT").exists()


def test_deleting_the_owner_of_a_shared_text_transfers_it(ana: Person) -> None:
    first, second = ana.ingest(text_pdf("the same text")), ana.ingest(text_pdf("the same text") + b"\n% other bytes\n")
    third = ana.ingest(text_pdf("the same text") + b"\n% third bytes\n")

    ana.delete(f"/documents/{first.document_id}")

    assert document(second).parsed_path == document(third).parsed_path
    assert str(second.document_id) in str(document(second).parsed_path)
    answer = ana.get(f"/documents/{third.document_id}/parsed").json()
    assert b"the same text" in b"".join(ana.client.get(answer["signed_url"]).streaming_content)  # type: ignore[attr-defined]


def test_another_tenants_twin_is_never_shared(ana: Person, ben: Person) -> None:
    first, second = ana.ingest(text_pdf("the same text")), ben.ingest(text_pdf("the same text") + b"\n% other bytes\n")

    assert document(second).parsed_path != document(first).parsed_path


# What the machine promises of it


def test_the_invariants_of_the_reached_stage_hold(ana: Person, vendor: LlamaParseServer) -> None:
    vendor.delay = 1000
    uploaded = ana.upload(PDF)
    run_all_jobs(2)
    assert uploaded.job.stage == "parsing"

    ParseRequest.objects.all().delete()

    assert INSURANCE.step("parsing").invariant([uploaded.job_id]) == {
        uploaded.job_id: "No parse of the document has been requested."
    }


def test_what_is_done_is_saved_before_a_parse_is_bought(
    ana: Person, vendor: LlamaParseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded = ana.upload(PDF)
    saved: list[tuple[str, str]] = []

    def look(point: str) -> None:
        if point in {"job_validated:uploaded", "job_validated:submitted"}:
            saved.append((point, uploaded.job.stage))

    monkeypatch.setattr(failpoints, "failpoint", look)

    worker.drain()

    assert saved == [("job_validated:uploaded", "job_validated"), ("job_validated:submitted", "job_validated")]
