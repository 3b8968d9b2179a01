"""Management commands: output, exit codes, integrity checks."""

import io
import threading
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.files.storage import storages
from django.core.management import CommandError, call_command
from django.db import connection
from structlog.contextvars import get_contextvars

from accessa.integrity.violations import find_violations
from accounts import api_tokens
from accounts.audit.models import AuditEntry
from accounts.models import ApiToken, User
from accounts.tenants import find_tenant_id
from documents.models import Document
from embeddings.models import DocumentChunk
from jobs import worker as runner
from jobs.models import UploadJob
from testing.personas import Person, claim_at_stage, plan_pdf

PDF = plan_pdf("hospital care", "drugs")
pytestmark = pytest.mark.django_db


def command_output(*args: str, **options: Any) -> str:
    out = io.StringIO()
    call_command(*args, stdout=out, stderr=io.StringIO(), **options)
    return out.getvalue()


def sql(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    contents = {"good.pdf": PDF, "bad.pdf": b"GIF89a", "empty.pdf": b""}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return {name: str(tmp_path / name) for name in contents} | {"missing.pdf": str(tmp_path / "missing.pdf")}


# ingest


def test_ingest_uploads_for_the_only_user_there_is(ana: Person, files: dict[str, str]) -> None:
    command_output("ingest", files["good.pdf"])
    runner.drain()

    document = Document.objects.get()
    assert (document.user_id, document.filename, document.processing_status) == (ana.id, "good.pdf", "complete")


def test_each_ingested_file_has_its_own_correlation_id(ana: Person, files: dict[str, str]) -> None:
    call_command("ingest", files["good.pdf"], files["bad.pdf"], stdout=io.StringIO())

    assert len(set(UploadJob.objects.values_list("correlation_id", flat=True))) == 2
    assert get_contextvars() == {}


@pytest.mark.parametrize(("name", "code"), [("empty.pdf", "EMPTY_FILE"), ("missing.pdf", "No such file")])
def test_ingest_reports_refused_files_and_fails(name: str, code: str, ana: Person, files: dict[str, str]) -> None:
    out = io.StringIO()
    with pytest.raises(CommandError, match="1 of 2 files"):
        call_command("ingest", files["good.pdf"], files[name], stdout=out)

    assert code in out.getvalue()
    assert Document.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("name", "fails"), [("good.pdf", False), ("bad.pdf", True)])
def test_ingest_waits_for_the_end_and_says_whether_it_was_good(
    name: str, fails: bool, ana: Person, files: dict[str, str]
) -> None:
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            runner.drain()
            time.sleep(0.05)
        connection.close()

    worker = threading.Thread(target=work)
    worker.start()
    out = io.StringIO()
    try:
        if fails:
            with pytest.raises(CommandError, match="did not end well"):
                call_command("ingest", files[name], wait=True, seconds=20, stdout=out)
        else:
            call_command("ingest", files[name], wait=True, seconds=20, stdout=out)
    finally:
        stop.set()
        worker.join(20)

    assert ("NOT_A_PDF" in out.getvalue()) is fails
    assert ("embedded" in out.getvalue()) is not fails


def test_ingest_gives_up_after_its_seconds(ana: Person, files: dict[str, str]) -> None:
    with pytest.raises(CommandError, match="did not end well"):
        command_output("ingest", files["good.pdf"], wait=True, seconds=0.1)


def test_ingest_requires_a_user(ana: Person, ben: Person, files: dict[str, str]) -> None:
    with pytest.raises(CommandError, match="--user"):
        command_output("ingest", files["good.pdf"])
    with pytest.raises(CommandError, match="no user"):
        command_output("ingest", files["good.pdf"], user="nobody@example.org")

    command_output("ingest", files["good.pdf"], user="BEN@example.org")
    command_output("ingest", files["good.pdf"], user=str(ana.id))

    assert set(Document.objects.values_list("user_id", flat=True)) == {ana.id, ben.id}


@pytest.mark.parametrize(("staff", "found"), [([True], 0), ([True, False], 1), ([True, True], None), ([], None)])
def test_the_user_of_a_command_is_the_only_tenant_or_the_only_account(staff: list[bool], found: int | None) -> None:
    users = [
        User.objects.create_user(address, address, is_staff=each)
        for address, each in zip(("dana@example.org", "eli@example.org"), staff, strict=False)
    ]

    if found is None:
        with pytest.raises(CommandError, match="--user"):
            find_tenant_id(None)
    else:
        assert find_tenant_id(None) == users[found].pk


