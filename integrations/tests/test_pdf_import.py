"""PDFs of Drive become the tenant's documents, once, and are deleted with their files."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from accounts.errors import ApiError
from documents import services
from documents.models import Document
from integrations.models import ConnectedSource, SourceDocument
from integrations.oauth import token_vault
from integrations.providers.google_drive import mapping as google_drive
from integrations.records import orphaned_imports, pdf_import
from integrations.tests.provider_clients import NOBODY, TOKEN, fake_client
from integrations.tests.sync_helpers import DELTA, row, run_sync, stored_rows
from jobs import worker
from jobs.models import UploadJob
from testing.fakes.faults import FAULTS
from testing.fakes.google import DriveServer
from testing.pdfs import encrypted_pdf
from testing.personas import Person, plan_pdf, upload_request

PDF = "application/pdf"
DRUGS, TEETH = plan_pdf("drugs", lines=5), plan_pdf("teeth", lines=5)
LOCKED = encrypted_pdf("Nobody may read this.", user_password=b"secret")


@pytest.fixture
def drive(db: None) -> Iterator[DriveServer]:
    with DriveServer(tokens={TOKEN}) as server:
        yield server


@pytest.fixture
def anas(ana: Person) -> ConnectedSource:
    row: ConnectedSource = ConnectedSource.objects.create(user_id=ana.id, provider="google_drive")
    row.access_token_vault_id = token_vault.store_token(row, "access", TOKEN)
    row.token_expires_at = timezone.now() + timedelta(hours=1)
    row.save()
    return row


@pytest.fixture
def bring(drive: DriveServer, anas: ConnectedSource, settings: Any) -> Any:
    """Put a PDF into Drive and pass it on."""
    client = fake_client(settings, drive)

    def pass_on(content: bytes, file_id: str = "a", **fields: Any) -> Any:
        drive.drive.put(file_id, content, mime=PDF, **fields)
        item = client.get("drive.files.get", file_id)
        return pdf_import.import_pdf(
            source=anas, client=client, item=item, record=google_drive.map_record(item), job_id=NOBODY
        )

    return pass_on


def refer(source: ConnectedSource, document_id: Any, external_id: str = "file:a") -> SourceDocument:
    row: SourceDocument = SourceDocument.objects.create(
        user_id=source.user_id,
        source=source,
        external_id=external_id,
        document_type=google_drive.PDF,
        raw_payload={},
        upload_document_id=document_id,
    )
    return row


def test_a_pdf_goes_through_the_pipeline_as_the_tenants_own(bring: Any, ana: Person, ben: Person) -> None:
    document_id = bring(DRUGS, name="Plan A")
    worker.drain()

    document = Document.objects.get()
    assert (document.pk, document.user_id, document.filename) == (document_id, ana.id, "Plan A.pdf")
    assert document.imported
    assert UploadJob.objects.get().state == "done"
    assert ana.get(f"/documents/{document_id}").status_code == 200
    assert ben.get(f"/documents/{document_id}").status_code == 404


def test_the_same_pdf_is_one_document_however_often_it_comes(bring: Any, drive: DriveServer) -> None:
    first = bring(DRUGS, "a")
    second = bring(DRUGS, "b")
    worker.drain()
    third = bring(DRUGS, "a")

    assert first == second == third
    assert (Document.objects.count(), UploadJob.objects.count()) == (1, 1)


def test_a_crash_between_declaring_and_storing_is_repaired_by_the_retry(bring: Any, ana: Person) -> None:
    services.declare(user_id=ana.id, **upload_request(DRUGS), by_connector=True)
    worker.drain()
    assert UploadJob.objects.get().stage == "queued"

    bring(DRUGS)
    worker.drain()

    assert UploadJob.objects.get().state == "done"


def test_bytes_that_came_too_late_revive_their_job(bring: Any, ana: Person) -> None:
    services.declare(user_id=ana.id, **upload_request(DRUGS), by_connector=True)
    Document.objects.update(upload_expires_at="2026-01-01T00:00:00Z")
    worker.drain()
    assert UploadJob.objects.get().state == "deadletter"

    bring(DRUGS)
    worker.drain()

    assert UploadJob.objects.get().state == "done"


def test_a_pdf_refused_by_the_pipeline_is_not_retried_by_each_sync(bring: Any) -> None:
    bring(LOCKED)
    worker.drain()
    before = UploadJob.objects.values("state", "updated_at", "last_error").get()
    assert before["state"] == "deadletter"

    bring(LOCKED)
    worker.drain()

    assert UploadJob.objects.values("state", "updated_at", "last_error").get() == before


# Limits


def test_connectors_and_tenants_do_not_use_up_each_others_uploads(bring: Any, ana: Person, settings: Any) -> None:
    settings.UPLOADS_PER_DAY, settings.IMPORTS_PER_DAY, settings.UPLOAD_REQUESTS_PER_MINUTE = 1, 1, 1

    bring(DRUGS, "a")
    ana.upload(TEETH)

    with pytest.raises(ApiError, match="IMPORT_LIMIT_REACHED"):
        bring(plan_pdf("eyes", lines=5), "b")
    assert bring(DRUGS, "a")  # what is there already costs nothing
    assert ana.request_upload(plan_pdf("ears", lines=5)).json()["code"] == "UPLOAD_LIMIT_REACHED"


@pytest.mark.parametrize("size", [{}, {"size": "10"}, {"size": "a lot"}])
def test_a_file_that_is_too_large_is_refused_whatever_its_size_says(
    bring: Any, drive: DriveServer, settings: Any, size: dict[str, str]
) -> None:
    settings.MAX_FILE_BYTES = 500

    with pytest.raises(ApiError, match="FILE_TOO_LARGE"):
        bring(DRUGS, **size)

    assert drive.ledger.sold == (0 if not size else 1)  # by the size that is told it is not even fetched
    assert not Document.objects.exists()


def test_a_file_that_may_not_be_downloaded_is_refused(bring: Any, drive: DriveServer) -> None:
    drive.drive.undownloadable.add("a")

    with pytest.raises(ApiError, match="FILE_NOT_GIVEN"):
        bring(DRUGS)


def test_an_empty_file_is_refused(bring: Any) -> None:
    with pytest.raises(ApiError, match="EMPTY_FILE"):
        bring(b"")


@pytest.mark.parametrize(
    ("name", "filename"),
    [
        ("plan.pdf", "plan.pdf"),
        ("plan.PDF", "plan.pdf"),
        ("2026/27 plan", "2026-27 plan.pdf"),
        ("..\\..\\etc", "etc.pdf"),
        ("", "document.pdf"),
        ("../", "document.pdf"),
        ("a\u202efdp.exe\x00", "afdp.exe.pdf"),
        ("x" * 400, "x" * 116 + ".pdf"),
    ],
)
def test_any_name_becomes_a_file_name(bring: Any, name: str, filename: str) -> None:
    bring(DRUGS, name=name)

    assert Document.objects.get().filename == filename


# Going with the file


def test_an_imported_document_is_deleted_with_its_file(bring: Any) -> None:
    document_id = bring(DRUGS)

    assert orphaned_imports.withdraw_upload(document_id)
    assert not Document.objects.exists()
    assert orphaned_imports.withdraw_upload(document_id)  # again, after a crash


def test_a_document_that_the_tenant_uploaded_stays(bring: Any, ana: Person) -> None:
    ana.upload(DRUGS)
    document_id = bring(DRUGS)

    assert not orphaned_imports.withdraw_upload(document_id)
    assert Document.objects.count() == 1


def test_a_document_that_the_tenant_uploaded_after_the_import_stays(bring: Any, ana: Person) -> None:
    document_id = bring(DRUGS)
    ana.upload(DRUGS)

    assert not orphaned_imports.withdraw_upload(document_id)
    assert Document.objects.count() == 1


def test_a_document_that_another_file_has_as_well_stays(bring: Any, anas: ConnectedSource) -> None:
    document_id = bring(DRUGS, "a")
    refer(anas, document_id, "file:b")

    assert not orphaned_imports.withdraw_upload(document_id)
    SourceDocument.objects.update(deleted_at="2026-01-01T00:00:00Z")
    assert orphaned_imports.withdraw_upload(document_id)


# In a sync


def test_the_recorded_drive_is_synced_and_its_pdf_searched(anas: ConnectedSource, ana: Person, settings: Any) -> None:
    settings.INTEGRATIONS_USE_FIXTURES = True

    job = run_sync(anas)
    worker.drain()

    assert (job.status, job.items_seen, job.items_failed) == ("completed", 4, 0)
    document = Document.objects.get()
    assert row(anas, "file:1PdFv8mBnXcZ4qWeRtYuIoPaSdFgHjKl6").upload_document_id == document.pk
    assert document.filename == "Amendment 2026-3.pdf"
    response = ana.post("/search", {"query": "amendment to the plan"}).json()
    assert {hit["document_id"] for hit in response["passages"]} == {str(document.pk)}
    again = run_sync(anas)
    assert (again.items_written, again.items_embedded) == (0, 0)
    assert UploadJob.objects.count() == 1


def test_a_sync_imports_new_versions_and_deletes_removed_files(
    drive: DriveServer, anas: ConnectedSource, settings: Any
) -> None:
    fake_client(settings, drive)
    drive.drive.put("a", DRUGS, mime=PDF, name="A")
    drive.drive.put("b", b"", mime=PDF, name="B")
    drive.drive.put("c", "text")

    full = run_sync(anas)
    first = Document.objects.get().pk
    drive.drive.put("a", TEETH, mime=PDF, name="A")
    anas.refresh_from_db()
    run_sync(anas, DELTA)
    second = Document.objects.get().pk
    drive.drive.trash("a")
    anas.refresh_from_db()
    run_sync(anas, DELTA)

    assert (full.status, full.items_failed, full.error_details[0]["code"]) == ("completed", 1, "EMPTY_FILE")
    assert set(stored_rows(anas)) == {"file:a", "file:c"}  # one bad file has cost only itself
    assert first != second
    assert not Document.objects.exists()


def test_an_interrupted_download_leaves_nothing(
    bring: Any, drive: DriveServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    drive.inject_fault("GET /drive/v3/files/a", FAULTS["reset-mid-body"], times=3)

    with pytest.raises(Exception, match="VENDOR_"):
        bring(DRUGS)

    assert list(tmp_path.iterdir()) == []
    assert not Document.objects.exists()
