"""Orphaned imports: deleted whenever a worker dies, never while a record refers to them."""

import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError, connection, connections

from documents import services
from documents.models import Document
from integrations import disconnect
from integrations.models import ConnectedSource, IngestionJob, OrphanCandidate, SourceDocument
from integrations.providers.interface import provider_module
from integrations.records import orphaned_imports, pdf_import
from integrations.sync import lifecycle, page_worker, pgmq
from integrations.tests.fake_provider.rest import Account
from integrations.tests.provider_clients import NOBODY
from integrations.tests.sync_helpers import DELTA, item, row, run_page, run_sync, start_sync
from integrations.transports import make_client
from testing.pdfs import text_pdf
from testing.personas import Person, upload_request

pytestmark = pytest.mark.django_db

FIRST, SECOND = text_pdf("first"), text_pdf("second")


@pytest.fixture
def deal(account: Account, source: ConnectedSource) -> SourceDocument:
    """Return a synced PDF of the source."""
    show(account, FIRST)
    run_sync(source)
    return row(source, "deal:1")


@pytest.fixture
def another(account: Account, ana: Person) -> ConnectedSource:
    """Another source of hers."""
    source: ConnectedSource = ConnectedSource.objects.create(user_id=ana.id, provider="hubspot", account="another")
    return source


def show(account: Account, content: bytes, external_id: str = "deal:1", at: int = 1) -> None:
    account.files[external_id] = content
    account.list("deals", item(external_id, at, is_pdf=True))
    account.pages["deals+"] = account.pages["deals"]


def pass_on(source: ConnectedSource, job_id: UUID, external_id: str = "deal:1") -> UUID:
    """Do what a worker does before it writes a record."""
    actual, provider = item(external_id, is_pdf=True), provider_module(source.provider)
    client, record = make_client(source, "recorded"), provider.map_record(actual)
    passed_on = pdf_import.import_pdf(source=source, client=client, item=actual, record=record, job_id=job_id)
    assert passed_on is not None
    return passed_on


def names(source: ConnectedSource) -> set[UUID]:
    return set(Document.objects.filter(user_id=source.user_id).values_list("pk", flat=True))


# Whoever dies when

LEFT: dict[str, Callable[[SourceDocument], object]] = {
    "a source that is forgotten": lambda deal: deal.delete(),
    "a tombstone": lambda deal: SourceDocument.objects.update(deleted_at="2026-11-01T00:00Z"),
    "a new version": lambda deal: SourceDocument.objects.update(upload_document_id=NOBODY),
}


@pytest.mark.parametrize("why", LEFT)
def test_a_document_left_by_a_worker_killed_after_its_commit_is_deleted(why: str, deal: SourceDocument) -> None:
    LEFT[why](deal)

    swept = [orphaned_imports.withdraw_due_orphans(), orphaned_imports.withdraw_due_orphans()]

    assert swept == [1, 0]
    assert not Document.objects.exists()


def test_an_import_without_a_record_is_deleted_when_its_sync_ends(account: Account, source: ConnectedSource) -> None:
    account.files["deal:1"] = FIRST
    job = start_sync(source)
    pass_on(source, job.pk)

    swept = [orphaned_imports.withdraw_due_orphans(), names(source) != set()]
    lifecycle.fail_sync(job.pk, "max_retries_exceeded")
    swept += [orphaned_imports.withdraw_due_orphans(), names(source) != set()]

    assert swept == [0, True, 1, False]


def _refuse_deletions() -> None:
    with connection.cursor() as cursor:
        cursor.execute("""
            CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF current_setting('accessa.away', true) = 'yes' THEN RAISE EXCEPTION 'away'; END IF;
                RETURN OLD; END $$;
            CREATE TRIGGER refused BEFORE DELETE ON documents FOR EACH ROW EXECUTE FUNCTION refuse();""")


