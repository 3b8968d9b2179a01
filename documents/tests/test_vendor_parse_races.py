"""Vendor parses under concurrency, delays and faults: nothing is lost, left over or bought twice."""

import threading
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now

from documents import parse_store, periodic, vendor_parses
from documents import services as documents
from documents.models import Document, ObjectDeletion, ParseRequest
from documents.parsers import ocr, registry
from documents.storage import buckets
from documents.tests import test_llamaparse
from documents.tests.test_llamaparse import PDF, THREE_PAGES_CENTS, document, ingest, parse_request, sold_parses
from jobs import claims, failpoints, services, worker
from jobs.models import Event, UploadJob
from testing.concurrency import run_concurrently
from testing.fakes.faults import Fault, hang, http_error, slow_body, slow_head
from testing.fakes.http_messages import ClientConnection, Request, Response
from testing.fakes.llamaparse import LlamaParseServer
from testing.pdfs import text_pdf
from testing.personas import Person, Upload, claim_at_stage, make_parked_jobs_due, plan_pdf, run_all_jobs
from vendors.models import Breaker, Purchase, RateLimit

POLL, SUBMIT, CANCEL, DROP = (
    "GET /api/v2/parse/*",
    "POST /api/v2/parse",
    "POST /api/v2/parse/*",
    "DELETE /api/v2/parse/*",
)
FIND, FIND_FILE, UPLOAD = "GET /api/v2/parse", "GET /api/v1/beta/files", "POST /api/v1/beta/files"
LONG_AGO = "2020-01-01T00:00Z"
NEVER = 1000.0  # seconds until a parse is done
vendor = test_llamaparse.vendor
pytestmark = pytest.mark.django_db


