"""The import from inventory to rollback, on a made old system in a database of its own."""

import json
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.core.management import CommandError, call_command

from accessa.integrity.violations import find_violations
from accounts.audit.models import AuditEntry
from accounts.models import User
from accounts.rls import as_tenant
from documents.models import Document
from documents.storage import buckets
from embeddings.models import DocumentChunk
from embeddings.search import hybrid_search
from jobs.lifecycle import log_event
from jobs.models import UploadJob
from legacy import cutover, old_database, services
from legacy.models import ImportRun, LegacyDocument, LegacyTenant
from testing.old_system import DEFECTS, REFUSED_WHEN_REINGESTED, OldSystem, page_texts
from testing.personas import Person, run_all_jobs

pytestmark = pytest.mark.django_db


def run(*arguments: str, mapping: Path, **options: Any) -> str:
    """Run the command; what it refuses is in the rows."""
    out = StringIO()
    try:
        call_command("legacy", *arguments, mapping=mapping, stdout=out, **options)
    except CommandError as error:
        if not str(error).endswith("are refused."):
            raise
    return out.getvalue()


def import_all(mapping: Path, mode: str = "reingest") -> ImportRun:
    run("import", "--users", mapping=mapping)
    run("import", "--mode", mode, mapping=mapping)
    return ImportRun.objects.get(mode=mode, state="finished")


def codes(old: OldSystem) -> dict[str, str | None]:
    names = {str(old_id): name for name, old_id in old.ids.items()}
    rows = LegacyDocument.objects.filter(state="refused").values_list("old_id", "code")
    return {names[old_id]: code for old_id, code in rows}


def row_of(old: OldSystem, name: str) -> LegacyDocument:
    return LegacyDocument.objects.get(pk=str(old.ids[name]))


def new_id(old: OldSystem, name: str) -> UUID:
    document_id = row_of(old, name).document_id
    assert document_id is not None
    return document_id


def job_of(old: OldSystem, name: str) -> UploadJob:
    return UploadJob.objects.get(document_id=new_id(old, name))


# Inspection


def test_inspection_finds_the_columns_and_counts_what_is_there(old: OldSystem, mapping_path: Path) -> None:
    (old.bucket / "forgotten.pdf").write_bytes(b"%PDF-")
    out = StringIO()

    call_command("legacy", "inspect", mapping=mapping_path, stdout=out)

    written = mapping_path.read_text()
    assert 'table = "documents.document_chunks"' in written
    assert 'filename = "original_filename"  # confidence 0.90, like a 9.a' in written
    assert "confirmed = false" in written
    table = " ".join(out.getvalue().split())
    assert "documents without a file │ 1 " in table
    assert "files without a document │ 1 " in table
    assert "users unknown here │ 3 " in table
    assert "files like {uuid}/{uuid}.a" in table


def test_the_old_side_is_read_only(old: OldSystem) -> None:
    with old_database.open_catalog() as opened, pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        opened._connection.execute("DELETE FROM documents.documents")


@pytest.mark.parametrize("change", [("confirmed = true", "confirmed = false"), ('backup = "b-1"', 'backup = ""')])
def test_nothing_is_imported_before_the_mapping_is_confirmed_and_a_backup_named(
    confirmed: Path, change: tuple[str, str]
) -> None:
    confirmed.write_text(confirmed.read_text().replace(*change))

    with pytest.raises(CommandError, match="LEGACY_NOT_CONFIRMED"):
        call_command("legacy", "import", "--users", mapping=confirmed)

    assert not ImportRun.objects.exists()


@pytest.mark.parametrize(
    "change", [('id = "id"', 'id = "identity"'), ('path = "storage_path"', 'path = "a; DROP"'), ("[documents]", "[x]")]
)
def test_a_mapping_that_does_not_fit_is_refused(confirmed: Path, change: tuple[str, str]) -> None:
    confirmed.write_text(confirmed.read_text().replace(*change))

    with pytest.raises(CommandError, match="LEGACY_MAPPING_INVALID"):
        call_command("legacy", "import", "--dry-run", mapping=confirmed)


