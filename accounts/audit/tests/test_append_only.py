"""The audit log is append-only."""

import pytest
from django.conf import settings
from django.db import DatabaseError, connection, transaction

from accounts.audit import log
from accounts.audit.models import AuditEntry
from accounts.errors import ApiError
from accounts.rls import as_tenant
from testing.personas import Person

pytestmark = pytest.mark.django_db


def entry(reason: str = "INC-7") -> AuditEntry:
    return log.record_action(by=None, action="jobs.retry", reason=reason, object_type="upload_job", object_id="x")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_entries SET reason = 'another'",
        "UPDATE audit_entries SET reason = reason",
        "DELETE FROM audit_entries",
        "TRUNCATE audit_entries",
        "INSERT INTO audit_entries SELECT * FROM audit_entries ON CONFLICT (entry_id) DO UPDATE SET actor = 'x'",
    ],
)
def test_no_statement_changes_or_removes_an_entry(statement: str) -> None:
    entry()

    with (
        pytest.raises(DatabaseError, match="Audit entries are kept as they were written"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)

    assert AuditEntry.objects.get().reason == "INC-7"


def test_the_model_cannot_either() -> None:
    with pytest.raises(DatabaseError, match="UPDATE is refused"), transaction.atomic():
        entry().save()
    with pytest.raises(DatabaseError, match="DELETE is refused"), transaction.atomic():
        entry().delete()


def test_tenants_may_not_read_it(ana: Person) -> None:
    log.record_action(
        by=None, action="documents.read_text", reason="x", object_type="document", object_id="x", tenant_id=ana.id
    )

    with pytest.raises(DatabaseError, match="permission denied"), as_tenant(ana.id):
        AuditEntry.objects.count()
    with transaction.atomic(), connection.cursor() as cursor:  # and had a host granted it, no policy lets a row out
        cursor.execute(f"GRANT SELECT ON audit_entries TO {settings.TENANT_ROLE}")
        with as_tenant(ana.id):
            assert AuditEntry.objects.count() == 0


@pytest.mark.parametrize("reason", ["", "  \n\t "])
def test_nothing_is_written_without_a_reason(reason: str) -> None:
    with pytest.raises(ApiError, match="REASON_REQUIRED"):
        entry(reason)

    assert not AuditEntry.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_committed_rows_are_deleted_after_a_test() -> None:
    entry()


@pytest.mark.django_db(transaction=True)
def test_the_trigger_exists_again() -> None:
    assert not AuditEntry.objects.exists()
    entry()

    with pytest.raises(DatabaseError, match="kept"):
        AuditEntry.objects.update(reason="another")