def test_commands_name_the_user_that_does_not_exist() -> None:
    with pytest.raises(CommandError, match="There is no user 'nobody@"):
        call_command("delete_account", "nobody@example.org", reason="INC-7")


# search


def test_search_prints_passages_with_page_and_heading(ana: Person) -> None:
    assert "Nothing found" in command_output("search", "drugs")
    ana.ingest(PDF)

    out = command_output("search", "drugs", k=1)

    assert out.startswith("1. plan.pdf, page")
    with pytest.raises(CommandError, match="EMPTY_QUERY"):
        command_output("search", " ")


# requeue


def test_requeue_retries_the_given_jobs(ana: Person) -> None:
    dead, other = ana.ingest(b"no PDF"), ana.ingest(b"none either")
    with pytest.raises(CommandError, match="Name documents"):
        command_output("requeue")

    assert "1 would be requeued" in command_output("requeue", str(dead.document_id), dry_run=True)
    assert dead.job.state == "deadletter"
    assert "1 requeued" in command_output("requeue", str(dead.document_id))
    assert (dead.job.state, other.job.state) == ("queued", "deadletter")
    assert "0 requeued" in command_output("requeue", code="SOMETHING_ELSE")
    assert "1 requeued" in command_output("requeue", code="NOT_A_PDF")
    runner.drain()
    assert "2 requeued" in command_output("requeue", all=True)


# create_user


def test_create_user_prints_a_token_that_works(db: None) -> None:
    token = command_output("create_user", "Zoe@Example.org").strip()

    user = User.objects.get(email="zoe@example.org")
    valid = api_tokens.find_valid_token(token)
    assert valid is not None
    assert (valid.user_id, valid.is_staff, sorted(valid.scopes)) == (user.pk, False, ["read", "search", "write"])
    assert not user.has_usable_password()


def test_create_user_again_makes_another_token_for_the_same_user(db: None) -> None:
    user_id = uuid4()
    first = command_output("create_user", "zoe@example.org", id=user_id).strip()
    second = command_output("create_user", "zoe@example.org", service=True).strip()

    assert first != second
    assert User.objects.get().pk == user_id
    scopes = {frozenset(token.scopes) for token in ApiToken.objects.all()}
    assert scopes == {api_tokens.PROGRAM_SCOPES, api_tokens.ALL_SCOPES}
    with pytest.raises(CommandError, match="another id"):
        command_output("create_user", "zoe@example.org", id=uuid4())


@pytest.mark.slow
def test_create_user_makes_no_staff_and_writes_audit_entries(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):  # the second finds the user, and sets another's password
        monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\n"))
        command_output("create_user", "zoe@example.org", password_stdin=True, reason="INC-7")

    zoe = User.objects.get()
    assert zoe.check_password("correct horse")
    assert (zoe.is_staff, zoe.is_superuser) == (False, False)
    entries = AuditEntry.objects.values_list("action", "actor", "reason")
    assert {entry[1:] for entry in entries} == {("command line", "INC-7")}
    assert sorted(entry[0] for entry in entries) == [
        "tokens.make", "tokens.make", "users.add", "users.set_password", "users.set_password",
    ]  # fmt: skip
    with pytest.raises(CommandError, match="unrecognized arguments: --staff"):
        command_output("create_user", "zoe@example.org", "--staff")


def test_create_user_requires_a_reason(db: None) -> None:
    with pytest.raises(CommandError, match="Say why"):
        command_output("create_user", "zoe@example.org", reason=" ")

    assert not User.objects.exists()


@pytest.mark.parametrize("email", ["zoe", "@", "zoe@", ""])
def test_create_user_refuses_invalid_addresses(email: str, db: None) -> None:
    with pytest.raises(CommandError, match="not an e-mail"):
        command_output("create_user", email)


# audit_jobs


def kinds() -> list[str]:
    return sorted({finding.kind for finding in find_violations()})


@pytest.mark.slow
def test_consistent_data_has_no_violations(ana: Person, ben: Person) -> None:
    ana.ingest(PDF)
    ben.ingest(PDF)
    ana.ingest(b"no PDF")
    ana.request_upload(plan_pdf("dental"))
    runner.drain()
    ana.upload(plan_pdf("eyes"))
    claim_at_stage("embeddings_buffered")

    assert list(find_violations()) == []
    assert command_output("audit_jobs") == "All is well.\n"


