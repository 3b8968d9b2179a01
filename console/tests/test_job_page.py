"""Job page: contents, repair actions, and access to a tenant's text."""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from accounts.audit.models import AuditEntry
from accounts.number_formats import format_money
from console import timeline
from console.tests.conftest import Staff
from documents import services
from documents.models import Document
from documents.storage import buckets
from jobs.models import Event, UploadJob
from testing.factories import JobFactory
from testing.pdfs import text_pdf
from testing.personas import Person, Upload, plan_pdf, run_all_jobs
from vendors import ledger
from vendors.models import Purchase

Dead = Callable[..., UploadJob]
pytestmark = pytest.mark.django_db
HOSTILE = '"><script>alert(1)</script>.pdf'


def at(job: UploadJob, *more: str) -> str:
    return "/".join(["/admin/jobs", str(job.pk), *more, ""])


@pytest.fixture
def real(settings: Any, ana: Person) -> Upload:
    """Return a document of Ana's that is done."""
    settings.JOBS_PIPELINES = "accessa.pipelines.PIPELINES"
    uploaded = ana.ingest(plan_pdf("dental care", "eye care", lines=9))
    assert uploaded.job.state == "done"
    return uploaded


# What it tells.


def test_the_job_page_shows_status_reason_and_remedy(sue: Client, dead: Dead) -> None:
    job = dead("PARSE_LOST", "parsing", traceback="File x.py, line 3")

    page = sue.get(at(job)).content.decode()

    for text in ("PARSE_LOST", "What PARSE_LOST says.", "Retry: it buys another parse.", "File x.py, line 3"):
        assert text in page
    for named in (job.document_id, job.user_id, job.correlation_id):
        assert str(named) in page


def test_releases_by_overload_are_shown(sue: Client) -> None:
    job = JobFactory.create(overloads=3)

    page = sue.get(at(job)).content.decode()

    assert "<dt>lost at no attempt</dt><dd>3 of 10 times</dd>" in page


def test_a_wait_has_its_reason(sue: Client) -> None:
    job = JobFactory.create(wait_reason="VENDOR_REFUSES_KEY", run_after=datetime.now(UTC) + timedelta(minutes=5))

    page = sue.get(at(job)).content.decode()

    assert "The vendor refuses our key." in page
    assert "waiting" in page


def test_the_timeline_shows_how_time_between_events_was_spent() -> None:
    job = JobFactory.create(state="deadletter")
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    history = [
        ("UPLOAD_ACCEPTED", 0, {}), ("CLAIMED", 2, {}), ("WAITING", 3, {"reason": "VENDOR_AWAY"}), ("DUE", 33, {}),
        ("CLAIMED", 34, {}), ("PARSE_STORED", 40, {}), ("RETRY_SCHEDULED", 41, {"code": "X"}), ("DLQ_MOVED", 300, {}),
    ]  # fmt: skip
    for code, seconds, payload in history:
        type_ = "stage_done" if code == "PARSE_STORED" else "stage_started"
        moment = begun + timedelta(seconds=seconds)
        Event.objects.create(
            job=job, document_id=job.document_id, user_id=job.user_id, ts=moment, type=type_, severity="info",
            code=code, payload={"stage": "parsing", "attempt": 1, **payload},
        )  # fmt: skip

    entries = timeline.job_timeline(job)

    assert [(entry.phase, entry.duration) for entry in entries.first] == [
        ("in the queue", "2 s"), ("working", "1 s"), ("waiting", "30 s"), ("in the queue", "1 s"),
        ("working", "6 s"), ("working", "1 s"), ("pause before the next attempt", "4.32 min"), ("dead", ""),
    ]  # fmt: skip
    assert entries.first[2].payload == [("reason", "VENDOR_AWAY")]


