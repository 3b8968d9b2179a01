"""Jobs and events in the admin: filters, search and staff actions."""

import json
import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.urls import reverse

from accounts.audit.models import AuditEntry
from accounts.models import User
from jobs.admin import UploadJobAdmin
from jobs.models import Event, UploadJob
from metrics import gauges
from testing.factories import JobFactory, UserFactory

LIST, EVENTS = "/admin/jobs/uploadjob/", "/admin/jobs/event/"
ALL = ("view_uploadjob", "view_event", "retry_uploadjob", "cancel_uploadjob", "discard_uploadjob")
Staff = Callable[..., Client]
pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(db: None) -> Staff:
    def sign_in(*codenames: str) -> Client:
        user: User = UserFactory.create(is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        client = Client()
        client.force_login(user)
        return client

    return sign_in


@pytest.fixture
def sue(staff: Staff) -> Client:
    return staff(*ALL)


def list_ids(client: Client, path: str = LIST, **query: Any) -> set[Any]:
    answer = client.get(path, query)
    assert answer.status_code == 200, answer.content[:300]
    return {row.pk for row in answer.context["cl"].result_list}


def action_form(verb: str, *jobs: UploadJob, **more: str) -> dict[str, Any]:
    return {"action": verb, "index": "0", ACTION_CHECKBOX_NAME: [str(job.pk) for job in jobs], **more}


def create_event(job: UploadJob, **columns: Any) -> Event:
    fields = {"type": "error", "severity": "error", "code": "DLQ_MOVED"} | columns
    return Event.objects.create(job=job, document_id=job.document_id, user_id=job.user_id, **fields)


# Finding.


def test_the_standing_filter_separates_all_kinds_of_jobs(sue: Client) -> None:
    tenant, later = uuid.uuid4(), datetime.now(UTC) + timedelta(hours=1)
    jobs_by_status = {
        "queued": [JobFactory.create()],
        "waiting": [JobFactory.create(run_after=later, wait_reason="VENDOR_AWAY")],
        "working": [JobFactory.create(state="working", user_id=tenant, slot=slot) for slot in (0, 1)],
        "starved": [JobFactory.create(user_id=tenant)],
        "retrying": [JobFactory.create(state="retryable")],
        "dead": [JobFactory.create(state="deadletter")],
        "done": [JobFactory.create(state="done")],
    }
    # A campaign's job may not take the first slot, so one at work is one too many for the next.
    low = {"user_id": uuid.uuid4(), "campaign_id": uuid.uuid4()}
    jobs_by_status["working"].append(JobFactory.create(state="working", slot=1, **low))
    jobs_by_status["starved"].append(JobFactory.create(**low))
    jobs_by_status["queued"].append(
        JobFactory.create(user_id=low["user_id"])
    )  # it gives its slot back to the tenant's own

    ids_by_status = {name: list_ids(sue, standing=name) for name in jobs_by_status}
    page = sue.get(LIST)

    assert ids_by_status == {name: {job.pk for job in jobs} for name, jobs in jobs_by_status.items()}
    shown = {
        job.pk: cast(UploadJobAdmin, admin.site._registry[UploadJob]).standing(job)
        for job in page.context["cl"].result_list
    }
    assert shown == {job.pk: name for name, jobs in jobs_by_status.items() for job in jobs}
    counts = gauges.collect_gauges()["standing"]
    assert counts == {name: len(jobs_by_status[name]) for name in counts}


def test_each_filter_selects_its_jobs(sue: Client) -> None:
    old = JobFactory.create(pipeline="reembed", campaign_id=uuid.uuid4(), created_at=datetime(2026, 1, 1, tzinfo=UTC))
    dead = JobFactory.create(state="deadletter", stage="parsing", last_error={"code": "PARSE_LOST", "detail": "…"})
    waiting = JobFactory.create(run_after=datetime.now(UTC) + timedelta(hours=1), wait_reason="VENDOR_AWAY")
    done = JobFactory.create(state="done")

    for query, expected in [
        ({"pipeline": "reembed"}, {old}),
        ({"pipeline": "noop"}, {dead, waiting, done}),
        ({"asked_by": "campaign"}, {old}),
        ({"asked_by": "tenant"}, {dead, waiting, done}),
        ({"older_than": "604800"}, {old}),
        ({"error_code": "PARSE_LOST"}, {dead}),
        ({"wait_reason": "VENDOR_AWAY"}, {waiting}),
        ({"stage": "parsing"}, {dead}),
        ({"stage": "embedded"}, {old, waiting, done}),
        ({"state": "deadletter"}, {dead}),
        ({"status": "failed_parse"}, {dead}),
        ({"state": "deadletter", "error_code": "SOMETHING"}, set()),
        ({"state": "no-such-state"}, set()),
    ]:
        assert list_ids(sue, **query) == {job.pk for job in expected}, query


@pytest.mark.slow
def test_search_finds_a_job_by_whole_ids_only(sue: Client) -> None:
    job, *_ = JobFactory.create_batch(3)
    create_event(job, code="UPLOAD_ACCEPTED", correlation_id=job.correlation_id)

    for term in (job.pk, job.document_id, job.user_id, job.correlation_id):
        assert list_ids(sue, q=f" {term} ") == {job.pk}
    for other in (uuid.uuid4(), str(job.pk)[:8], "'; DROP TABLE upload_jobs --", "plan.pdf"):
        assert list_ids(sue, q=other) == set()


def test_the_list_shows_no_tenant_text(sue: Client) -> None:
    job = JobFactory.create(state="deadletter", payload={"ssn": "078-05"}, traceback="frames", last_error={"code": "X"})

    page = sue.get(LIST).content.decode()

    assert reverse("console:job", args=[job.pk]) in page
    for hidden in ("078-05", "frames", "plan.pdf", job.raw_path):
        assert hidden not in page


def test_a_jobs_change_page_redirects_to_the_console(sue: Client) -> None:
    job = JobFactory.create()

    for path in ("change", "delete"):
        answer = sue.get(reverse(f"admin:jobs_uploadjob_{path}", args=[job.pk]))
        assert (answer.status_code, answer.get("Location")) in [
            (302, f"/admin/jobs/{job.pk}/"),
            (403, None),
            (200, None),
        ]
        assert sue.post(reverse(f"admin:jobs_uploadjob_{path}", args=[job.pk]), {"post": "yes"}).status_code != 200
    assert sue.get(f"{LIST}add/").status_code == 403
    assert UploadJob.objects.filter(pk=job.pk).exists()


@pytest.mark.parametrize(
    "query", [{}, {"state": "deadletter"}, {"status": "failed_parse"}, {"error_code": "X"}, {"standing": "dead"}]
)
@pytest.mark.usefixtures("never_vacuumed")
def test_the_list_is_read_along_an_index_and_never_counted(sue: Client, query: dict[str, str]) -> None:
    JobFactory.create_batch(3, state="deadletter")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")

    rows = sue.get(LIST, query).context["cl"].queryset[:50]
    with connection.cursor() as cursor:
        sql, params = rows.query.sql_with_params()
        cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}", params)
        plan = json.dumps(cursor.fetchone()[0])

    assert "Seq Scan" not in plan
    assert "documents" not in plan  # a join of every row that is sorted
    assert "ix_jobs_" in plan or "idx_upload_jobs_" in plan or "upload_jobs_pkey" in plan