# Dry run


def test_the_dry_run_says_what_the_import_does_and_writes_nothing(
    old: OldSystem, confirmed: Path, tmp_path: Path
) -> None:
    run("import", "--users", mapping=confirmed)
    report = tmp_path / "report.json"

    with pytest.raises(CommandError, match="7 are refused"):
        call_command("legacy", "import", "--dry-run", "--mode", "adopt", mapping=confirmed, report=report)

    planned = json.loads(report.read_text())
    assert not Document.objects.exists()
    assert not LegacyDocument.objects.exists()
    assert list(buckets.locate("storage://raw/any.pdf")[0].incoming().iterdir()) == []
    total = planned["total"]
    assert (total["import"], total["merge"], total["refuse"]) == (7, 1, 7)
    assert total["pages"] == 21

    run("import", "--mode", "adopt", mapping=confirmed, report=report)

    done = json.loads(report.read_text())
    assert done["documents"] == planned["documents"]
    assert done["users"] == planned["users"]


# Import


@pytest.mark.slow
def test_reingested_documents_are_processed_after_the_tenants_own(old: OldSystem, confirmed: Path) -> None:
    import_all(confirmed)

    assert codes(old) == {name: DEFECTS[name] for name in REFUSED_WHEN_REINGESTED}
    assert row_of(old, "twin").state == "merged"
    assert row_of(old, "twin").document_id == row_of(old, "0").document_id
    assert set(UploadJob.objects.values_list("stage", "state", "low_priority")) == {("queued", "queued", True)}

    run_all_jobs()

    assert set(UploadJob.objects.values_list("stage", "state")) == {("embedded", "done")}
    assert list(find_violations(deep=True)) == []
    run("validate", mapping=confirmed)


def test_adopted_documents_are_searchable_at_once(old: OldSystem, confirmed: Path) -> None:
    import_all(confirmed, "adopt")

    assert codes(old) == {name: code for name, code in DEFECTS.items() if code and name != "foreign"}
    adopted = row_of(old, "1")
    assert (adopted.mode, adopted.state, adopted.code) == ("adopt", "imported", None)
    assert job_of(old, "1").status == "complete"
    chunks = DocumentChunk.objects.filter(document_id=new_id(old, "1")).order_by("chunk_ord")
    assert [chunk.text for chunk in chunks] == page_texts("1", 3)
    assert [chunk.meta and chunk.meta["pages"] for chunk in chunks] == [[1, 1], [2, 2], [3, 3]]
    found = hybrid_search.search(user_id=old.users[1], query="treatment 2-5")
    assert adopted.document_id in {passage.document_id for passage in found}
    foreign = row_of(old, "foreign")
    assert (foreign.mode, foreign.code) == ("reingest", "VECTOR_DISAGREES")

    run_all_jobs()

    assert list(find_violations(deep=True)) == []
    said = run("validate", mapping=confirmed)
    assert "100% are in the new one" in said


def test_a_document_that_its_tenant_has_uploaded_already_is_merged(old: OldSystem, confirmed: Path) -> None:
    run("import", "--users", mapping=confirmed)
    run("import", mapping=confirmed)
    document = Document.objects.get(pk=new_id(old, "2"))
    LegacyDocument.objects.filter(pk=str(old.ids["2"])).delete()

    run("import", mapping=confirmed)

    assert (row_of(old, "2").state, row_of(old, "2").document_id) == ("merged", document.pk)


def test_a_second_run_brings_what_changed_and_what_came(old: OldSystem, confirmed: Path) -> None:
    import_all(confirmed)
    before = set(LegacyDocument.objects.exclude(state="refused").values_list("old_id", "document_id", "run_id"))
    former = new_id(old, "1")
    changed = old.bucket / "uploads/2024/plan 1.pdf"
    replacement = (old.bucket / f"{old.users[0]}/{old.ids['2']}.pdf").read_bytes()
    changed.write_bytes(replacement)

    run("import", mapping=confirmed)

    after = set(LegacyDocument.objects.exclude(state="refused").values_list("old_id", "document_id", "run_id"))
    assert len(before ^ after) == 2
    assert new_id(old, "1") != former
    assert not Document.objects.filter(pk=former).exists()