def test_a_long_timeline_shows_both_ends_and_more_on_request(sue: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobFactory.create()
    begun = datetime.now(UTC) - timedelta(hours=1)
    Event.objects.bulk_create(
        Event(
            job=job, document_id=job.document_id, user_id=job.user_id, ts=begun + timedelta(seconds=n),
            type="stage_started", severity="info", code=f"N{n}",
        )
        for n in range(12)
    )  # fmt: skip
    monkeypatch.setattr(timeline, "FIRST", 2)
    monkeypatch.setattr(timeline, "LAST", 3)

    cut, whole = timeline.job_timeline(job), timeline.job_timeline(job, whole=True)

    assert [[e.event.code for e in part] for part in (cut.first, cut.last)] == [["N0", "N1"], ["N9", "N10", "N11"]]
    assert (cut.is_cut, whole.is_cut, len(whole.first)) == (True, False, 12)
    assert "events=all" in sue.get(at(job)).content.decode()


def test_each_call_to_a_vendor_is_shown_with_its_price(sue: Client, dead: Dead) -> None:
    job = dead()
    bought: dict[str, Any] = {
        "user_id": job.user_id,
        "vendor": "openai",
        "model": "small",
        "unit": "tokens",
        "stage": "embedding",
    }
    ledger.reserve(document_id=job.document_id, job_id=job.pk, quantity=1234, cents=Decimal("0.125"), **bought)
    ledger.reserve(document_id=job.document_id, job_id=uuid.uuid4(), quantity=9876, cents=Decimal(1), **bought)

    page = sue.get(at(job)).content.decode()

    assert "1234 tokens" in page
    assert "$0.00125 not settled" in page
    assert "9876" not in page


def test_the_invariant_report_has_a_verdict_for_each_stage(sue: Client, real: Upload) -> None:
    whole = sue.get(at(real.job, "invariants")).content.decode()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE document_chunks SET text = text || 'x' WHERE chunk_ord = 0")
    broken = sue.get(at(real.job, "invariants"), headers={"HX-Request": "true"}).content.decode()

    assert (whole.count(">holds<"), whole.count("passed; a later stage holds"), whole.count("does not hold")) == (
        10,
        1,
        0,
    )
    assert "<html" in whole
    assert "<html" not in broken
    assert "does not have its sha" in broken
    assert "does not hold" in broken


def test_an_unavailable_store_is_reported_on_the_page(
    sue: Client, real: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> bool:
        raise OSError("away")

    monkeypatch.setattr("documents.storage.local.LocalSignedStorage.exists", away)

    assert sue.get(at(real.job)).status_code == 200
    assert "cannot be checked" in sue.get(at(real.job, "invariants")).content.decode()


def test_a_job_of_an_unknown_pipeline_has_a_page(sue: Client, dead: Dead) -> None:
    job = dead(pipeline="not-here")

    assert sue.get(at(job)).status_code == 200
    assert "not deployed here" in sue.get(at(job, "invariants")).content.decode()


def test_other_jobs_of_the_document_are_linked(sue: Client, dead: Dead) -> None:
    job = dead()
    other = dead(document=job.document, user_id=job.user_id)

    assert at(other) in sue.get(at(job)).content.decode()


@pytest.mark.parametrize("path", ["", "invariants/", "repair/"])
def test_a_job_of_a_deleted_document_is_404(sue: Client, dead: Dead, path: str) -> None:
    job = dead()
    job.document.delete()

    answer = (
        sue.post(at(job) + path, {"verb": "retry", "reason": "x"}) if path == "repair/" else sue.get(at(job) + path)
    )

    assert answer.status_code == 404
    assert not AuditEntry.objects.exists()


# What staff may do.


@pytest.mark.parametrize(
    ("state", "verb", "after"),
    [
        ("deadletter", "retry", "queued"),
        ("deadletter", "retry_from", "queued"),
        ("working", "cancel", "deadletter"),
        ("queued", "discard", "deadletter"),
    ],
)
def test_buttons_are_shown_only_where_their_action_is_possible(sue: Client, state: str, verb: str, after: str) -> None:
    job = JobFactory.create(state=state, pipeline="stages", stage="parsed")

    page = sue.get(at(job)).content.decode()
    answer = sue.post(at(job, "repair"), {"verb": verb, "reason": "ticket 1", "stage": "queued"})

    shown = {name for name in ("retry", "retry_from", "cancel", "discard") if f'value="{name}"' in page}
    assert shown == ({"retry", "retry_from"} if state == "deadletter" else {"cancel", "discard"})
    assert answer.status_code == 302
    job.refresh_from_db()
    assert (job.state, job.stage) == (after, "queued" if verb == "retry_from" else "parsed")
    assert [(e.action, e.reason) for e in AuditEntry.objects.all()] == [(f"jobs.{verb}", "ticket 1")]


def test_stages_of_a_retry_say_what_they_may_buy(sue: Client, dead: Dead, settings: Any) -> None:
    settings.EMBEDDER, settings.LLAMAPARSE_API_KEY, settings.PARSER = "openai", "llx-1", "llamaparse"
    job = dead(stage="embeddings_buffered")
    Document.objects.filter(pk=job.document_id).update(pages=120)

    page = sue.get(at(job)).content.decode()

    both, embeddings = (
        format_money(float(ledger.predict_price(120, is_local=is_local)[1])) for is_local in (False, True)
    )
    assert f">job_validated: may buy for about {both}<" in page
    assert f">chunked: may buy for about {embeddings}<" in page
    assert ">embeddings_buffered<" in page


@pytest.mark.parametrize(
    ("verb", "codenames"),
    [
        ("retry", ("view_uploadjob", "cancel_uploadjob", "discard_uploadjob")),
        ("retry_from", ("view_uploadjob",)),
        ("cancel", ("view_uploadjob", "retry_uploadjob")),
        ("discard", ("view_uploadjob", "retry_uploadjob")),
        ("no-such-verb", ("view_uploadjob",)),
        ("retry", ()),
    ],
)
def test_without_the_permission_there_is_no_button_and_no_deed(
    staff: Staff, verb: str, codenames: tuple[str, ...]
) -> None:
    job = JobFactory.create(state="deadletter" if verb.startswith("retry") else "queued")
    client = staff(*codenames)

    page = client.get(at(job))
    answer = client.post(at(job, "repair"), {"verb": verb, "reason": "x", "stage": "embedded"})

    assert (page.status_code, answer.status_code) == (200 if codenames else 403, 403)
    assert b'name="verb"' not in page.content
    assert b"Read the document" not in page.content
    assert UploadJob.objects.get().state == job.state


@pytest.mark.parametrize(("state", "code"), [("working", "JOB_ALREADY_ACTIVE"), ("done", "JOB_DONE")])
def test_an_error_is_shown_on_the_page(sue: Client, state: str, code: str) -> None:
    job = JobFactory.create(state=state)

    answer = sue.post(at(job, "repair"), {"verb": "retry", "reason": "x"}, follow=True)

    assert code in answer.content.decode()


def test_a_link_changes_nothing_and_a_post_needs_its_token(staff: Staff, dead: Dead) -> None:
    job = dead()
    client = staff("view_uploadjob", "retry_uploadjob", strict=True)

    assert client.get(at(job, "repair"), {"verb": "retry", "reason": "x"}).status_code == 405
    assert client.post(at(job, "repair"), {"verb": "retry", "reason": "x"}).status_code == 403
    assert UploadJob.objects.get().state == "deadletter"


# Reading a tenant's text.


def read(client: Client, document_id: Any, reason: str = "ticket 7") -> str:
    answer = client.post(f"/admin/documents/{document_id}/read/", {"reason": reason})
    assert answer.status_code == 302, answer.status_code
    return answer["Location"]


def test_a_text_is_shown_after_the_audit_entry_is_written(sue: Client, real: Upload) -> None:
    before = sue.get(at(real.job)).content.decode()
    where = read(sue, real.document_id)
    shown = sue.get(where).content.decode()

    assert "dental" not in before
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.actor, entry.reason) == ("documents.read_text", "sue", "ticket 7")
    assert (entry.object_type, entry.object_id) == ("document", str(real.document_id))
    assert entry.tenant_id == real.job.user_id
    assert "dental care after deductible" in shown
    assert "Passage 0" in shown
    assert "eye care after deductible" in sue.get(where, {"page": "2"}).content.decode()
    assert "<mark>" in sue.get(where, {"page": "1", "passage": "0"}).content.decode()


def test_pages_that_are_not_to_be_relied_on_are_named(sue: Client, real: Upload) -> None:
    Document.objects.filter(pk=real.document_id).update(failed_pages=[1], doubtful_pages=[2])
    where = read(sue, real.document_id)

    job = sue.get(at(real.job)).content.decode()
    first, second = (sue.get(where, {"page": page}).content.decode() for page in ("1", "2"))

    assert "<dt>pages that could not be read</dt><dd>1</dd>" in job
    assert "<dt>pages whose text may be in the wrong order or incomplete</dt><dd>2</dd>" in job
    assert "This page could not be read." in first
    assert "The text of this page may be in the wrong order or incomplete." in second


def test_no_text_is_shown_without_an_audit_entry(staff: Staff, sue: Client, real: Upload) -> None:
    where = read(sue, real.document_id)
    tom, una = staff("view_uploadjob", "read_text", name="tom"), staff("view_uploadjob", name="una")

    for client, path, status in [
        (tom, where, 404),
        (tom, f"{where}pages/1/", 404),
        (una, where, 403),
        (una, f"{where}pages/1/", 403),
        (sue, f"/admin/reading/{uuid.uuid4()}/", 404),
    ]:
        answer = client.get(path)
        assert (answer.status_code, b"dental" in answer.content) == (status, False)
    assert una.post(f"/admin/documents/{real.document_id}/read/", {"reason": "x"}).status_code == 403
    refused = sue.post(f"/admin/documents/{real.document_id}/read/", {"reason": " "})
    assert (b"REASON_REQUIRED" in refused.content, b"dental" in refused.content) == (True, False)
    assert b"dental" not in sue.get(f"/admin/documents/{real.document_id}/read/").content
    assert AuditEntry.objects.count() == 1


def test_only_an_access_entry_opens_a_document_and_for_fifteen_minutes(sue: Client, real: Upload) -> None:
    where = read(sue, real.document_id)
    entry = AuditEntry.objects.get()
    fields = {"actor_id": entry.actor_id, "actor": "sue", "reason": "x", "object_type": "document"}
    others = [
        AuditEntry.objects.create(action="documents.read_text", object_id=entry.object_id, at=moment, **fields)
        for moment in [entry.at - timedelta(minutes=16)]
    ] + [AuditEntry.objects.create(action="documents.read_name", object_id=entry.object_id, **fields)]

    assert sue.get(where).status_code == 200
    assert [sue.get(f"/admin/reading/{other.pk}/").status_code for other in others] == [404, 404]


def test_a_page_is_shown_as_it_looks_and_kept_by_nothing(sue: Client, real: Upload) -> None:
    where = read(sue, real.document_id)

    picture = sue.get(f"{where}pages/1/")

    assert picture.status_code == 200
    assert picture["Content-Type"].startswith("image/")
    assert "no-store" in picture["Cache-Control"]
    assert sue.get(f"{where}pages/9/").status_code == 404


def test_a_passage_is_highlighted_on_the_image_for_authorized_staff(staff: Staff, sue: Client, real: Upload) -> None:
    where = read(sue, real.document_id)
    marks = f"{where}pages/1/marks/"

    assert f"{marks}?passage=0" in sue.get(where, {"page": "1", "passage": "0"}).content.decode()
    assert b"<rect" in sue.get(marks, {"passage": "0"}).content
    for number in ("", "7000", "x", "-1", "\0"):
        answer = sue.get(marks, {"passage": number})
        assert (answer.status_code, b"<rect" in answer.content) == (200, False), number
    assert staff("view_uploadjob", "read_text", name="tom").get(marks, {"passage": "0"}).status_code == 404


def test_hostile_names_and_texts_are_shown_as_text(sue: Client, settings: Any, ana: Person) -> None:
    settings.JOBS_PIPELINES = "accessa.pipelines.PIPELINES"
    uploaded = ana.ingest(text_pdf("<script>alert(2)</script> [x](javascript:alert(3)) <img src=x onerror=alert(4)>"))
    Document.objects.filter(pk=uploaded.document_id).update(filename=HOSTILE)

    shown = sue.get(read(sue, uploaded.document_id)).content.decode()

    assert "&lt;script&gt;alert(1)" in shown
    for harm in ("<script>alert", "<img src=x", 'href="javascript:'):
        assert harm not in shown


def test_a_document_without_parse_or_original_has_a_page(sue: Client, real: Upload) -> None:
    bare = JobFactory.create()
    document = Document.objects.get(pk=real.document_id)
    for path in (document.raw_path, document.parsed_path):
        bucket, name = buckets.locate(str(path))
        bucket.delete(name)

    for document_id in (bare.document_id, real.document_id):
        where = read(sue, document_id)
        assert "not been parsed yet" in sue.get(where).content.decode()
        assert sue.get(f"{where}pages/1/").status_code in (404, 409, 422, 503)


def test_a_document_that_is_deleted_while_it_is_read_is_gone(sue: Client, real: Upload) -> None:
    where = read(sue, real.document_id)

    services.delete(Document.objects.get(pk=real.document_id))

    assert sue.get(where).status_code == 404
    assert sue.get(f"{where}pages/1/").status_code == 404
    assert sue.post(f"/admin/documents/{real.document_id}/read/", {"reason": "x"}).status_code == 404
    assert AuditEntry.objects.exclude(action="documents.delete").count() == 1


def test_a_dead_letter_is_retried_from_its_page_and_finishes(sue: Client, real: Upload) -> None:
    UploadJob.objects.filter(pk=real.job_id).update(**{"state": "deadletter", "last_error": {"code": "X"}})

    sue.post(at(real.job, "repair"), {"verb": "retry_from", "reason": "x", "stage": "chunking"})
    run_all_jobs(1)

    assert real.job.state == "done"
    assert not Purchase.objects.exists()
