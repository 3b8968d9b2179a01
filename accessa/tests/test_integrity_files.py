"""Integrity checks of files: missing and orphaned objects, by one listing of each bucket."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.files.storage import storages
from django.db import connection

from accessa.integrity import violations as integrity
from documents.models import Document
from documents.tests.s3_settings import use_s3_storage
from testing.fakes.s3 import S3Server
from testing.personas import Person, plan_pdf

pytestmark = pytest.mark.django_db


@pytest.fixture(params=["local", "s3"])
def files(request: pytest.FixtureRequest, settings: Any, store: None) -> Iterator[S3Server | None]:
    if request.param == "local":
        yield None
        return
    with S3Server() as server:
        use_s3_storage(settings, server)
        yield server


def rows_and_files(person: Person, count: int) -> list[Document]:
    """Documents that were received and parsed, each with both of its files."""
    documents = []
    for number in range(count):
        pk = uuid4()
        documents.append(
            Document(
                document_id=pk,
                user_id=person.id,
                filename="plan.pdf",
                mime="application/pdf",
                bytes_len=1,
                file_sha256=f"{number:064x}",
                raw_path=f"storage://raw/{person.id}/{pk}.pdf",
                parsed_path=f"storage://parsed/{person.id}/{pk}.md",
                stored_at="2026-01-01T00:00:00Z",
            )
        )
        bucket("raw").put(f"{person.id}/{pk}.pdf", b"x")
        bucket("parsed").put(f"{person.id}/{pk}.md", b"x")
    return Document.objects.bulk_create(documents)


def bucket(name: str) -> Any:
    return storages[name]


def orphans() -> set[tuple[str, str, str]]:
    violations = [finding for name in ("raw", "parsed") for finding in integrity.find_orphaned_files(name)]
    assert len(violations) == len(set(violations))
    return {(finding.kind, finding.subject, finding.reason.split()[1]) for finding in violations}


def test_every_gap_is_named_in_both_directions(
    files: S3Server | None, ana: Person, ben: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "BATCH_SIZE", 3)
    documents = rows_and_files(ana, 7) + rows_and_files(ben, 4)
    documents.sort(key=lambda document: (document.user_id, document.pk))
    assert orphans() == set()

    first, middle, last = documents[0], documents[5], documents[-1]
    for lost in (first, middle, last):
        bucket("raw").delete(f"{lost.user_id}/{lost.pk}.pdf")
    bucket("parsed").delete(f"{middle.user_id}/{middle.pk}.md")
    stray, foreign = uuid4(), "notes"
    bucket("raw").put(f"{ana.id}/{stray}.pdf", b"x")
    bucket("parsed").put(f"{foreign}/{foreign}.md", b"x")

    assert orphans() == {
        *(("file", str(lost.pk), "original") for lost in (first, middle, last)),
        ("file", str(middle.pk), "parsed"),
        ("object", f"raw:{stray}", "object"),
        ("object", f"parsed:{foreign}", "object"),
    }


def test_an_empty_store_names_every_document(files: S3Server | None, ana: Person) -> None:
    documents = rows_and_files(ana, 3)
    for document in documents:
        bucket("raw").delete(f"{ana.id}/{document.pk}.pdf")

    assert {UUID(subject) for _, subject, _ in orphans()} == {document.pk for document in documents}


def test_files_not_yet_uploaded_are_not_missing(ana: Person, store: None) -> None:
    ana.request_upload(plan_pdf("drugs"))

    assert orphans() == set()


def test_a_dead_letters_lost_file_is_named_too(ana: Person, store: None) -> None:
    uploaded = ana.ingest(plan_pdf("drugs"))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE upload_jobs SET state = 'deadletter', finished_at = clock_timestamp()")
    bucket("raw").delete(f"{ana.id}/{uploaded.document_id}.pdf")

    violations = [finding for finding in integrity.find_violations() if finding.kind == "file"]

    assert [finding.subject for finding in violations] == [str(uploaded.document_id)]


def test_a_healthy_store_is_listed_and_not_asked_file_by_file(settings: Any, ana: Person) -> None:
    with S3Server() as server:
        use_s3_storage(settings, server)
        rows_and_files(ana, 5)
        before = server.requests

        assert orphans() == set()

        assert server.requests - before == 2


def test_a_listing_in_another_order_names_nothing_wrongly(
    ana: Person, store: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "BATCH_SIZE", 2)
    documents = rows_and_files(ana, 6)
    lost = documents[2]
    bucket("raw").delete(f"{ana.id}/{lost.pk}.pdf")
    raw = bucket("raw")
    backwards = sorted(raw.names(), reverse=True)
    monkeypatch.setattr(raw, "names", lambda: iter(backwards))

    assert orphans() == {("file", str(lost.pk), "original")}
