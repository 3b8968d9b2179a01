"""Deletion of an account: from its page to the certificate, table by table."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models.functions import Now
from django.test import Client

from accounts.audit.models import AuditEntry
from accounts.models import AccountDeletion, User
from documents import periodic, services
from documents.models import Document, ObjectDeletion
from documents.storage import buckets
from integrations.sync import page_worker, pgmq
from outbox.tests.test_mails import sent
from outbox.webhooks import endpoints
from portal import account_deletion
from portal.tests.conftest import PASSWORD, signed_in, with_password
from portal.tests.test_account_export import store_everything
from testing.factories import DocumentFactory
from testing.factories.records import create_client
from testing.personas import Person, plan_pdf

pytestmark = pytest.mark.django_db(transaction=True)
PAGE = "/settings/account/delete"
TENANT_COLUMNS = """
    SELECT table_name, column_name
    FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
    WHERE table_schema = 'public' AND table_type = 'BASE TABLE' AND column_name IN ('user_id', 'tenant_id')"""


def tables_of(person: Person) -> set[str]:
    """Return the tables with a row that names the tenant."""
    with connection.cursor() as cursor:
        cursor.execute(TENANT_COLUMNS)
        columns = cursor.fetchall()
        found = set()
        for table, column in columns:
            cursor.execute(f'SELECT 1 FROM "{table}" WHERE "{column}"::text = %s LIMIT 1', [str(person.id)])
            found |= {table} if cursor.fetchone() else set()
    return found


def delete_account(person: Person) -> tuple[Client, AccountDeletion]:
    browser = signed_in(with_password(person))
    answer = browser.post(PAGE, {"email": person.user.email, "password": PASSWORD})
    deletion = AccountDeletion.objects.get(user_id=person.id)
    assert (answer.status_code, answer["Location"]) == (302, f"/deleted/{deletion.pk}")
    return browser, deletion


def finish_deletions() -> None:
    """Do what workers do until nothing is left to wait for."""
    account_deletion.advance_deletions()
    while message := pgmq.read_message():
        page_worker.run_page(message)
        pgmq.delete_message(message)
    ObjectDeletion.objects.update(drop_after=Now() - timedelta(seconds=1))
    periodic.delete_removed_objects()
    account_deletion.advance_deletions()


def test_nothing_of_a_deleted_account_is_left_but_what_is_said(ana: Person, ben: Person) -> None:
    document = store_everything(ana, "dental")
    store_everything(ben, "optical")
    create_client(ana.id, "Lake Dental", "A client of no connected system.")
    endpoints.create_endpoint(user_id=ana.id, url="https://8.8.8.8/hook", events=["document.completed"])
    bens = tables_of(ben)
    assert {"documents", "document_chunks", "events", "tags", "saved_questions", "source_documents"} <= tables_of(ana)
    bucket, name = buckets.locate(document.raw_path)

    browser, deletion = delete_account(ana)

    assert ana.get("/jobs").status_code == 401
    assert browser.get("/settings/account").status_code == 302
    assert "being deleted" in browser.get(f"/deleted/{deletion.pk}").content.decode()
    assert browser.get(f"/deleted/{deletion.pk}/certificate.json").status_code == 404

    finish_deletions()

    assert tables_of(ana) <= set(account_deletion.KEPT)
    assert tables_of(ben) == bens
    assert not User.objects.filter(pk=ana.id).exists()
    with pytest.raises(FileNotFoundError):
        bucket.read(name)
    entries = AuditEntry.objects.filter(tenant_id=ana.id).values_list("actor", "details", "reason", "object_id")
    assert entries
    assert ana.user.email not in str(list(entries))


def test_the_certificate_is_mailed_and_says_what_was_deleted(ana: Person, settings: Any) -> None:
    store_everything(ana, "dental")
    create_client(ana.id, "Lake Dental", "A client of no connected system.")
    chunks = Document.objects.get(user_id=ana.id).chunks.count()
    browser, deletion = delete_account(ana)
    finish_deletions()

    sent()
    deletion.refresh_from_db()
    certificate = browser.get(f"/deleted/{deletion.pk}/certificate.json").json()

    (message,) = mail.outbox
    assert message.to == [ana.user.email]
    assert f"/deleted/{deletion.pk}" in message.body
    assert certificate["account"] == str(ana.id)
    assert certificate["completed_at"] is not None
    counted = ("documents", "document_chunks", "source_documents", "client_intelligence", "saved_questions", "tags")
    assert [certificate["deleted"][table] for table in counted] == [1, chunks, 1, 1, 1, 1]
    assert certificate["deleted"]["users"] == 1
    account_deletion.advance_deletions()
    deletion.refresh_from_db()
    assert deletion.email is None
    assert "is deleted" in browser.get(f"/deleted/{deletion.pk}").content.decode()


def test_a_deletion_that_is_broken_off_goes_on_and_counts_once(ana: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    for word in ("dental", "optical"):
        ana.ingest(plan_pdf(word))
    _, deletion = delete_account(ana)
    real = services.delete_objects

    def die(*args: Any) -> None:
        monkeypatch.setattr(services, "delete_objects", real)
        raise KeyboardInterrupt

    monkeypatch.setattr(services, "delete_objects", die)
    with pytest.raises(KeyboardInterrupt):
        account_deletion.advance_deletions()
    assert Document.objects.filter(user_id=ana.id).count() == 1
    monkeypatch.setattr(account_deletion, "_delete_rest", die)
    with pytest.raises(KeyboardInterrupt):
        account_deletion.advance_deletions()
    monkeypatch.undo()

    finish_deletions()

    deletion.refresh_from_db()
    assert deletion.completed_at is not None
    assert deletion.deleted["documents"] == 2


def test_a_document_that_arrives_during_the_deletion_is_deleted(ana: Person) -> None:
    delete_account(ana)
    account_deletion._delete_rest(ana.id)
    DocumentFactory.create(user_id=ana.id)

    finish_deletions()

    assert not Document.objects.filter(user_id=ana.id).exists()


@pytest.mark.parametrize(
    ("email", "password", "message"),
    [
        ("ben@example.org", PASSWORD, "not the address of your account"),
        ("ana@example.org", "wrong", "not your password"),
        ("", "", "required"),
    ],
)
def test_a_deletion_needs_the_address_and_the_password(email: str, password: str, message: str, ana: Person) -> None:
    browser = signed_in(with_password(ana))

    answer = browser.post(PAGE, {"email": email, "password": password})

    assert answer.status_code == 200
    assert message in answer.content.decode()
    assert not AccountDeletion.objects.exists()
    assert ana.get("/jobs").status_code == 200


def test_staff_cannot_delete_their_account_and_strangers_see_none(sam: Person) -> None:
    client = signed_in(with_password(sam))

    answer = client.post(PAGE, {"email": sam.user.email, "password": PASSWORD})

    assert answer.status_code == 409
    assert not AccountDeletion.objects.exists()
    assert client.get(f"/deleted/{sam.id}").status_code == 404


def test_the_command_line_deletes_an_account_with_a_reason(ana: Person, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("delete_account", ana.user.email, reason="They asked by letter.")

    deletion = AccountDeletion.objects.get(user_id=ana.id)
    assert re.search(rf"/deleted/{deletion.pk}$", capsys.readouterr().out.strip())
    assert AuditEntry.objects.get(action="users.delete").reason == "They asked by letter."
    with pytest.raises(CommandError):
        call_command("delete_account", "nobody@example.org", reason="Asked.")
    call_command("delete_account", ana.user.email, reason="Again.")
    assert AccountDeletion.objects.count() == 1
