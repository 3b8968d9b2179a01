"""Bounded lists of the admin: no full counts, no deep pages, a statement timeout."""

import re
from typing import Any

import pytest
from django.db import connection
from django.db.models import F, Func, QuerySet, TextField
from django.test.utils import CaptureQueriesContext

from accounts.admin_base import MAX_ROWS, parse_utc_datetime
from accounts.audit.admin import AuditEntryAdmin
from accounts.audit.models import AuditEntry
from accounts.audit.tests.personas import Staff

pytestmark = pytest.mark.django_db

LIST = "audit_auditentry_changelist"


@pytest.fixture
def root(db: None) -> Staff:
    return Staff("root", superuser=True)


def create_entries(rows: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO audit_entries (at, actor, action, reason, object_type, object_id, actor_id)
            SELECT now() - make_interval(secs => n), 'a', 'jobs.' || n %% 7, 'r', 'job', n::text, gen_random_uuid()
            FROM generate_series(1, %s) n""",
            [rows],
        )


def test_a_long_list_ends_at_its_thousandth_row(root: Staff) -> None:
    create_entries(MAX_ROWS + 100)

    with CaptureQueriesContext(connection) as seen:
        last, beyond = root.page(LIST, p=20), root.page(LIST, p=999_999)

    oldest = f">{MAX_ROWS}</"
    assert oldest in last.replace(" ", "").replace("\n", "")
    assert oldest in beyond.replace(" ", "").replace("\n", "")
    assert "The first 1000 audit entries" in last
    offsets = [int(offset) for query in seen for offset in re.findall(r"OFFSET (\d+)", query["sql"])]
    assert max(offsets) == MAX_ROWS - 50


def test_a_short_list_is_counted(root: Staff) -> None:
    create_entries(51)

    assert "51 audit entries" in root.page(LIST)
    assert "audit entries" in root.page(LIST, p=2)


def test_a_slow_list_is_stopped_with_a_message(root: Staff, monkeypatch: pytest.MonkeyPatch) -> None:
    create_entries(1)

    def slow(self: AuditEntryAdmin, request: Any) -> QuerySet[AuditEntry]:
        napping = Func(F("at"), function="pg_sleep", template="pg_sleep(1)::text", output_field=TextField())
        return AuditEntry.objects.annotate(nap=napping).exclude(nap="x")

    monkeypatch.setattr(AuditEntryAdmin, "get_queryset", slow)
    monkeypatch.setattr(AuditEntryAdmin, "statement_timeout_ms", 50)
    answer = root.get(LIST)

    assert answer.status_code == 503
    assert "a shorter time or a tenant" in answer.content.decode()
    assert AuditEntry.objects.count() == 1  # the connection is well


def test_the_action_filter_does_not_read_every_entry(root: Staff) -> None:
    create_entries(300)

    with CaptureQueriesContext(connection) as seen:
        page = root.page(LIST, action="jobs.3")

    assert all(f'value="jobs.{n}"' in page for n in range(7))
    assert "43 audit entries" in page
    assert not any("DISTINCT" in query["sql"] for query in seen)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2026-11-01", "2026-11-01T00:00:00+00:00"), ("2026-11-01T12:30", "2026-11-01T12:30:00+00:00"),
        ("2026-11-01T12:30+02:00", "2026-11-01T12:30:00+02:00"), ("soon", None), ("", None), ("2026-13-01", None),
    ],
)  # fmt: skip
def test_a_datetime_is_in_utc_unless_it_names_a_zone(text: str, meant: str | None) -> None:
    moment = parse_utc_datetime(text)

    assert (moment.isoformat() if moment else None) == meant