@pytest.mark.usefixtures("never_vacuumed")
def test_the_stage_and_origin_filters_use_an_index(sue: Client) -> None:
    JobFactory.create_batch(3, state="done", stage="embedded")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")

    def conditions(**query: str) -> str:
        sql, params = sue.get(LIST, query).context["cl"].queryset[:50].query.sql_with_params()
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (FORMAT JSON) {sql}", params)
            return json.dumps(cursor.fetchone()[0])

    for query in ({"pipeline": "reembed"}, {"asked_by": "campaign"}):
        assert re.search("ix_jobs_created_low|ix_jobs_campaign", conditions(**query))
    assert "state = ANY" in conditions(stage="parsing")
    assert "created_at >= COALESCE" in conditions(pipeline="noop")


def test_the_pipeline_filter_searches_only_the_newest_jobs(sue: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.admin.NEWEST_JOBS", 2)
    jobs = [JobFactory.create(created_at=datetime(2026, 1, day, tzinfo=UTC)) for day in (1, 2, 3, 4)]

    assert list_ids(sue, pipeline="noop") == {job.pk for job in jobs[1:]}  # and the one at the edge


@pytest.mark.parametrize(
    "path",
    [
        f"{LIST}?error_code=%00", f"{LIST}?wait_reason=%00", f"{LIST}?stage=%00", f"{LIST}?q=%00", f"{LIST}?p=%00",
        f"{LIST}?pipeline=%00", f"{EVENTS}?code=%00", f"{EVENTS}?q=%00", f"{EVENTS}?within=%00",
        "/admin/dead-letters/retry/?code=%00&stage=%00",
        "/admin/dead-letters/retry/?code=X&stage=parsing&before=2026-01-01T00:00:00",
        "/admin/dead-letters/retry/?code=X&stage=parsing&before=%00",
    ],
)  # fmt: skip
def test_an_impossible_filter_selects_nothing(sue: Client, path: str) -> None:
    JobFactory.create(state="deadletter", stage="parsing", last_error={"code": "X"})

    assert sue.get(path).status_code in (200, 302)


@pytest.mark.parametrize("verb", ["retry", "retry_from", "cancel", "discard"])
def test_an_invalid_id_is_not_a_job(sue: Client, verb: str) -> None:
    job = JobFactory.create(state="deadletter")

    answer = sue.post(LIST, {"action": verb, "index": "0", ACTION_CHECKBOX_NAME: ["bad", "\0"]}, follow=True)

    assert answer.status_code == 200
    assert "A selected row is not a job" in answer.content.decode()
    assert UploadJob.objects.get() == job


# Events.


def test_the_events_of_the_last_hour_are_listed_unless_an_id_is_searched(sue: Client) -> None:
    job, other = JobFactory.create_batch(2)
    now = create_event(job)
    old = create_event(
        job, ts=datetime.now(UTC) - timedelta(hours=5), code="CLAIMED", type="stage_started", severity="info"
    )
    create_event(other, ts=datetime.now(UTC) - timedelta(days=40))

    page = sue.get(EVENTS)
    assert reverse("console:job", args=[job.pk]) in page.content.decode()
    assert "JOIN" not in str(page.context["cl"].queryset.query)
    for query, expected in [
        ({}, {now}),
        ({"within": "86400"}, {now, old}),
        ({"within": "86400", "severity": "info"}, {old}),
        ({"within": "86400", "type": "error"}, {now}),
        ({"within": "86400", "code": "CLAIMED"}, {old}),
        ({"q": str(job.pk)}, {now, old}),
        ({"q": str(job.document_id)}, {now, old}),
        ({"q": "CLAIMED"}, set()),
        ({"within": "forever"}, {now}),
    ]:
        assert list_ids(sue, EVENTS, **query) == {each.pk for each in expected}, query


# Repairing.


@pytest.mark.parametrize(
    ("verb", "state", "after"),
    [("retry", "deadletter", "queued"), ("cancel", "working", "deadletter"), ("discard", "queued", "deadletter")],
)
def test_an_action_runs_once_it_is_confirmed_with_a_reason(sue: Client, verb: str, state: str, after: str) -> None:
    jobs = [JobFactory.create(state=state) for _ in range(2)]

    page = sue.post(LIST, action_form(verb, *jobs))
    unsaid = sue.post(LIST, action_form(verb, *jobs, confirmed="yes", reason=" "))

    assert "<strong>2</strong> jobs chosen" in page.content.decode()
    assert "REASON_REQUIRED" in unsaid.content.decode()
    assert not UploadJob.objects.filter(state=after).exists()
    answer = sue.post(LIST, action_form(verb, *jobs, confirmed="yes", reason="ticket 9"), follow=True)
    assert "2 jobs" in answer.content.decode()
    assert UploadJob.objects.filter(state=after).count() == 2
    assert list(AuditEntry.objects.values_list("action", "reason")) == [(f"jobs.{verb}", "ticket 9")] * 2


def test_a_rejected_action_shows_its_error_code(sue: Client) -> None:
    dead, done = (
        JobFactory.create(state="deadletter", pipeline="stages", stage="chunked"),
        JobFactory.create(state="done"),
    )

    answer = sue.post(
        LIST, action_form("retry_from", dead, done, confirmed="yes", reason="x", stage="chunking"), follow=True
    ).content.decode()

    assert "1 job retried." in answer
    assert "1 not retried: JOB_DONE." in answer
    dead.refresh_from_db()
    assert (dead.state, dead.stage) == ("queued", "chunking")


@pytest.mark.parametrize("verb", ["retry", "retry_from", "cancel", "discard", "delete_selected"])
def test_staff_with_view_permission_only_have_no_actions(staff: Staff, verb: str) -> None:
    looking, nobody = staff("view_uploadjob"), staff()
    job = JobFactory.create(state="deadletter" if verb.startswith("retry") else "queued")

    page = looking.get(LIST).content.decode()
    looking.post(LIST, action_form(verb, job, confirmed="yes", reason="x", stage="embedded", post="yes"))
    answer = nobody.post(LIST, action_form(verb, job, confirmed="yes", reason="x"))

    assert f'value="{verb}"' not in page
    assert answer.status_code == nobody.get(LIST).status_code == nobody.get(EVENTS).status_code == 403
    assert UploadJob.objects.get().state == job.state
    assert not AuditEntry.objects.exists()