def _away(params: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('accessa.away', %s, false)", [params])


@pytest.mark.parametrize("why", ["forget", "tombstone", "sweep", "replace"])
def test_an_interrupted_deletion_is_completed_by_the_next_delivery(
    why: str, account: Account, ana: Person, source: ConnectedSource
) -> None:
    _refuse_deletions()
    show(account, FIRST)
    run_sync(source)
    first, source = names(source), ConnectedSource.objects.get()
    if why == "forget":
        disconnect.disconnect_source(source, by=ana.user)
    elif why == "sweep":
        account.list("deals")
        start_sync(source)
    else:
        account.files["deal:1"] = SECOND
        account.list("deals+", item("deal:1", 2, is_pdf=True, deleted=why == "tombstone"))
        start_sync(source, DELTA)

    broke = 0
    _away("yes")
    while message := pgmq.read_message():
        try:
            page_worker.run_page(message)
            pgmq.delete_message(message)
        except DatabaseError:
            broke += 1
            _away("no")
            pgmq.extend_visibility(message, 0)

    assert broke == 1
    assert not first & names(source)
    assert len(names(source)) == (1 if why == "replace" else 0)
    assert not OrphanCandidate.objects.exists()


def test_a_disconnect_during_an_import_leaves_no_document(
    account: Account, ana: Person, source: ConnectedSource
) -> None:
    for external_id, content in (("deal:1", FIRST), ("deal:2", SECOND)):
        account.files[external_id] = content
    account.list("deals", *[item(each, is_pdf=True) for each in account.files])
    account.during = lambda external_id: external_id == "deal:2" and disconnect.disconnect_source(source, by=ana.user)
    job = start_sync(source)

    run_page()
    with pytest.raises(Exception, match=str(job.pk)):  # superseded
        run_page()
    left = names(source)
    while run_page():
        pass

    assert len(left) == 2
    assert not Document.objects.exists()
    assert not OrphanCandidate.objects.exists()


# Never under a record


def test_a_document_imported_by_another_sync_stays(
    deal: SourceDocument, account: Account, ana: Person, source: ConnectedSource, another: ConnectedSource
) -> None:
    """The same account, connected anew, while what it had brought before is being forgotten."""
    job = start_sync(another)
    waiting = pgmq.read_message()
    document_id = pass_on(another, job.pk)
    disconnect.disconnect_source(source, by=ana.user)

    while run_page():
        pass

    assert not ConnectedSource.objects.filter(pk=source.pk).exists()
    assert names(another) == {document_id}
    assert waiting is not None
    page_worker.run_page(waiting)
    while run_page():
        pass
    assert row(another, "deal:1").upload_document_id == document_id


def test_a_copy_keeps_the_document_when_its_original_is_edited(
    deal: SourceDocument, account: Account, source: ConnectedSource
) -> None:
    account.files |= {"deal:1": SECOND, "deal:2": FIRST}
    account.list("deals+", item("deal:1", 2, is_pdf=True), item("deal:2", 2, is_pdf=True))

    run_sync(source, DELTA)

    assert row(source, "deal:2").upload_document_id == deal.upload_document_id
    assert {each.upload_document_id for each in SourceDocument.objects.all()} == names(source)


def test_another_records_reference_does_not_settle_a_candidate(
    deal: SourceDocument, account: Account, source: ConnectedSource
) -> None:
    account.files["deal:2"] = FIRST
    document_id = pass_on(source, start_sync(source).pk, "deal:2")

    orphaned_imports.withdraw_orphans(source.pk)
    deal.delete()
    orphaned_imports.withdraw_orphans(source.pk)

    assert names(source) == {document_id}


def test_a_deleted_document_is_imported_again_when_its_file_returns(deal: SourceDocument, account: Account) -> None:
    deal.delete()
    orphaned_imports.withdraw_due_orphans()

    run_sync(deal.source)

    assert names(deal.source) == {row(deal.source, "deal:1").upload_document_id}


@pytest.mark.django_db(transaction=True)
def test_deletion_waits_for_a_concurrent_declaration(
    deal: SourceDocument, account: Account, source: ConnectedSource
) -> None:
    job, declaring, go_on = start_sync(source), threading.Event(), threading.Event()
    deal.delete()

    def claim(document_id: UUID) -> None:
        OrphanCandidate.objects.create(document_id=document_id, source_id=NOBODY, external_id="a", job_id=job.pk)
        declaring.set()
        go_on.wait(30)

    def declare() -> None:
        fields: dict[str, Any] = upload_request(FIRST)
        services.declare(user_id=source.user_id, **fields, by_connector=True, claim=claim)
        connections.close_all()

    def withdraw() -> None:
        gone.append(orphaned_imports.withdraw_upload(deal.upload_document_id or NOBODY))
        connections.close_all()

    gone: list[bool] = []
    threads = [threading.Thread(target=declare), threading.Thread(target=withdraw)]
    threads[0].start()
    assert declaring.wait(30)
    threads[1].start()
    threads[1].join(0.3)
    go_on.set()
    for each in threads:
        each.join(30)

    assert gone == [False]
    assert names(source) == {deal.upload_document_id}


# What a tenant says


def test_a_document_deleted_by_its_tenant_stays_deleted_until_its_file_changes(
    deal: SourceDocument, account: Account, source: ConnectedSource
) -> None:
    services.delete(Document.objects.get())

    run_sync(source)
    unchanged = names(source)
    show(account, SECOND, at=2)
    run_sync(source)

    assert unchanged == set()
    assert names(source) == {row(source, "deal:1").upload_document_id}


def test_a_document_uploaded_by_its_tenant_is_no_orphan(deal: SourceDocument, ana: Person) -> None:
    ana.upload(FIRST)
    deal.delete()

    swept = [orphaned_imports.withdraw_due_orphans(), orphaned_imports.withdraw_due_orphans()]

    assert swept == [1, 0]
    assert names(deal.source) == {deal.upload_document_id}


def test_a_sync_leaves_no_orphan_candidates(account: Account, source: ConnectedSource) -> None:
    show(account, FIRST)
    run_sync(source)
    after = [OrphanCandidate.objects.count()]
    show(account, SECOND, at=2)
    run_sync(source)
    after.append(OrphanCandidate.objects.count())

    assert after == [0, 0]
    assert IngestionJob.objects.filter(status="completed").count() == 2


@pytest.mark.parametrize(
    "sql",
    [orphaned_imports.DELETE_SETTLED, orphaned_imports.DUE, orphaned_imports.DUE_OF_SOURCE, orphaned_imports.IN_USE],
)
def test_orphan_candidates_are_found_by_index(sql: str, never_vacuumed: None) -> None:
    params: dict[str, Any] = {"source": NOBODY, "document": NOBODY, "most": orphaned_imports.AT_ONCE}
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {sql}", params)
        plan = "\n".join(line for (line,) in cursor.fetchall())

    assert "Seq Scan" not in plan
    if sql == orphaned_imports.DELETE_SETTLED:
        assert "Index Cond: ((source_id = u.source_id) AND (external_id = u.external_id))" in plan


def test_orphan_deletion_is_a_periodic_task(settings: Any) -> None:
    assert "integrations.records.orphaned_imports.withdraw_due_orphans" in settings.JOBS_PERIODIC_TASKS
