"""The document library: filters, order and pages of the list, names, tags and bulk actions."""

import hashlib
import io
import zipfile
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from documents import services, tags, zip_download
from documents.models import Document, Tag
from documents.storage import buckets
from portal import document_list, search_scope
from portal.document_list import list_documents
from portal.list_query import ORDERS, ListQuery
from portal.search_scope import SearchScope
from portal.tests.conftest import signed_in
from portal.views import library
from testing.factories import DocumentFactory
from testing.factories.searchable_documents import create_searchable_document
from testing.pdfs import text_pdf
from testing.personas import Person

HOSTILE = "<script>alert(1)</script>\"'><img src=x>"


@pytest.fixture
def shelf(ana: Person, ben: Person) -> dict[str, UUID]:
    """Five documents of Ana's, each another in state, type, day and size; one of Ben's."""
    day = datetime(2026, 3, 1, 12, tzinfo=UTC)
    states = {"Alpha.pdf": "complete", "beta.pdf": "failed_parse", "gamma 50%.pdf": "uploaded", "delta.pdf": "complete"}
    ids = {}
    for number, (name, status) in enumerate(states.items()):
        document = DocumentFactory.create(user_id=ana.id, filename=name, bytes_len=1000 - number, ocr=number == 1)
        changes = {"processing_status": status, "created_at": day + timedelta(days=number), "imported": number == 2}
        Document.objects.filter(pk=document.pk).update(**changes)
        ids[name] = document.pk
    DocumentFactory.create(user_id=ben.id, filename="alpha of ben.pdf")
    tag, _ = tags.create_tag(user_id=ana.id, name="2026")
    tags.add_tags(Document.objects.get(pk=ids["delta.pdf"]), [tag.pk])
    return ids


def names(person: Person, query: str) -> list[str]:
    listed = signed_in(person).get(f"/?{query}").context["listed"]
    return [row.document.filename.removesuffix(".pdf") for row in listed.rows]


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", ["delta", "gamma 50%", "beta", "Alpha"]),
        ("name=ALPHA", ["Alpha"]),
        ("name=50%25", ["gamma 50%"]),
        ("name=%25", ["gamma 50%"]),
        ("name=_", []),
        ("name=%00", ["delta", "gamma 50%", "beta", "Alpha"]),
        ("state=ready", ["delta", "Alpha"]),
        ("state=preparing", ["gamma 50%"]),
        ("state=failed", ["beta"]),
        ("state=x&type=x&sort=x&since=x&until=2026-99-99&tag=x", ["delta", "gamma 50%", "beta", "Alpha"]),
        ("type=scan", ["beta"]),
        ("type=connected", ["gamma 50%"]),
        ("since=2026-03-02&until=2026-03-03", ["gamma 50%", "beta"]),
        # Noon in UTC is the next day east of UTC+12, the day before west of UTC-12, and still the same one at UTC-8.
        ("since=2026-03-03&until=2026-03-03&zone=Pacific/Kiritimati", ["beta"]),
        ("since=2026-03-03&until=2026-03-03&zone=America/Los_Angeles", ["gamma 50%"]),
        ("since=2026-03-03&until=2026-03-03&zone=../etc/localtime", ["gamma 50%"]),
        ("since=2026-03-03&zone=America", ["delta", "gamma 50%"]),
        ("sort=oldest", ["Alpha", "beta", "gamma 50%", "delta"]),
        ("sort=name", ["Alpha", "beta", "delta", "gamma 50%"]),
        ("sort=name-desc", ["gamma 50%", "delta", "beta", "Alpha"]),
        ("sort=largest", ["Alpha", "beta", "gamma 50%", "delta"]),
        ("sort=smallest&state=ready", ["delta", "Alpha"]),
    ],
)
def test_the_list_is_filtered_and_ordered(query: str, shown: list[str], ana: Person, shelf: dict[str, UUID]) -> None:
    assert names(ana, query) == shown


def test_days_of_a_zone_with_summer_time_last_from_midnight_to_midnight() -> None:
    query = ListQuery.parse({"since": "2026-03-08", "until": "2026-03-08", "zone": "America/New_York"})

    bounds: dict[str, datetime] = dict(pair for pair in query.conditions(uuid4()).children if isinstance(pair, tuple))

    day = bounds["created_at__lt"].astimezone(UTC) - bounds["created_at__gte"].astimezone(UTC)
    assert day == timedelta(hours=23)