@pytest.fixture
def vendor_routes(vendor: LlamaParseServer, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the routes that the vendor is asked for, in order."""
    routes: list[str] = []
    serve = vendor.serve

    def listen(request: Request, wire: ClientConnection) -> None:
        routes.append(request.route)
        serve(request, wire)

    monkeypatch.setattr(vendor, "serve", listen)
    return routes


def twins(ana: Person, count: int) -> list[Upload]:
    """Documents of other bytes and the same text, which is stored once, with the first."""
    return [ana.ingest(text_pdf("the same text") + b"\n%% copy %d\n" % number) for number in range(count)]


def submit_pending(ana: Person, vendor: LlamaParseServer, content: bytes = PDF) -> Upload:
    """Upload a document whose parse is submitted and does not end."""
    vendor.delay = NEVER
    uploaded = ana.upload(content)
    run_all_jobs(2)
    assert uploaded.job.wait_reason == "WAITING_FOR_PARSER"
    return uploaded


def finish(vendor: LlamaParseServer) -> None:
    """Let all parses end that are under way."""
    wait_until(lambda: all(job.status != "PENDING" for job in vendor.jobs.values()))
    for job in list(vendor.jobs.values()):
        vendor._finish(job)


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


def reset_vendor_limits() -> None:
    """Let it be asked again, as if the time that it wanted, or the breaker's, had passed."""
    RateLimit.objects.update(paused_until=None)
    Breaker.objects.update(opened_at=LONG_AGO, probe_until=None)


def retry_vendor_deletions() -> None:
    """Do the sweep of deleted documents' copies, as if what failed had waited long enough."""
    ObjectDeletion.objects.update(try_after=Now() - timedelta(seconds=1))
    periodic.delete_vendor_copies()


def overwrite(uploaded: Upload) -> None:
    """Change a document's text in the store."""
    bucket, name = buckets.locate(str(document(uploaded).parsed_path))
    bucket.put(name, b"another text")


def purchases() -> list[tuple[str, Decimal]]:
    return list(Purchase.objects.filter(vendor="llamaparse").values_list("state", "cents").order_by("created_at"))


def faults() -> int:
    return sum(Breaker.objects.values_list("faults", flat=True))


# Twins that are deleted at the same time


def assert_whole(uploaded: Upload) -> None:
    assert parse_store.read_bytes(document(uploaded)).decode().strip() == "the same text"
    assert parse_store.is_intact(document(uploaded))
    assert uploaded.job.parsed_path == document(uploaded).parsed_path


def test_two_deletions_of_a_shared_text_leave_the_third_document_whole(ana: Person) -> None:
    first, second, third = twins(ana, 3)
    stale = document(second)
    ana.delete(f"/documents/{first.document_id}")

    documents.delete(stale)

    assert_whole(third)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_twins_deleted_at_the_same_moment_leave_the_others_whole(ana: Person) -> None:
    first, second, third, fourth = twins(ana, 4)
    doomed = [document(each) for each in (first, second, third)]

    run_concurrently(*(lambda one=one: documents.delete(one) for one in doomed))

    assert Document.objects.count() == 1
    assert_whole(fourth)


def test_a_text_whose_owner_is_deleted_between_unsaved_stages_is_still_read(
    ana: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    (owner,), content = twins(ana, 1), text_pdf("the same text")
    uploaded = ana.upload(content + b"\n% borrowed\n")
    stages: list[str] = []

    def delete_owner(point: str) -> None:
        if point == "parsed:end":
            stages.append(uploaded.job.stage)
            ana.delete(f"/documents/{owner.document_id}")

    monkeypatch.setattr(failpoints, "failpoint", delete_owner)

    run_all_jobs(1)

    assert stages == ["parsed"], "its end is not saved"
    assert uploaded.job.state == "done", uploaded.failure
    assert_whole(uploaded)


def test_a_shared_text_survives_the_reparse_of_its_owner(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "recognize_pages", lambda path, pages: dict.fromkeys(pages, "Scanned words."))
    content = text_pdf("the same text", "")
    owner = ana.upload(content)
    claim_at_stage("chunking")
    services.cancel(owner.job, by="test")
    ana.ingest(content + b"\n% read\n", ocr=True)
    ana.request_upload(content, ocr=True)
    claim = claim_at_stage("parsing")
    borrowed: list[Upload] = []

    def borrow(point: str) -> None:
        if point == "parsing:stored" and not borrowed:
            borrowed.append(ana.upload(content + b"\n% not read\n"))
            run_all_jobs(1)

    monkeypatch.setattr(failpoints, "failpoint", borrow)

    worker.run_stage(claim)

    assert document(owner).parsed_path != parse_store.own_path(document(owner)), "it shares the text that was read"
    assert_whole(borrowed[0])


# Deleted, and uploaded again


def test_a_new_upload_keeps_its_parse_when_old_copies_are_deleted(ana: Person, vendor: LlamaParseServer) -> None:
    vendor.inject_fault(SUBMIT, http_error(429), times=1)
    first = ana.upload(PDF)
    run_all_jobs(1)
    old_file = parse_request(first).file_id
    ana.delete(f"/documents/{first.document_id}")
    reset_vendor_limits()
    again = submit_pending(ana, vendor)

    retry_vendor_deletions()
    retry_vendor_deletions()

    assert list(vendor.jobs) == [parse_request(again).vendor_job_id]
    assert list(vendor.files) == [parse_request(again).file_id] != [old_file]
    finish(vendor)
    run_all_jobs(4)
    assert (again.job.state, sold_parses(vendor)) == ("done", 1)


@pytest.mark.slow
@pytest.mark.parametrize(("lost", "bought"), [(UPLOAD, ["settled"]), (SUBMIT, ["reserved", "settled"])])
def test_copies_of_a_lost_submit_are_deleted_but_not_a_new_uploads(
    lost: str, bought: list[str], ana: Person, vendor: LlamaParseServer, settings: Any
) -> None:
    settings.VENDOR_TIMEOUT_SECONDS = 1.0
    vendor.inject_fault(lost, hang(sold=True))
    first = ana.upload(PDF)
    run_all_jobs(1)
    ana.delete(f"/documents/{first.document_id}")
    again = submit_pending(ana, vendor)
    assert len(vendor.files) == 2

    retry_vendor_deletions()
    retry_vendor_deletions()

    assert list(vendor.jobs) == [parse_request(again).vendor_job_id]
    assert list(vendor.files) == [parse_request(again).file_id]
    finish(vendor)
    run_all_jobs(4)
    assert again.job.state == "done"
    assert [state for state, _ in purchases()] == bought, "what was sold is in the books, be it lost"
    assert sold_parses(vendor) == len(bought)


# A parse that does not come, or not as it should


def test_a_retry_buys_a_parse_that_was_lost_after_it_was_recorded(ana: Person, vendor: LlamaParseServer) -> None:
    uploaded = ana.upload(PDF)
    claim_at_stage("parsed")
    overwrite(uploaded)
    services.cancel(uploaded.job, by="test")
    vendor.jobs.clear()
    ParseRequest.objects.update(deadline=LONG_AGO)
    services.retry(uploaded.job, by="test")
    run_all_jobs(2)
    assert uploaded.failure == "PARSE_LOST"

    services.retry(uploaded.job, by="test")

    assert uploaded.job.stage == "job_validated"
    run_all_jobs(6)
    assert (uploaded.job.state, parse_request(uploaded).round, sold_parses(vendor)) == ("done", 2, 2)
    assert uploaded.job.cost_cents == 2 * THREE_PAGES_CENTS


@pytest.mark.parametrize("wrong", ["page-twice", "page-beyond-the-last"])
def test_extra_pages_from_the_vendor_fail_the_job_and_are_charged_once(
    wrong: str, ana: Person, vendor: LlamaParseServer
) -> None:
    vendor.inject_fault(POLL, wrong, times=100)

    uploaded = ingest(ana)

    assert uploaded.failure == "PARSE_MALFORMED"
    assert not Event.objects.filter(job_id=uploaded.job_id, code="RETRY_SCHEDULED").exists()
    assert purchases() == [("settled", THREE_PAGES_CENTS)]
    assert (uploaded.job.cost_cents, sold_parses(vendor), faults()) == (THREE_PAGES_CENTS, 1, 0)


def test_a_malformed_parse_is_not_polled_again(ana: Person, vendor: LlamaParseServer) -> None:
    uploaded = ana.upload(PDF)
    claim_at_stage("parsing").move("release")
    Document.objects.update(pages=2)

    run_all_jobs(6)

    assert uploaded.failure == "PARSE_MALFORMED"
    assert (uploaded.job.cost_cents, sold_parses(vendor), faults()) == (THREE_PAGES_CENTS, 1, 0)


def test_a_blank_parse_is_charged_once_to_its_document(ana: Person, vendor: LlamaParseServer) -> None:
    uploaded = ingest(ana, text_pdf("", "", ""))
    assert uploaded.failure == "NO_TEXT_LAYER"

    services.retry(uploaded.job, by="test")
    run_all_jobs(4)

    assert uploaded.failure == "NO_TEXT_LAYER"
    assert purchases() == [("settled", THREE_PAGES_CENTS)]
    assert (uploaded.job.cost_cents, sold_parses(vendor)) == (THREE_PAGES_CENTS, 1)


def test_one_404_right_after_the_submit_does_not_give_the_parse_up(ana: Person, vendor: LlamaParseServer) -> None:
    vendor.inject_fault(POLL, http_error(404), times=1)

    uploaded = ingest(ana)

    assert (uploaded.job.state, parse_request(uploaded).round, sold_parses(vendor)) == ("done", 1, 1)


# Time


@pytest.mark.parametrize("outage", [http_error(503), "refused"])
@pytest.mark.parametrize("is_done_when_back", [True, False])
def test_an_outage_beyond_the_deadline_fails_no_job(
    is_done_when_back: bool, outage: Any, ana: Person, vendor: LlamaParseServer
) -> None:
    uploaded = submit_pending(ana, vendor)
    vendor.inject_fault("*", outage, times=1000)
    ParseRequest.objects.update(submitted_at=LONG_AGO, deadline=LONG_AGO)
    for _ in range(6):
        reset_vendor_limits()
        run_all_jobs(1)
    assert uploaded.job.state == "queued"
    vendor.clear_faults()
    reset_vendor_limits()
    if is_done_when_back:
        finish(vendor)
    run_all_jobs(2)

    finish(vendor)
    run_all_jobs(6)

    assert (uploaded.job.state, parse_request(uploaded).round, sold_parses(vendor)) == ("done", 1, 1)


@pytest.mark.parametrize(
    "away", [http_error(402), http_error(403), http_error(503), http_error(503, retry_after="600")]
)
def test_a_parse_is_polled_once_more_after_an_outage_of_the_vendor(
    away: Fault, ana: Person, vendor: LlamaParseServer
) -> None:
    uploaded = submit_pending(ana, vendor)
    vendor.inject_fault(POLL, away, times=1)
    ParseRequest.objects.update(deadline=LONG_AGO)

    run_all_jobs(1)

    job, deadline = uploaded.job, parse_request(uploaded).deadline
    assert job.wait_reason != "WAITING_FOR_PARSER"
    assert deadline is not None
    assert job.run_after is not None
    assert deadline > job.run_after


def test_a_parse_that_ends_while_it_is_cancelled_is_kept(
    ana: Person, vendor: LlamaParseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded = submit_pending(ana, vendor)
    ParseRequest.objects.update(deadline=LONG_AGO)
    honest = vendor.respond

    def answer(request: Request) -> Response:
        if request.path.endswith("/cancel"):
            finish(vendor)
        return honest(request)

    monkeypatch.setattr(vendor, "respond", answer)

    run_all_jobs(6)

    assert (uploaded.job.state, parse_request(uploaded).round, sold_parses(vendor)) == ("done", 1, 1)
    assert purchases() == [("settled", THREE_PAGES_CENTS)]


DRIPS = {"body": slow_body(0.1), "head": slow_head(0.1)}


@pytest.mark.slow
@pytest.mark.parametrize("route", [SUBMIT, POLL])
@pytest.mark.parametrize("drip", DRIPS)
def test_a_dripping_response_ends_in_time_and_buys_nothing_again(
    drip: str, route: str, ana: Person, vendor: LlamaParseServer, settings: Any
) -> None:
    settings.VENDOR_TIMEOUT_SECONDS = 0.8
    uploaded = ana.upload(PDF)
    if route == POLL:
        claim_at_stage("parsing").move("release")
    vendor.inject_fault(route, DRIPS[drip])
    began = time.monotonic()

    run_all_jobs(1)

    assert time.monotonic() - began < 8  # the whole response would take 15 and more
    assert (uploaded.job.last_error or {})["code"] == "VENDOR_UNREACHABLE"
    run_all_jobs(6)
    assert (uploaded.job.state, sold_parses(vendor)) == ("done", 1)


# Deleting at the vendor's


def test_deleting_a_document_cancels_and_deletes_its_running_parse(ana: Person, vendor: LlamaParseServer) -> None:
    uploaded = submit_pending(ana, vendor)
    ana.delete(f"/documents/{uploaded.document_id}")

    periodic.delete_vendor_copies()

    assert (len(vendor.jobs), len(vendor.files), faults()) == (0, 0, 0)
    assert not ObjectDeletion.objects.filter(path__startswith="llamaparse").exists()


def test_a_vendor_job_still_being_cancelled_is_deleted_later(ana: Person, vendor: LlamaParseServer) -> None:
    uploaded = submit_pending(ana, vendor)
    ana.delete(f"/documents/{uploaded.document_id}")
    vendor.inject_fault(DROP, http_error(409), times=1)

    periodic.delete_vendor_copies()

    assert (len(vendor.jobs), faults()) == (1, 0)
    retry_vendor_deletions()
    assert (len(vendor.jobs), len(vendor.files)) == (0, 0)


def test_a_failed_vendor_deletion_does_not_block_the_others(ana: Person, vendor: LlamaParseServer) -> None:
    stuck, other = ingest(ana), ingest(ana, plan_pdf("vision care", "foot care", "eye care"))
    left = parse_request(stuck).vendor_job_id
    vendor.inject_fault(f"DELETE /api/v2/parse/{left}", http_error(503), times=1000)
    for each in (stuck, other):
        ana.delete(f"/documents/{each.document_id}")

    periodic.delete_vendor_copies()

    assert list(vendor.jobs) == [left]
    assert ObjectDeletion.objects.filter(path__startswith="llamaparse", try_after__gt=Now()).count() == 1


def test_a_failure_that_opens_the_circuit_blocks_no_other_deletion(ana: Person, vendor: LlamaParseServer) -> None:
    stuck, other = ingest(ana), ingest(ana, plan_pdf("vision care", "foot care", "eye care"))
    left = parse_request(stuck).vendor_job_id
    vendor.inject_fault(f"DELETE /api/v2/parse/{left}", http_error(503), times=1000)
    ana.delete(f"/documents/{stuck.document_id}")
    for _ in range(8):
        retry_vendor_deletions()
    assert Breaker.objects.filter(state="open").exists()
    ana.delete(f"/documents/{other.document_id}")

    for _ in range(3):
        reset_vendor_limits()
        periodic.delete_vendor_copies()

    assert list(vendor.jobs) == [left]


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_the_maintenance_loop_does_not_wait_for_a_hanging_vendor(
    vendor: LlamaParseServer, vendor_routes: list[str], settings: Any
) -> None:
    settings.VENDOR_TIMEOUT_SECONDS = 5
    path = f"llamaparse://job/file/{uuid4()}:1/{uuid4()}"
    ObjectDeletion.objects.create(user_id=uuid.uuid4(), document_id=uuid4(), path=path, drop_after=LONG_AGO)
    vendor.inject_fault("*", hang(), times=100)
    began = time.monotonic()

    for _ in range(5):
        periodic.start_vendor_deletions()

    assert time.monotonic() - began < 5  # less than one timeout
    (thread,) = [thread for thread in threading.enumerate() if thread.name == periodic.THREAD]
    thread.join(60)
    assert vendor_routes == ["POST /api/v2/parse/job/cancel"]
    assert ObjectDeletion.objects.filter(try_after__gt=Now()).count() == 1, "it is not gone: later again"


def test_only_the_vendor_copies_of_the_failed_round_are_deleted(ana: Person, vendor: LlamaParseServer) -> None:
    vendor.fails = True
    uploaded = ingest(ana)
    vendor.fails = False
    services.retry(uploaded.job, by="test")
    run_all_jobs(6)
    assert (uploaded.job.state, len(vendor.jobs)) == ("done", 2)

    periodic.delete_vendor_copies()

    assert list(vendor.jobs) == [parse_request(uploaded).vendor_job_id]
    assert list(vendor.files) == [parse_request(uploaded).file_id]
    ana.delete(f"/documents/{uploaded.document_id}")
    periodic.delete_vendor_copies()
    assert (len(vendor.jobs), len(vendor.files)) == (0, 0)


# Budget


@pytest.mark.slow
def test_a_submit_that_timed_out_is_not_counted_against_itself(
    ana: Person, vendor: LlamaParseServer, settings: Any
) -> None:
    settings.TENANT_DAILY_CENTS = float(THREE_PAGES_CENTS)
    settings.VENDOR_TIMEOUT_SECONDS = 1.0
    vendor.inject_fault(SUBMIT, hang())

    uploaded = ingest(ana)

    assert (uploaded.job.state, sold_parses(vendor)) == ("done", 1)
    assert purchases() == [("settled", THREE_PAGES_CENTS)]


def test_a_paid_parse_is_fetched_even_when_the_budget_is_spent(
    ana: Person, vendor: LlamaParseServer, settings: Any
) -> None:
    settings.TENANT_DAILY_CENTS = float(THREE_PAGES_CENTS)
    uploaded = ana.upload(PDF)
    claim_at_stage("parsed")
    overwrite(uploaded)
    services.cancel(uploaded.job, by="test")
    services.reset_plan(uploaded.job)

    services.retry(uploaded.job, by="test")

    assert uploaded.job.stage == "job_validated"
    run_all_jobs(6)
    assert (uploaded.job.state, sold_parses(vendor)) == ("done", 1)
    assert purchases() == [("settled", THREE_PAGES_CENTS)]
    assert uploaded.job.cost_cents == THREE_PAGES_CENTS


def test_waiting_for_budget_asks_the_vendor_nothing(
    ana: Person, vendor: LlamaParseServer, vendor_routes: list[str], settings: Any
) -> None:
    settings.TENANT_DAILY_CENTS = 2.0
    ingest(ana)
    vendor_routes.clear()
    waiting = ana.upload(plan_pdf("vision care", "foot care", "eye care"))

    run_all_jobs(5)

    assert waiting.job.wait_reason == "BUDGET_SPENT"
    assert vendor_routes == []


def test_a_rate_limited_submit_searches_for_no_job(
    ana: Person, vendor: LlamaParseServer, vendor_routes: list[str]
) -> None:
    vendor.inject_fault(SUBMIT, http_error(429), times=4)
    uploaded = ana.upload(PDF)

    for _ in range(4):
        reset_vendor_limits()
        run_all_jobs(1)

    assert uploaded.job.wait_reason == "VENDOR_RATE_LIMITED"
    assert vendor_routes == [UPLOAD, *[SUBMIT] * 4]


# Callbacks, and declaring again


@pytest.mark.django_db(transaction=True)
def test_a_callback_and_a_worker_do_not_wait_for_each_other(ana: Person, vendor: LlamaParseServer) -> None:
    uploaded = submit_pending(ana, vendor)
    make_parked_jobs_due()
    claim = claims.claim_next("test:1:1")
    assert claim is not None
    outcomes: list[object] = []

    def call_back() -> None:
        try:
            with transaction.atomic():
                outcomes.append(vendor_parses.wake_poller(parse_request(uploaded)))
        except Exception as error:
            outcomes.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=call_back)
    with claim.transaction():
        thread.start()
        wait_until(_somebody_waits)
        ParseRequest.objects.filter(pk=parse_request(uploaded).pk).update(submitted_at=Now())
    thread.join(10)

    assert outcomes == [True]


def _somebody_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(cursor.fetchone()[0])


def test_declaring_a_parsed_document_with_ocr_parses_it_again(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ocr, "recognize_pages", lambda path, pages: {page: f"Scanned words of page {page + 1}." for page in pages}
    )
    content = text_pdf("printed words", "")
    uploaded = ana.upload(content)
    claim_at_stage("chunking")
    services.cancel(uploaded.job, by="test")

    ana.request_upload(content, ocr=True)

    assert uploaded.job.stage == "job_validated"
    run_all_jobs(4)
    assert uploaded.job.state == "done"
    assert document(uploaded).parser_version == registry.local_parser(ocr=True).version
    assert "Scanned words of page 2." in parse_store.read_bytes(document(uploaded)).decode()
    assert UploadJob.objects.get(pk=uploaded.job_id).parsed_sha256 == document(uploaded).parsed_sha256
