"""Tenants' pages: access, states and messages."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.errors import Context, error_codes
from accounts.rls import as_tenant
from documents.models import Document
from embeddings.models import DocumentChunk
from jobs.models import UploadJob
from jobs.outcomes import Permanent
from portal.document_list import list_documents
from portal.document_page import Citation, get_passage
from portal.tests.conftest import signed_in
from portal.views.documents import POLL_SECONDS, parse_span
from testing.embedders import InstantEmbedder
from testing.error_codes import error_code
from testing.factories.searchable_documents import create_searchable_document
from testing.factories.vectors import generate_vectors, store_vectors
from testing.pdfs import text_pdf
from testing.personas import Person, claim_at_stage, plan_pdf

PDF = plan_pdf("hospital care", "drugs")
NOBODYS = "00000000-0000-4000-8000-000000000000"
HOSTILE = "<img src=x onerror=alert(1)>\"'><script>alert(2)</script>.pdf"


@pytest.fixture(autouse=True)
def _instant(settings: Any) -> None:
    settings.EMBEDDER = "testing.embedders.InstantEmbedder"


def fail(person: Person, code: str, content: bytes = PDF) -> Any:
    """Let a document fail for ``code``."""
    uploaded = person.upload(content)
    claim_at_stage("queued").settle(Permanent(error_code(code), "x"))
    return uploaded


# Whose


def routes(document_id: Any, chunk_id: Any) -> list[tuple[str, str]]:
    own = f"/d/{document_id}"
    return [
        ("get", own), ("get", f"{own}?passage={chunk_id}"), ("get", f"{own}/status"), ("get", f"{own}/original"),
        ("get", f"{own}/marks?page=1&passage={chunk_id}"), ("get", f"{own}/delete"), ("post", f"{own}/delete"),
        ("post", f"{own}/retry"),
    ]  # fmt: skip


def test_another_tenants_document_does_not_exist_and_staff_are_tenants_here(
    ana: Person, ben: Person, sam: Person
) -> None:
    uploaded = ana.ingest(PDF)
    chunk = DocumentChunk.objects.filter(document_id=uploaded.document_id).first()
    assert chunk is not None

    for person in (ben, sam):
        client = signed_in(person)
        for method, path in routes(uploaded.document_id, chunk.pk):
            answer = getattr(client, method)(path)
            assert (answer.status_code, b"There is no such" in answer.content) == (404, True), path
        assert str(uploaded.document_id).encode() not in client.get("/").content
        assert b"plan.pdf" not in client.get(f"/find?document={uploaded.document_id}").content
        results = client.post("/find", {"query": "hospital", "document": uploaded.document_id})
        assert b"Nothing was found" in results.content
    assert Document.objects.filter(pk=uploaded.document_id).exists()


def test_another_tenants_passage_is_not_shown_on_a_document(ana: Person, ben: Person) -> None:
    of_ana, of_ben = ana.ingest(PDF), ben.ingest(plan_pdf("secret care"))
    chunk = DocumentChunk.objects.filter(document_id=of_ben.document_id).first()
    assert chunk is not None

    answer = signed_in(ana).get(f"/d/{of_ana.document_id}?passage={chunk.pk}")

    assert answer.status_code == 200
    assert b"secret care" not in answer.content
    assert b"<mark" not in answer.content


def test_the_list_is_read_as_the_tenant_whatever_its_query_says(
    ana: Person, ben: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    ana.upload(PDF)
    with CaptureQueriesContext(connection) as queries:
        list_documents(ben.id)

    reads = [query["sql"] for query in queries if 'FROM "documents"' in query["sql"] or "upload_jobs" in query["sql"]]
    roles = [query["sql"] for query in queries if "set_config('role'" in query["sql"]]
    assert reads
    assert len(roles) == 2  # before them and after them
    with as_tenant(ben.id):
        assert not Document.objects.exists()


# The list


def test_the_list_has_a_constant_number_of_queries(ana: Person) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            list_documents(ana.id)
        return len(queries)

    ana.upload(PDF)
    for_one = cost()
    for number in range(5):
        ana.upload(text_pdf(f"Another plan, number {number}."))

    assert cost() == for_one


def test_many_documents_are_shown_page_by_page_each_once(ana: Person) -> None:
    documents = store_vectors(ana.id, generate_vectors(75), per_document=1)
    same = timezone.now() - timedelta(days=1)
    Document.objects.filter(pk__in=documents.document_ids[:55]).update(created_at=same)  # a page break among equals
    client, place, seen = signed_in(ana), "", []

    while True:
        listed = client.get("/", {"from": place}).context["listed"]
        seen += [row.id for row in listed.rows]
        if listed.older is None:
            break
        place = listed.older

    assert len(seen) == 75
    assert set(seen) == set(documents.document_ids)


@pytest.mark.parametrize(
    "place", ["x", "2026-01-01_x", f"2026-99-99T00:00:00Z_{NOBODYS}", f"2026-01-01_{NOBODYS}", "\0"]
)
def test_a_place_that_is_none_is_the_beginning(place: str, ana: Person) -> None:
    ana.upload(PDF)

    assert len(signed_in(ana).get("/", {"from": place}).context["listed"].rows) == 1


def test_the_list_polls_active_documents_with_growing_pauses(ana: Person) -> None:
    client = signed_in(ana)
    assert b"every" not in client.get("/list").content
    ana.upload(PDF)
    paces: list[int] = []
    params: dict[str, Any] = {}

    for _ in POLL_SECONDS:
        answer = client.get("/list", params)
        paces.append(answer.context["every"])
        params = {"seen": answer.context["listed"].fingerprint, "quiet": answer.context["quiet"]}
    settled = client.get("/list", params)
    claim_at_stage("queued").settle(Permanent(error_code("NOT_A_PDF"), "x"))
    moved = client.get("/list", params)

    assert paces == list(POLL_SECONDS)
    assert settled.status_code == 204
    assert b"every" not in moved.content
    assert str(error_code("NOT_A_PDF").tenant_message) in moved.content.decode()


def test_polling_pages_are_exempt_from_the_poll_limit(ana: Person, settings: Any) -> None:
    settings.POLLS_PER_MINUTE = 1
    uploaded, client = ana.upload(PDF), signed_in(ana)

    assert {client.get("/list").status_code for _ in range(3)} == {200}
    assert {client.get(f"/d/{uploaded.document_id}/status").status_code for _ in range(3)} == {200}


# Why a document does not move


@pytest.mark.parametrize("reason", sorted(error_codes(Context.WAIT)))
def test_a_waiting_document_shows_its_reason(reason: str, ana: Person) -> None:
    job = ana.upload(PDF).job
    UploadJob.objects.filter(pk=job.pk).update(run_after=timezone.now() + timedelta(seconds=60), wait_reason=reason)

    page = signed_in(ana).get("/list")

    assert page.context["listed"].rows[0].status.sentence == error_codes(Context.WAIT)[reason].tenant_message
    assert reason.encode() not in page.content


@pytest.mark.parametrize("code", ["NOT_A_PDF", "NO_TEXT_LAYER", "PARSE_FAILED", "internal", "NEVER_HEARD_OF"])
def test_a_failure_shows_its_message_and_remedy(code: str, ana: Person) -> None:
    failed = error_codes(Context.FAILURE)
    failure = failed.get(code, failed["internal"])
    uploaded = fail(ana, code)
    client = signed_in(ana)

    for path in ("/list", f"/d/{uploaded.document_id}"):
        page = client.get(path).content.decode()
        assert str(failure.tenant_message).replace("'", "&#x27;") in page
        assert code not in page
        assert ("Try again<" in page) == failure.retryable
        assert ("Read as a scan" in page) == (code == "NO_TEXT_LAYER")


@pytest.mark.parametrize(("code", "drawn"), [("NO_TEXT_LAYER", True), ("PARSER_OUT_OF_MEMORY", False)])
def test_a_page_that_exceeds_the_limits_is_not_drawn_at_each_showing(code: str, drawn: bool, ana: Person) -> None:
    uploaded = fail(ana, code)
    Document.objects.filter(pk=uploaded.document_id).update(pages=1)

    assert (b"/thumbnail" in signed_in(ana).get("/list").content) is drawn


def test_a_failed_document_is_tried_again_by_its_button(ana: Person) -> None:
    uploaded = fail(ana, "PARSE_FAILED")

    answer = signed_in(ana).post(f"/d/{uploaded.document_id}/retry", headers={"HX-Request": "true"})

    assert answer.templates[0].name == "portal/document_list.html"
    assert uploaded.job.state == "queued"


def test_a_scan_is_retried_with_ocr_on_request(ana: Person) -> None:
    uploaded = fail(ana, "NO_TEXT_LAYER")

    answer = signed_in(ana).post(f"/d/{uploaded.document_id}/retry", {"ocr": "1"})

    assert (answer.status_code, answer["Location"]) == (302, f"/d/{uploaded.document_id}")
    assert Document.objects.get().ocr
    assert uploaded.job.state == "queued"


@pytest.mark.parametrize("htmx", [True, False])
def test_retrying_an_active_document_shows_a_message(htmx: bool, ana: Person) -> None:
    uploaded, client = ana.upload(PDF), signed_in(ana)

    headers = {"HX-Request": "true"} if htmx else {}
    answer = client.post(f"/d/{uploaded.document_id}/retry", headers=headers, follow=True)

    assert b"being worked on already" in answer.content


def test_a_file_that_fails_again_and_again_meets_the_upload_limit(ana: Person, settings: Any) -> None:
    uploaded = fail(ana, "NO_TEXT_LAYER")
    settings.UPLOADS_PER_DAY = 1

    answer = signed_in(ana).post(f"/d/{uploaded.document_id}/retry", {"ocr": "1"}, follow=True)

    assert b"Come back in 24 hours" in answer.content


# One document


def test_a_document_is_read_page_by_page_with_its_citation_marked(ana: Person) -> None:
    uploaded = ana.ingest(PDF)
    client = signed_in(ana)
    chunk = (
        DocumentChunk.objects.filter(document_id=uploaded.document_id, meta__pages__0=2).order_by("chunk_ord").last()
    )
    assert chunk is not None

    page = client.get(f"/d/{uploaded.document_id}?passage={chunk.pk}")

    assert page.context["page"].number == 2
    assert page.content.count(b'<mark id="cited">') == 1
    assert f"/documents/{uploaded.document_id}/pages/2".encode() in page.content
    assert b"of drugs" in page.content
    assert b"hospital care" not in client.get(f"/d/{uploaded.document_id}?page=2").context["page"].text.encode()


def test_pages_that_are_not_to_be_relied_on_are_named(ana: Person) -> None:
    uploaded = ana.ingest(text_pdf("hospital care", "drugs", ""))
    Document.objects.filter(pk=uploaded.document_id).update(failed_pages=[3], doubtful_pages=[2])

    first, second, third = (
        signed_in(ana).get(f"/d/{uploaded.document_id}?page={number}").content.decode() for number in (1, 2, 3)
    )

    assert (
        "3 pages. These pages could not be read: 3. The text of these pages may be in the wrong order or incomplete: 2."
        in first
    )
    assert ("of this page may be in" in first, "of this page may be in" in second) == (False, True)
    assert "This page could not be read." in third


@pytest.mark.parametrize(
    ("requested", "shown"), [("", 1), ("0", 1), ("2", 2), ("99", 2), ("-1", 1), ("x", 1), ("9" * 30, 1), ("٣", 1)]
)
def test_only_pages_that_are_there_are_shown(requested: str, shown: int, ana: Person) -> None:
    uploaded = ana.ingest(PDF)

    assert signed_in(ana).get(f"/d/{uploaded.document_id}", {"page": requested}).context["page"].number == shown


def test_pages_and_marks_are_looked_at_so_often_and_no_more(ana: Person, settings: Any) -> None:
    uploaded, client = ana.ingest(PDF), signed_in(ana)
    chunk = DocumentChunk.objects.filter(document_id=uploaded.document_id).order_by("chunk_ord").first()
    assert chunk is not None
    path = f"/d/{uploaded.document_id}"
    marked = client.get(f"{path}/marks?page=1&passage={chunk.pk}")
    settings.PAGE_VIEWS_PER_MINUTE = 1

    refused = client.get(path)
    unmarked = client.get(f"{path}/marks?page=1&passage={chunk.pk}")

    assert (refused.status_code, b"Too many requests" in refused.content) == (429, True)
    assert 0 < int(refused["Retry-After"]) <= 60
    assert (b"<svg" in marked.content, b"<svg" in unmarked.content) == (True, False)


def test_an_unparsed_document_says_so_and_reloads_once_it_is_parsed(ana: Person) -> None:
    uploaded, client = ana.upload(PDF), signed_in(ana)
    path = f"/d/{uploaded.document_id}"

    before, still = client.get(path), client.get(f"{path}/status")
    claim_at_stage("queued").settle(Permanent(error_code("NOT_A_PDF"), "x"))
    after = client.get(f"{path}/status")

    assert b"as soon as" in before.content
    assert b"every 2s" in still.content
    assert after["HX-Refresh"] == "true"


def test_the_original_is_fetched_from_where_the_page_came_from(ana: Person) -> None:
    uploaded, client = ana.ingest(PDF), signed_in(ana)

    leads = client.get(f"/d/{uploaded.document_id}/original")["Location"]

    assert leads.startswith("/storage/raw/")
    assert client.get(leads).getvalue() == PDF


def test_an_unavailable_store_is_an_error_page_with_retry_after(ana: Person, settings: Any, tmp_path: Any) -> None:
    uploaded = ana.ingest(PDF)
    parsed = settings.STORAGE_ROOT / "parsed" / str(ana.id) / f"{uploaded.document_id}.md"
    parsed.unlink()
    parsed.mkdir()

    answer = signed_in(ana).get(f"/d/{uploaded.document_id}")

    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    assert b"file store cannot be reached" in answer.content


def test_deleting_asks_first_and_then_removes_for_good(ana: Person) -> None:
    uploaded, client = ana.ingest(PDF), signed_in(ana)
    path = f"/d/{uploaded.document_id}/delete"

    confirmation = client.get(path)
    assert b"deleted permanently" in confirmation.content
    assert Document.objects.exists()
    gone = client.post(path, follow=True)

    assert b"The document was deleted." in gone.content
    assert not Document.objects.exists()


# Search


def test_a_search_result_links_to_the_cited_page(ana: Person) -> None:
    uploaded, client = ana.ingest(PDF), signed_in(ana)

    answer = client.post("/find", {"query": "drugs", "mode": "text"}, headers={"HX-Request": "true"})

    passage = answer.context["passages"][0]
    start, end = passage.answer_span
    link = f"/d/{uploaded.document_id}?passage={passage.chunk_id}&amp;span={start}-{end}#cited"
    assert link in answer.content.decode()
    assert b"<html" not in answer.content

    sentence = passage.snippet_html.partition("<mark>")[2].partition("</mark>")[0]
    page = client.get(link.removesuffix("#cited").replace("&amp;", "&")).content.decode()
    marks = client.get(f"/d/{uploaded.document_id}/marks?page=2&passage={passage.chunk_id}&span={start}-{end}")
    assert f'<mark id="cited">{sentence}</mark>' in page
    assert "Text of page 2" in page
    assert f"span={start}-{end}" in page
    assert 1 <= marks.content.count(b"<rect") <= 2


@pytest.mark.parametrize("span", ["", "5", "-", "7-3", "0-999999999", "a-b", "1-2-3", "٣-٤", "<script>"])
def test_a_span_outside_of_its_passage_is_ignored(span: str, ana: Person) -> None:
    document_id = create_searchable_document(ana.id, ["one two three"])
    chunk = DocumentChunk.objects.get(document_id=document_id)

    citation = Citation(chunk.pk, parse_span(span))
    cited = get_passage(chunk.document, citation)

    assert cited is not None
    assert (cited.start, cited.end) == (0, 13)


@pytest.mark.parametrize(
    ("form", "sentence"),
    [({"query": " "}, "Type a question"), ({"query": "x" * 9000}, "too long"), ({}, "Type a question")],
)
def test_search_errors_are_shown_as_messages(form: dict[str, str], sentence: str, ana: Person) -> None:
    answer = signed_in(ana).post("/find", form)

    assert answer.status_code == 200
    assert sentence.encode() in answer.content


def test_too_many_questions_are_answered_with_when_to_come_back(ana: Person, settings: Any) -> None:
    settings.SEARCHES_PER_MINUTE = 0

    answer = signed_in(ana).post("/find", {"query": "drugs", "mode": "text"})

    assert b"There can be 0 searches a minute. Come back in 60 seconds." in answer.content


def test_a_question_is_part_of_no_address(ana: Person) -> None:
    page = signed_in(ana).get("/find", {"query": "my illness"})

    assert b"my illness" not in page.content
    assert b'id="ask" method="post"' in page.content


def test_search_looks_only_at_the_chosen_document(ana: Person) -> None:
    first, other = ana.ingest(PDF), ana.ingest(plan_pdf("drugs"))

    results = signed_in(ana).post("/find", {"query": "drugs", "mode": "text", "document": str(first.document_id)})

    assert {passage.document_id for passage in results.context["passages"]} == {first.document_id}
    assert str(other.document_id) in results.content.decode()  # to be chosen instead


# What is hostile


def test_names_and_texts_are_escaped(ana: Person) -> None:
    text = "<script>alert(3)</script> [press](javascript:alert(4)) <img src=x onerror=alert(5)> coverage"
    uploaded = ana.ingest(text_pdf(text), filename=HOSTILE.replace("/", ""))
    client = signed_in(ana)
    pages: list[Callable[[], Any]] = [
        lambda: client.get("/"),
        lambda: client.get(f"/d/{uploaded.document_id}"),
        lambda: client.get(f"/d/{uploaded.document_id}/delete"),
        lambda: client.post("/find", {"query": "coverage", "mode": "text"}),
    ]

    for page in pages:
        shown = page().content.decode().lower()
        assert "onerror" in shown
        assert shown.count("<script") == shown.count("<script src=") + shown.count('type="application/json"')
        assert "<img src=x" not in shown
        assert 'href="javascript' not in shown


def test_bidirectional_and_very_long_filenames_keep_the_layout(ana: Person) -> None:
    ana.upload(PDF, filename="invoice\u202efdp.exe.pdf")
    ana.upload(text_pdf("x"), filename="w" * 116 + ".pdf")

    page = signed_in(ana).get("/").content.decode()

    assert "\u202e" not in page
    assert f"<bdi>{'w' * 116}.pdf</bdi>" in page


def test_no_page_shows_internal_data(ana: Person) -> None:
    uploaded = ana.ingest(PDF)
    client = signed_in(ana)

    for path in ("/", f"/d/{uploaded.document_id}", "/find"):
        page = client.get(path).content.decode()
        assert "storage://" not in page
        assert str(ana.id) not in page
        assert InstantEmbedder.model not in page