def test_the_list_is_filtered_by_tags_of_the_tenant(ana: Person, ben: Person, shelf: dict[str, UUID]) -> None:
    tag = Tag.objects.get()

    assert names(ana, f"tag={tag.pk}") == ["delta"]
    assert names(ana, f"tag={tag.pk}&tag={uuid4()}") == ["delta"]
    assert names(ben, f"tag={tag.pk}") == []


@pytest.mark.parametrize("sort", ORDERS)
def test_every_order_is_paged_without_gaps_among_equals(
    sort: str, ana: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_list, "PAGE_SIZE", 3)
    for number in range(10):
        DocumentFactory.create(user_id=ana.id, filename=f"a_{number // 5}.pdf", bytes_len=number // 5)
    Document.objects.update(created_at=timezone.now())
    query, seen = ListQuery(sort=sort), list[UUID]()

    while True:
        page = list_documents(ana.id, query)
        seen += [row.id for row in page.rows]
        if page.older is None:
            break
        query = ListQuery(sort=sort, cursor=page.older)

    assert len(seen) == len(set(seen)) == 10


@pytest.mark.parametrize("sort", ORDERS)
@pytest.mark.parametrize("value", ["x", "", "\0", "9" * 30, "0001-01-01T00:00:00+14:00", "-1", "٣"])
def test_a_malformed_cursor_is_no_error(value: str, sort: str, ana: Person) -> None:
    DocumentFactory.create(user_id=ana.id)

    answer = signed_in(ana).get("/list", {"sort": sort, "from": f"{value}_{uuid4()}"})

    assert answer.status_code == 200


def test_the_view_is_remembered(ana: Person) -> None:
    client = signed_in(ana)
    DocumentFactory.create(user_id=ana.id)

    assert b'class="docs table"' in client.get("/").content
    assert b'class="docs grid"' in client.get("/?view=grid").content
    assert b'class="docs grid"' in client.get("/list?view=table").content


def test_names_and_tags_are_text_everywhere(ana: Person) -> None:
    uploaded, client = ana.ingest(text_pdf("Dental care."), filename=HOSTILE), signed_in(ana)
    tag, _ = tags.create_tag(user_id=ana.id, name="<b onclick=x>'\"&amp;")
    tags.add_tags(Document.objects.get(), [tag.pk])
    own = f"/d/{uploaded.document_id}"
    pages = ["/", "/list", own, f"{own}/edit", f"{own}/delete", "/library/tags", f"/library/tags/{tag.pk}", "/find"]
    chosen = {"document": str(uploaded.document_id), "action": "delete"}

    for content in [*(client.get(page).content for page in pages), client.post("/library/bulk", chosen).content]:
        assert b"<script>alert" not in content
        assert b"<b onclick" not in content
        assert b"<img src=x" not in content


# Name and tags


def test_a_document_is_renamed_and_tagged_on_one_page(ana: Person) -> None:
    document, client = DocumentFactory.create(user_id=ana.id), signed_in(ana)
    old, _ = tags.create_tag(user_id=ana.id, name="old")
    path = f"/d/{document.pk}/edit"

    form = client.get(path).content.decode()
    answer = client.post(path, {"name": "Gold.pdf", "tag": [str(old.pk)], "new_tag": "2026", "color": "pink"})
    refused = client.post(path, {"name": "/", "tag": [str(uuid4())]})

    assert 'value="plan.pdf"' in form
    assert answer["Location"] == f"/d/{document.pk}"
    assert Document.objects.get().filename == "Gold.pdf"
    listed = client.get("/").context["listed"].rows[0].tags
    assert [(tag.name, tag.color) for tag in listed] == [("2026", "pink"), ("old", "gray")]
    assert b"The file needs a name." in refused.content


def test_tags_are_made_changed_and_deleted(ana: Person, ben: Person) -> None:
    client = signed_in(ana)
    client.post("/library/tags", {"new_tag": "dental", "color": "x"})
    path = f"/library/tags/{Tag.objects.get().pk}"

    foreign = [getattr(signed_in(ben), method)(path).status_code for method in ("get", "post")]
    client.post(path, {"name": "Teeth", "color": "red"})
    changed = Tag.objects.get()
    empty = client.post(path, {"name": " "})
    client.post(path, {"delete": "1"})

    assert foreign == [404, 404]
    assert (changed.name, changed.color) == ("Teeth", "red")
    assert b"1 to 40 characters" in empty.content
    assert not Tag.objects.exists()


# Bulk actions


def choose(client: Any, action: str, *documents: Any, **fields: Any) -> Any:
    ids = [str(getattr(document, "pk", document)) for document in documents]
    return client.post("/library/bulk", {"action": action, "document": ids, "list": "sort=name&x=<y>", **fields})


def test_chosen_documents_are_deleted_after_a_confirmation(ana: Person, ben: Person) -> None:
    one, two, kept = (DocumentFactory.create(user_id=ana.id, filename=f"{n}.pdf") for n in range(3))
    foreign, client = DocumentFactory.create(user_id=ben.id, filename="secret.pdf"), signed_in(ana)

    asked = choose(client, "delete", one, two, foreign, uuid4(), "x")
    before = Document.objects.count()
    answer = choose(client, "delete", one, two, foreign, confirmed="1")

    assert (b"Delete 2 documents?" in asked.content, b"secret" in asked.content, before) == (True, False, 4)
    assert answer["Location"] == "/?sort=name"
    assert set(Document.objects.values_list("pk", flat=True)) == {kept.pk, foreign.pk}
    assert b"2 documents deleted." in client.get("/").content


def test_chosen_documents_are_tagged_and_untagged(ana: Person, ben: Person) -> None:
    documents, client = [DocumentFactory.create(user_id=ana.id) for _ in range(2)], signed_in(ana)
    foreign_tag, _ = tags.create_tag(user_id=ben.id, name="ben's")

    def given() -> list[list[str]]:
        return [[tag.name for tag in row.tags] for row in client.get("/").context["listed"].rows]

    choose(client, "tag", *documents, new_tag="2026")
    choose(client, "tag", *documents, bulk_tag=str(foreign_tag.pk))
    after_tagging = given()
    choose(client, "untag", documents[0], bulk_tag=str(Tag.objects.get(name="2026").pk))

    assert after_tagging == [["2026"], ["2026"]]
    assert sorted(given()) == [[], ["2026"]]


def test_a_full_document_does_not_keep_others_from_a_tag(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tags, "MAX_DOCUMENT_TAGS", 1)
    full, other = (DocumentFactory.create(user_id=ana.id, filename=f"{name}.pdf") for name in ("full", "other"))
    tags.add_tags(full, [tags.create_tag(user_id=ana.id, name="old")[0].pk])
    client = signed_in(ana)

    choose(client, "tag", full, other, new_tag="new")
    page = client.get("/").content

    assert b"1 document tagged." in page
    assert b"full.pdf: A document can have 20 tags." in page


@pytest.mark.parametrize("action", ["delete", "tag", "untag", "download"])
def test_a_document_that_is_deleted_during_a_bulk_action_is_no_error(
    action: str, ana: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, gone = (Document.objects.get(pk=ana.ingest(text_pdf(text)).document_id) for text in ("kept", "gone"))
    client, chosen = signed_in(ana), tags.create_tag(user_id=ana.id, name="2026")[0]

    def read_then_delete(*_: Any) -> list[Document]:
        services.delete(Document.objects.get(pk=gone.pk))
        return [gone, kept]

    monkeypatch.setattr(library, "get_documents", read_then_delete)
    answer = choose(client, action, kept, gone, bulk_tag=str(chosen.pk), confirmed="1")

    assert answer.status_code == (200 if action == "download" else 302)
    if action == "download":
        names = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content))).namelist()
        assert names == ["plan (2).pdf", "not included.txt"]
    if action == "tag":
        assert [row.tags[0].name for row in client.get("/").context["listed"].rows] == ["2026"]
    assert Document.objects.count() == (0 if action == "delete" else 1)