ROT: dict[str, tuple[str, str]] = {
    "UPDATE document_chunks SET text = text || '!' WHERE chunk_ord = 0": ("job", "sha"),
    "DELETE FROM document_chunks WHERE chunk_ord = 0": ("job", "more or fewer"),
    "UPDATE document_chunks SET embed_model = 'other' WHERE chunk_ord = 0": ("job", "no vector"),
    "UPDATE documents SET parsed_sha256 = 'x'": ("job", "No parse"),
    "UPDATE upload_jobs SET pipeline = 'unknown'": ("job", "no pipeline"),
    "UPDATE document_chunks SET user_id = gen_random_uuid() WHERE chunk_ord = 0": ("chunk", "another tenant"),
    "UPDATE documents SET processing_status = 'parsed'": ("document", "another status"),
    "DELETE FROM events; DELETE FROM upload_jobs": ("document without a job", "No job"),
    "INSERT INTO document_chunk_buffer (chunk_id, user_id, document_id, chunk_ord, chunker_name, chunker_version,"
    " chunk_sha, text) SELECT chunk_id, user_id, document_id, chunk_ord, chunker_name, chunker_version, chunk_sha, text"
    " FROM document_chunks": ("buffered chunk", "waits in the buffer"),
    "INSERT INTO document_vector_buffer (user_id, document_id, chunk_id, embed_model, embed_version, vector_dim,"
    " vector_sha, embedding) SELECT user_id, document_id, chunk_id, 'm', '1', 1536, 'x', embedding"
    " FROM document_chunks": ("vector", "waits in the buffer"),
    "INSERT INTO document_chunks (chunk_id, user_id, document_id, chunker_name, chunker_version, chunk_ord, chunk_sha,"
    " text) SELECT gen_random_uuid(), user_id, document_id, 'forgotten', '9', chunk_ord, chunk_sha, text"
    " FROM document_chunks": ("chunk of no job", "no job"),
}  # fmt: skip


@pytest.mark.parametrize("statement", ROT)
def test_corrupt_rows_are_found(statement: str, ana: Person) -> None:
    ana.ingest(PDF)
    sql("UPDATE upload_jobs SET finished_at = finished_at - interval '1 hour'")  # past the sweep's grace

    sql(statement)

    kind, reason = ROT[statement]
    assert any(violation.kind == kind and reason in violation.reason for violation in find_violations()), list(
        find_violations()
    )
    with pytest.raises(SystemExit):
        command_output("audit_jobs")


def test_missing_changed_and_orphaned_objects_are_found(ana: Person) -> None:
    uploaded = ana.ingest(PDF)
    raw: Any = storages["raw"]
    parsed: Any = storages["parsed"]
    orphan = uuid4()
    raw.put(f"{ana.id}/{orphan}.pdf", b"x")
    parsed.put(f"{ana.id}/stray name.md", b"x")

    violation = [finding for finding in find_violations() if finding.kind == "object"]
    assert {finding.subject for finding in violation} == {f"raw:{orphan}", "parsed:stray name"}

    raw.delete(f"{ana.id}/{orphan}.pdf")
    parsed.delete(f"{ana.id}/stray name.md")
    parsed.put(f"{ana.id}/{uploaded.document_id}.md", b"other")
    assert ["not the one that was recorded" in finding.reason for finding in find_violations()] == [True]
    raw.delete(f"{ana.id}/{uploaded.document_id}.pdf")
    assert ["original file is missing" in finding.reason for finding in find_violations()] == [True]


def test_objects_pending_deletion_are_no_violations(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    uploaded = ana.ingest(PDF)
    monkeypatch.setattr(
        "documents.object_deletion.delete_pending_objects", lambda document_id: None
    )  # the process dies before

    ana.delete(f"/documents/{uploaded.document_id}")

    assert list(find_violations()) == []


def test_violations_contain_no_storage_paths(ana: Person) -> None:
    ana.ingest(PDF)
    sql("UPDATE document_chunks SET text = text || '!'")
    DocumentChunk.objects.filter(chunk_ord=0).delete()

    lines = [f"{finding.subject} {finding.reason}" for finding in find_violations()]

    assert lines
    assert "storage://" not in "".join(lines)
    assert UploadJob.objects.count() == 1
