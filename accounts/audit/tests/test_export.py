"""Export of the audit log, in the admin and on the command line."""

import csv
import io
import json
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command

from accounts.audit import export, log
from accounts.audit.models import AuditEntry
from accounts.audit.tests.personas import Staff, audit_entries
from testing.personas import Person

pytestmark = pytest.mark.django_db

VIEW, EXPORT = "audit.view_auditentry", "audit.export_auditentry"
ROUTE = "audit_auditentry_export"


def write_entry(**fields: Any) -> AuditEntry:
    about = {"by": None, "action": "jobs.retry", "reason": "INC-7", "object_type": "upload_job", "object_id": "x"}
    return log.record_action(**{**about, **fields})


def export_file(staff: Staff, **fields: str) -> str:
    answer = staff.post(ROUTE, **{"format": "csv", "reason": "audit of November", **fields})
    assert answer.status_code == 200
    assert answer.streaming, answer.content.decode()
    assert answer.headers["Content-Disposition"].startswith("attachment")
    return str(answer.getvalue().decode())


def is_complete(text: str) -> tuple[list[dict[str, str]], int]:
    """Return a CSV's entries and what its last line says of their number."""
    *rows, last = csv.DictReader(io.StringIO(text))
    assert set(last) == set(export.COLUMNS)
    assert last["entry_id"] == export.END
    return rows, json.loads(last["details"])["entries"]


def test_an_export_needs_a_reason_and_a_permission_and_is_logged() -> None:
    auditor, looker = Staff("auditor", VIEW, EXPORT), Staff("looker", VIEW)

    unreasoned = auditor.post(ROUTE, format="csv", reason=" ")
    forbidden = looker.post(ROUTE, format="csv", reason="x")
    assert (unreasoned.status_code, forbidden.status_code) == (200, 403)
    assert "This field is required" in unreasoned.content.decode()
    assert audit_entries() == []

    export_file(auditor, action="", tenant_id=str(auditor.user.pk))

    assert audit_entries() == [("audit.export", auditor.user.email, "csv", None)]
    assert AuditEntry.objects.get().details == {"selection": {"tenant_id": str(auditor.user.pk)}}


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_is_a_formula(begin: str) -> None:
    hostile = f"{begin}cmd|' /C calc'!A0"
    AuditEntry.objects.create(actor=hostile, action="a", reason=f'say "{hostile}"', object_type="t", object_id=hostile)

    rows, _ = is_complete(export_file(Staff("root", superuser=True)))

    assert rows[0]["actor"] == rows[0]["object_id"] == f"'{hostile}"
    assert rows[0]["reason"] == f'say "{hostile}"'
    assert not any(value.startswith(export.FORMULA) for row in rows for value in row.values())


def test_an_export_filters_by_time_action_tenant_actor_and_object(ana: Person) -> None:
    root, tenant = Staff("root", superuser=True), uuid4()
    write_entry(object_id="one", tenant_id=tenant)
    write_entry(object_id="two", action="jobs.cancel", by=ana.user)

    def found(**fields: str) -> list[str]:
        *entries, last = map(json.loads, export_file(root, format="jsonl", **fields).splitlines())
        assert last == {"end": True, "entries": len(entries)}
        return [entry["object_id"] for entry in entries if entry["action"] != "audit.export"]

    assert found() == ["one", "two"]
    assert found(tenant_id=str(tenant)) == ["one"]
    assert found(actor_id=str(ana.id)) == ["two"]
    assert found(action="jobs.cancel") == ["two"]
    assert found(object_id="one", since="2020-01-01T00:00") == ["one"]
    assert found(until="2020-01-01T00:00") == []


def test_a_log_of_many_pages_is_exported_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "PAGE", 3)
    for number in range(8):  # all of one transaction, so of one moment
        write_entry(object_id=str(number))

    *entries, last = [json.loads(line) for line in export.export_lines(export.EntrySelection(), "jsonl")]
    rows, count = is_complete("".join(export.export_lines(export.EntrySelection(), "csv")))

    assert sorted(entry["object_id"] for entry in entries) == [str(number) for number in range(8)]
    assert last == {"end": True, "entries": 8}
    assert (len(rows), count) == (8, 8)


def test_the_command_prints_the_log_and_writes_an_entry(capsys: pytest.CaptureFixture[str]) -> None:
    write_entry(object_id="one")

    call_command("audit_log", "--since", "1d", "--format", "csv")
    rows, count = is_complete(capsys.readouterr().out)
    call_command("audit_log", "--until", "2020-01-01")

    assert ([row["object_id"] for row in rows], count) == (["one", "csv"], 2)
    assert json.loads(capsys.readouterr().out) == {"end": True, "entries": 0}
    assert [entry[:2] for entry in audit_entries()][1:] == [("audit.export", "command line")] * 2


@pytest.mark.parametrize("since", ["soon", "d", "2026-13-01", "99999999999d"])
def test_the_command_rejects_an_invalid_time(since: str) -> None:
    with pytest.raises(CommandError, match="is not a time"):
        call_command("audit_log", "--since", since)