@pytest.mark.parametrize("action", ["delete", "tag", "download", "x", ""])
def test_an_action_on_nothing_says_so(action: str, ana: Person) -> None:
    client = signed_in(ana)

    assert choose(client, action)["Location"] == "/?sort=name"
    assert b"Choose documents first." in client.get("/").content


def test_chosen_originals_are_one_zip(ana: Person) -> None:
    contents = [text_pdf("Dental care."), text_pdf("Eye care."), text_pdf("Gone.")]
    uploads = [ana.ingest(content, filename="Plan.pdf") for content in contents]
    waiting = DocumentFactory.create(user_id=ana.id)
    gone = Document.objects.get(pk=uploads[2].document_id)
    client = signed_in(ana)

    bucket, name = buckets.locate(gone.raw_path)
    bucket.delete(name)
    answer = choose(client, "download", *(each.document_id for each in uploads), waiting)
    archive = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))

    assert answer["Content-Disposition"] == 'attachment; filename="documents.zip"'
    assert archive.testzip() is None
    listed = sorted(archive.namelist())
    assert (len(listed), listed[-1]) == (3, "not included.txt")
    assert {archive.read(name) for name in listed[:2]} == set(contents[:2])


def test_a_download_is_bounded_and_says_by_what(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_download, "MAX_BYTES", 1 << 20)
    big = DocumentFactory.create(user_id=ana.id, bytes_len=3 << 20, stored_at=timezone.now())
    client = signed_in(ana)

    choose(client, "download", big)

    assert b"These files have 3 MB together; 1 MB are the most." in client.get("/").content