def test_a_run_that_was_killed_is_continued(old: OldSystem, confirmed: Path, monkeypatch: Any) -> None:
    run("import", "--users", mapping=confirmed)
    record = services._record
    calls = iter(range(100))

    def die(*args: Any, **kwargs: Any) -> None:
        if next(calls) == 4:
            raise KeyboardInterrupt
        record(*args, **kwargs)

    monkeypatch.setattr(services, "_record", die)
    with pytest.raises(KeyboardInterrupt):
        call_command("legacy", "import", mapping=confirmed)
    killed = ImportRun.objects.get(mode="reingest")
    monkeypatch.undo()

    import_all(confirmed)

    assert ImportRun.objects.get(mode="reingest").pk == killed.pk
    assert LegacyDocument.objects.filter(run=killed).count() == len(old.ids)
    assert Document.objects.count() == LegacyDocument.objects.filter(state="imported").count()


def test_an_email_of_another_user_is_reported(old: OldSystem, confirmed: Path) -> None:
    User.objects.create_user("x", "old0@example.org")

    said = run("import", "--users", mapping=confirmed)

    assert '"EMAIL_TAKEN": 1' in said
    assert LegacyTenant.objects.count() == 1


# Cut-over and rollback


@pytest.mark.slow
def test_a_tenant_is_switched_once_its_documents_are_searchable(old: OldSystem, confirmed: Path, ana: Person) -> None:
    import_all(confirmed)
    tenant = str(old.users[0])

    with pytest.raises(CommandError, match="LEGACY_UNFINISHED"):
        call_command("legacy", "cutover", tenant, "new")
    call_command("legacy", "cutover", tenant, "both", reason="A trial.")
    run_all_jobs()
    call_command("legacy", "cutover", tenant, "new", reason="Validated.")

    assert cutover.system_of(old.users[0]) == "new"
    entries = AuditEntry.objects.filter(action="legacy.switch", tenant_id=old.users[0]).order_by("at")
    assert [entry.details["system"] for entry in entries] == ["both", "new"]


def test_a_frontend_asks_whom_to_ask(ana: Person, ben: Person) -> None:
    run = ImportRun.objects.create(mode="users", backup="b-1")
    LegacyTenant.objects.create(user_id=ana.id, run=run, created=False, system="both")

    assert ana.get("/cutover").json() == {"system": "both"}
    assert ben.get("/cutover").json() == {"system": "new"}


def test_a_tenant_reads_its_own_rows_only(old: OldSystem, confirmed: Path) -> None:
    import_all(confirmed)

    with as_tenant(old.users[1]):
        assert {row.user_id for row in LegacyDocument.objects.all()} == {old.users[1]}
        assert [tenant.pk for tenant in LegacyTenant.objects.all()] == [old.users[1]]


@pytest.mark.parametrize("mode", ["reingest", "adopt"])
def test_a_rollback_removes_what_the_run_made(old: OldSystem, confirmed: Path, mode: str) -> None:
    made = import_all(confirmed, mode)
    touched = row_of(old, "1")
    own = job_of(old, "1")
    log_event(own, "UPLOAD_DEDUP_HIT")  # as declaring the same file does
    cutover.switch(user_id=old.users[0], system="both", reason="A trial.")

    call_command("legacy", "rollback", run=made.pk, reason="Too early.")

    assert [document.pk for document in Document.objects.all()] == [touched.document_id]
    assert list(LegacyDocument.objects.values_list("old_id", flat=True)) == [touched.old_id]
    assert cutover.system_of(old.users[0]) == "old"
    assert AuditEntry.objects.filter(action="legacy.rollback").count() == 1
    users = ImportRun.objects.get(mode="users")
    call_command("legacy", "rollback", run=users.pk)
    assert list(User.objects.values_list("pk", flat=True)) == [old.users[1]]
