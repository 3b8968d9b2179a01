"""Export of all data of an account, from its page."""

import io
import json
import zipfile
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts import rate_limit, rls
from accounts.audit.models import AuditEntry
from documents import services, tags
from documents.models import Document
from documents.storage import buckets
from embeddings.models import DocumentChunk
from portal import account_export
from portal.tests.conftest import signed_in
from search import saved_questions
from testing.factories import DocumentFactory
from testing.factories.records import create_record, create_source
from testing.personas import Person, plan_pdf

pytestmark = pytest.mark.django_db
EXPORT = "/settings/account/export"


def exported(client: Client) -> zipfile.ZipFile:
    answer: Any = client.post(EXPORT)
    assert answer.status_code == 200
    assert answer["Content-Disposition"] == 'attachment; filename="accessa-data.zip"'
    archive = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))
    assert archive.testzip() is None
    return archive


def lines(archive: zipfile.ZipFile, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in archive.read(name).splitlines()]


def store_everything(person: Person, subject: str) -> Document:
    """Store a searchable document with a tag, a saved question and a record, all of ``subject``."""
    document: Document = Document.objects.get(pk=person.ingest(plan_pdf(subject)).document_id)
    tag, _ = tags.create_tag(user_id=person.id, name=f"{subject} tag", color="red")
    tags.add_tags(document, [tag.pk])
    saved_questions.save_question(user_id=person.id, question=f"{subject} question", history=[], mode="", scope="")
    create_record(create_source(person.id), "contact:1", f"{subject} record", embed=False)
    return document


def test_an_export_has_all_that_its_tenant_stored_and_nothing_of_others(
    ana: Person, ben: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_export, "ROWS", 1)
    document = store_everything(ana, "dental")
    store_everything(ben, "optical")

    archive = exported(signed_in(ana))

    bucket, name = buckets.locate(document.raw_path)
    assert archive.read(f"originals/{document.pk}/plan.pdf") == bucket.read(name)
    assert "dental" in archive.read(f"text/{document.pk}.md").decode()
    chunks = lines(archive, f"chunks/{document.pk}.jsonl")
    assert len(chunks) == DocumentChunk.objects.filter(document=document).count() > 0
    assert {each["chunk_id"] for each in chunks} == set(
        map(str, DocumentChunk.objects.filter(document=document).values_list("pk", flat=True))
    )
    assert [each["filename"] for each in lines(archive, "documents.jsonl")] == ["plan.pdf"]
    assert [each["name"] for each in lines(archive, "tags.jsonl")] == ["dental tag"]
    assert len(lines(archive, "document_tags.jsonl")) == 1
    assert [each["question"] for each in lines(archive, "saved_questions.jsonl")] == ["dental question"]
    assert [each["text"] for each in lines(archive, "source_documents.jsonl")] == ["dental record"]
    assert json.loads(archive.read("account.json"))["email"] == ana.user.email
    everything = b"".join(archive.read(name) for name in archive.namelist() if not name.startswith("originals/"))
    assert b"optical" not in everything
    assert "not included.txt" not in archive.namelist()


def test_a_token_with_the_scope_downloads_the_same_and_one_of_a_service_for_a_tenant_does_not(
    ana: Person, ben: Person, platform: Person
) -> None:
    document = store_everything(ana, "dental")
    store_everything(ben, "optical")

    answer: Any = ana.post("/export", HTTP_ACCEPT="application/zip")
    archive = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))
    for_tenant = platform.client.post("/export", headers={"x-accessa-user": str(ana.id)})

    assert answer["Content-Type"] == "application/zip"
    assert f"originals/{document.pk}/plan.pdf" in archive.namelist()
    assert [each["question"] for each in lines(archive, "saved_questions.jsonl")] == ["dental question"]
    assert json.loads(archive.read("account.json"))["email"] == ana.user.email
    assert (for_tenant.status_code, for_tenant.json()["code"]) == (403, "FORBIDDEN")
    assert list(AuditEntry.objects.filter(action="users.export").values_list("tenant_id", flat=True)) == [ana.id]


def test_policies_hide_what_is_of_others_where_the_query_does_not(ana: Person, ben: Person) -> None:
    store_everything(ben, "optical")

    with rls.as_tenant(ana.id):
        seen = [model._default_manager.exists() for model, _ in account_export.LISTS]

    assert seen == [False] * len(account_export.LISTS)


def test_a_file_that_cannot_be_read_is_named_and_the_rest_is_there(ana: Person) -> None:
    document = store_everything(ana, "dental")
    gone = DocumentFactory.create(user_id=ana.id, filename="gone.pdf", stored_at=timezone.now())
    waiting = DocumentFactory.create(user_id=ana.id, filename="waiting.pdf")

    archive = exported(signed_in(ana))

    assert f"originals/{gone.pk}/gone.pdf" in archive.read("not included.txt").decode()
    assert f"originals/{document.pk}/plan.pdf" in archive.namelist()
    assert str(waiting.pk) not in archive.read("not included.txt").decode()
    assert len(lines(archive, "documents.jsonl")) == 3


def test_a_document_deleted_during_the_download_is_left_out(ana: Person) -> None:
    """Both are listed by then; the pieces end in the files of the first."""
    documents = [Document.objects.get(pk=ana.ingest(plan_pdf(word)).document_id) for word in ("dental", "optical")]
    first, second = sorted(documents, key=lambda document: document.pk)
    answer: Any = signed_in(ana).post(EXPORT)
    pieces, sent = iter(answer.streaming_content), b""
    while f"chunks/{first.pk}.jsonl".encode() not in sent:
        sent += next(pieces)

    services.delete(second)
    archive = zipfile.ZipFile(io.BytesIO(sent + b"".join(pieces)))

    assert archive.testzip() is None
    assert f"originals/{first.pk}/plan.pdf" in archive.namelist()
    assert not [name for name in archive.namelist() if str(second.pk) in name]


def test_an_export_is_in_the_audit_log_without_personal_data(ana: Person) -> None:
    exported(signed_in(ana))

    entry = AuditEntry.objects.get(action="users.export")
    assert (entry.object_id, entry.tenant_id, entry.actor, entry.details) == (str(ana.id), ana.id, "tenant", {})


def test_exports_are_limited_and_the_page_says_by_what(ana: Person) -> None:
    client = signed_in(ana)
    for _ in range(rate_limit.EXPORTS.uses):  # type: ignore[arg-type]
        exported(client)

    answer = client.post(EXPORT)

    assert answer.status_code == 429
    assert "5 times a day" in answer.content.decode()


def test_an_export_is_asked_for_by_a_form_only(ana: Person) -> None:
    assert signed_in(ana).get(EXPORT).status_code == 405
    strict = Client(enforce_csrf_checks=True, headers={"accept": "text/html"})
    strict.force_login(ana.user)
    assert strict.post(EXPORT).status_code == 403
    assert Client(headers={"accept": "text/html"}).post(EXPORT).status_code == 302
    assert f'action="{EXPORT}"' in signed_in(ana).get("/settings/account").content.decode()