def test_names_in_a_zip_are_unique_without_regard_to_case() -> None:
    assert zip_download.unique_names(["a.pdf", "A.pdf", "a (2).pdf", "b"]) == [
        "a.pdf",
        "A (2).pdf",
        "a (2) (2).pdf",
        "b",
    ]


# Questions within documents and tags


def test_a_question_is_asked_within_tags_and_documents_and_these_are_remembered(ana: Person) -> None:
    ids = [create_searchable_document(ana.id, [f"Dental care {name}."], filename=f"{name}.pdf") for name in "abc"]
    tag, _ = tags.create_tag(user_id=ana.id, name="2026")
    tags.add_tags(Document.objects.get(pk=ids[0]), [tag.pk])
    client = signed_in(ana)

    def found(**scope: Any) -> set[str]:
        context = client.post("/find", {"query": "dental care", "mode": "text", **scope}).context
        return {passage.filename for passage in context["passages"]}

    assert found() == {"a.pdf", "b.pdf", "c.pdf"}
    assert found(tag=str(tag.pk)) == {"a.pdf"}
    assert found(document=[str(ids[1]), str(ids[2])]) == {"b.pdf", "c.pdf"}
    assert found(document=str(ids[1]), tag=str(tag.pk)) == {"a.pdf", "b.pdf"}
    remembered = client.get("/find").context["form"].scope
    assert (remembered.documents, remembered.tags) == ((ids[1],), (tag.pk,))
    tags.delete_tag(tag)
    assert client.get("/find").context["form"].scope.label == "1 document"
    assert client.get(f"/find?document={ids[0]}").context["form"].scope.documents == (ids[0],)


def test_tags_and_documents_together_are_bounded(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_scope, "MAX_DOCUMENTS", 1)
    ids = [create_searchable_document(ana.id, ["Dental care."]) for _ in range(2)]
    tag, _ = tags.create_tag(user_id=ana.id, name="2026")
    tags.add_tags(Document.objects.get(pk=ids[0]), [tag.pk])

    page = signed_in(ana).post("/find", {"query": "dental", "document": str(ids[1]), "tag": str(tag.pk)})

    assert b"more than 1 documents" in page.content


@pytest.mark.parametrize("words", ["", "x", "tag:x", "laws tag:", "tag:laws", "\0"])
def test_a_malformed_scope_is_everything_or_statutes(words: str) -> None:
    scope = SearchScope.parse([words])

    assert not scope.is_narrow
    assert str(SearchScope.parse([str(scope)])) == str(scope)


# Uploads


def test_a_file_that_is_here_already_is_named_to_its_owner_alone(ana: Person, ben: Person) -> None:
    content = text_pdf("Dental care.")
    uploaded, failed = ana.ingest(content, filename="Plan.pdf"), ana.ingest(b"no PDF")

    def known(person: Person, sha256: str) -> Any:
        return signed_in(person).post("/library/duplicate", {"sha256": sha256}).json()

    sha256 = hashlib.sha256(content).hexdigest()
    assert known(ana, sha256) == {"url": f"/d/{uploaded.document_id}", "name": "Plan.pdf"}
    assert known(ben, sha256) == known(ana, "\0") == known(ana, "") == {}
    assert known(ana, Document.objects.get(pk=failed.document_id).file_sha256) == {}


def test_a_refusal_names_the_limit_and_the_way_out(ana: Person, settings: Any) -> None:
    settings.MAX_PAGES = 1
    ana.ingest(text_pdf("one", "two"))
    page = signed_in(ana).get("/").content.decode()

    assert "The PDF has 2 pages; the limit is 1. Upload it in parts." in page
    assert ana.request_upload(b"x", bytes_len=40 << 20).json()["detail"] == (
        "The file has 40.0 MB; the limit is 25 MB. Split it, or save it smaller."
    )
