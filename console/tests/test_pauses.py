"""Pauses of pipelines, tenants and vendors: what waits, what goes on, and who paused it why."""

from typing import Any
from uuid import uuid4

import pytest

from accounts.audit.models import AuditEntry
from accounts.audit.tests.personas import Staff
from jobs import pauses, worker
from jobs.models import Pause, UploadJob
from jobs.outcomes import Wait
from testing.factories import JobFactory
from testing.personas import Person
from vendors import calls, rate_limit
from vendors.vendor_account import Vendor

pytestmark = pytest.mark.django_db(transaction=True)
PAGE, VENDOR = "/admin/pauses/", Vendor("openai", "sk-secret", requests_per_minute=600)


@pytest.fixture
def operator(db: None) -> Staff:
    return Staff("operator", group="operator")


def pause(staff: Staff, kind: str, subject: str, reason: str = "ticket 7") -> Any:
    return staff.client.post(PAGE, {"kind": kind, "subject": subject, "reason": reason}, follow=True)


def test_jobs_of_a_paused_tenant_wait_and_others_go_on(operator: Staff, ana: Person, ben: Person) -> None:
    held, free = JobFactory.create(user_id=ana.id), JobFactory.create(user_id=ben.id)
    pause(operator, "tenant", " Ana@example.org")

    worker.drain()

    held.refresh_from_db()
    free.refresh_from_db()
    assert (held.state, held.wait_reason, held.attempts) == ("queued", "PAUSED_BY_STAFF", 0)
    assert free.state == "done"


def test_a_resumption_makes_parked_jobs_due(operator: Staff) -> None:
    job = JobFactory.create()
    pause(operator, "pipeline", "noop")
    worker.drain()
    row = Pause.objects.get()

    operator.client.post(f"{PAGE}{row.pk}/resume/", {"reason": "fixed"})
    parked = UploadJob.objects.filter(pk=job.pk, run_after=None).exists()
    worker.drain()

    job.refresh_from_db()
    assert parked
    assert job.state == "done"
    entries = AuditEntry.objects.order_by("at").values_list("action", "actor", "object_id", "reason")
    assert list(entries) == [
        ("jobs.pause", "operator@example.org", "noop", "ticket 7"),
        ("jobs.resume", "operator@example.org", "noop", "fixed"),
    ]


def test_calls_of_a_paused_vendor_wait(operator: Staff) -> None:
    calls.acquire(VENDOR)
    pause(operator, "vendor", "openai")

    with pytest.raises(Wait) as paused:
        calls.acquire(VENDOR)

    assert (paused.value.reason, paused.value.seconds) == ("PAUSED_BY_STAFF", pauses.WAIT_SECONDS)
    assert rate_limit.row_keys(VENDOR) == [VENDOR.key]


@pytest.mark.parametrize(
    ("kind", "subject", "reason", "code"),
    [
        ("tenant", "nobody@example.org", "x", "PAUSE_UNKNOWN"), ("tenant", "\0", "x", "PAUSE_UNKNOWN"),
        ("vendor", "no-such", "x", "PAUSE_UNKNOWN"), ("stage", "noop", "x", "PAUSE_UNKNOWN"),
        ("pipeline", "noop", " ", "REASON_REQUIRED"), ("pipeline", "stages", "x", "ALREADY_PAUSED"),
    ],
)  # fmt: skip
def test_a_refused_pause_changes_nothing(operator: Staff, kind: str, subject: str, reason: str, code: str) -> None:
    pause(operator, "pipeline", "stages")

    answer = pause(operator, kind, subject, reason)

    assert code in answer.content.decode()
    assert Pause.objects.count() == 1
    assert AuditEntry.objects.count() == 1


def test_support_sees_pauses_and_changes_none(operator: Staff, ana: Person) -> None:
    pause(operator, "tenant", str(ana.id))
    support = Staff("support", group="support")

    page = support.client.get(PAGE).content.decode()

    assert "ana@example.org" in page
    assert "operator@example.org" in page
    assert "ticket 7" in page
    assert "Resume" not in page
    assert "ticket 7" in support.client.get(f"/admin/tenants/{ana.id}/").content.decode()
    assert pause(support, "pipeline", "noop").status_code == 403
    assert support.client.post(f"{PAGE}{Pause.objects.get().pk}/resume/", {"reason": "x"}).status_code == 403
    assert (
        "NOT_FOUND" in operator.client.post(f"{PAGE}{uuid4()}/resume/", {"reason": "x"}, follow=True).content.decode()
    )
