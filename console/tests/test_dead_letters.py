"""Dead letters page: groups, their counts and remedies, and the retry of a group."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from accounts.audit.models import AuditEntry
from console import dead_letter_groups, remedies
from console.tests.conftest import Staff
from documents.error_codes import PARSE_LOST
from documents.models import Document
from jobs import staff_actions
from jobs.choices import Stage
from jobs.models import UploadJob
from testing.factories import JobFactory
from testing.personas import run_all_jobs

PAGE, RETRY = "/admin/dead-letters/", "/admin/dead-letters/retry/"
Dead = Callable[..., UploadJob]
pytestmark = pytest.mark.django_db


def test_dead_letters_are_grouped_by_stage_and_code(dead: Dead) -> None:
    moments = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3, 4, 5)]
    many = [dead("PARSE_FAILED", "parsing", finished_at=moment, attempts=n) for n, moment in enumerate(moments, 1)]
    dead("PARSE_FAILED", "parsed"), dead("VECTORS_NOT_SOUND"), dead("A_FIRST"), JobFactory.create(state="done")

    groups = {(group.stage, group.code): group for group in dead_letter_groups.groups()}

    assert {key: group.counted for key, group in groups.items()} == {
        ("parsing", "PARSE_FAILED"): 5,
        ("parsed", "PARSE_FAILED"): 1,
        ("embedding", "VECTORS_NOT_SOUND"): 1,
        ("embedding", "A_FIRST"): 1,
    }
    group = groups["parsing", "PARSE_FAILED"]
    assert (group.newest, group.oldest, group.attempts) == (moments[4], moments[0], "3 to 5")
    assert [job["pk"] for job in group.samples] == [job.pk for job in many[:1:-1]]
    assert group.detail == "What PARSE_FAILED says."


def test_a_large_group_is_counted_no_further_than_it_matters(dead: Dead, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_groups, "MAX_COUNT", 2)
    for _ in range(4):
        dead()

    (group,) = dead_letter_groups.groups()

    assert (group.counted, group.count) == (3, "2+")


def test_the_page_shows_meaning_and_remedy_and_keeps_cancelled_jobs_apart(sue: Client, dead: Dead) -> None:
    failed, cancelled = dead("PARSE_LOST", "parsing"), dead("CANCELLED", "queued")

    page = sue.get(PAGE).content.decode()

    assert str(PARSE_LOST.meaning) in page
    assert str(PARSE_LOST.remedy) in page
    assert "What PARSE_LOST says." in page
    assert reverse("console:job", args=[failed.pk]) in page
    above, below = page.split("Cancelled or superseded")
    assert str(cancelled.pk) in below
    assert str(cancelled.pk) not in above
    assert "code=PARSE_LOST" in above
    assert "retry/?stage=queued" not in page


def test_no_tenants_text_is_on_the_page(sue: Client, dead: Dead) -> None:
    job = dead(traceback="frames", payload={"ssn": "078-05-1120"})
    Document.objects.filter(pk=job.document_id).update(filename="<script>alert(1)</script> Ana's cancer.pdf")

    page = sue.get(PAGE).content.decode()

    assert "cancer" not in page
    assert "078-05" not in page
    assert job.raw_path not in page


@pytest.mark.parametrize(
    ("codenames", "looking", "retrying"),
    [([], 403, 403), (["view_uploadjob"], 200, 403), (["retry_uploadjob"], 403, 403)],
)
def test_staff_actions_follow_permissions(
    staff: Staff, dead: Dead, codenames: list[str], looking: int, retrying: int
) -> None:
    job = dead()
    client = staff(*codenames)

    page = client.get(PAGE)
    answer = client.post(RETRY, {"stage": job.stage, "code": "ALWAYS_FAILS", "reason": "because"})

    assert (page.status_code, answer.status_code) == (looking, retrying)
    assert b"Retry the group" not in page.content
    assert not AuditEntry.objects.exists()
    assert UploadJob.objects.get().state == "deadletter"


def test_anonymous_users_are_redirected_to_sign_in(dead: Dead, client: Client) -> None:
    assert client.get(PAGE).status_code == 302
    assert client.post(RETRY, {"stage": "embedding", "code": "ALWAYS_FAILS", "reason": "x"}).status_code == 302
    assert UploadJob.objects.filter(state="deadletter").count() == 0


def test_retrying_a_group_needs_a_reason_and_writes_audit_entries(sue: Client, dead: Dead) -> None:
    group = [dead() for _ in range(3)]
    other = dead("SOMETHING_ELSE")
    form = {"stage": "embedding", "code": "ALWAYS_FAILS"}

    assert "<strong>3</strong> dead letters" in sue.get(RETRY, form).content.decode()
    assert b"REASON_REQUIRED" in sue.post(RETRY, form | {"reason": " "}, follow=True).content
    assert UploadJob.objects.filter(state="queued").count() == 0
    answer = sue.post(RETRY, form | {"reason": "the vendor is back"}, follow=True)

    assert "3 jobs retried." in answer.content.decode()
    assert set(UploadJob.objects.filter(state="queued").values_list("pk", flat=True)) == {job.pk for job in group}
    assert set(AuditEntry.objects.values_list("object_id", "reason")) == {
        (str(job.pk), "the vendor is back") for job in group
    }
    other.refresh_from_db()
    assert other.state == "deadletter"
    run_all_jobs(1)
    assert UploadJob.objects.filter(state="done").count() == 3


def test_a_large_group_goes_in_batches_and_the_rest_is_offered(
    sue: Client, dead: Dead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staff_actions, "MAX_JOBS", 2)
    now = datetime.now(UTC)
    for minutes in range(5):
        dead(finished_at=now - timedelta(minutes=minutes))
    stuck = dead(finished_at=now + timedelta(minutes=1))  # is refused each time: another job of its document is active
    JobFactory.create(document=stuck.document, user_id=stuck.user_id)
    form, left = {"stage": "embedding", "code": "ALWAYS_FAILS", "reason": "because"}, []

    for _ in range(4):
        answer = sue.post(RETRY, form)
        left.append(UploadJob.objects.filter(state="deadletter").count())
        assert answer.status_code == 302
        following = sue.get(answer["Location"])
        form["before"] = (following.context or {}).get("before", "")

    assert left == [5, 3, 1, 1]
    assert AuditEntry.objects.count() == 5


def test_cancelled_jobs_are_not_retried_as_a_group(sue: Client, dead: Dead) -> None:
    dead("CANCELLED")

    answer = sue.post(RETRY, {"stage": "embedding", "code": "CANCELLED", "reason": "because"}, follow=True)

    assert "JOB_LET_GO" in answer.content.decode()
    assert UploadJob.objects.get().state == "deadletter"


def test_changes_need_a_post_with_a_csrf_token(staff: Staff, dead: Dead) -> None:
    form = {"stage": dead().stage, "code": "ALWAYS_FAILS", "reason": "because"}
    client = staff("view_uploadjob", "retry_uploadjob", strict=True)

    assert client.post(RETRY, form).status_code == 403
    assert client.get(RETRY, form).status_code == 200
    assert UploadJob.objects.get().state == "deadletter"


def test_retries_that_worked_are_shown_beside_the_remedy(sue: Client, staff: Staff, dead: Dead) -> None:
    page = f"/admin/jobs/{dead().pk}/"
    for fields, is_ended_otherwise in (
        ({"verb": "retry", "reason": "the vendor is back"}, False),
        ({"verb": "retry", "reason": "and again"}, True),
        ({"verb": "retry_from", "stage": "queued", "reason": "its chunks are lost"}, True),
    ):
        at = f"/admin/jobs/{dead().pk}/repair/"
        sue.post(at, fields)
        if is_ended_otherwise:
            sue.post(at, {"verb": "discard", "reason": "no"})
        run_all_jobs(1)
    other, limited = dead("SOMETHING_ELSE"), staff("view_uploadjob", name="tom")

    for answer in (sue.get(page), sue.get(PAGE)):
        shown = answer.content.decode()
        assert "Retry: worked for 1 of 2, 1 failed again." in shown
        assert "“the vendor is back”" in shown
        assert "Retry from queued: worked for 0 of 1, 1 failed again." in shown
    assert "“the vendor is back”" not in limited.get(page).content.decode()
    assert "Tried by staff" not in sue.get(f"/admin/jobs/{other.pk}/").content.decode()


@pytest.mark.usefixtures("never_vacuumed")
def test_tried_remedies_are_read_along_indexes(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN {remedies.TRIED}", {"codes": ["X"], "most": 50, "ends": remedies.ENDS})
        plan = "\n".join(row[0] for row in cursor.fetchall())

    assert "ix_audit_retries" in plan
    assert "idx_events_job_ts" in plan


@pytest.mark.usefixtures("never_vacuumed")
def test_groups_and_batches_are_read_along_their_index(dead: Dead) -> None:
    for _ in range(3):
        dead()
    params: dict[str, Any] = {"stages": Stage.values, "most_codes": 30, "most_counted": 1000, "samples": 3}
    batch = str(dead_letter_groups.group_jobs("embedding", "X").values("pk")[:1000].query)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN (FORMAT JSON) {dead_letter_groups.GROUPS}", params)
        plan = json.dumps(cursor.fetchone()[0])
        cursor.execute(*explained(dead_letter_groups.group_jobs("embedding", "X")[:1000]))
        listed = json.dumps(cursor.fetchone()[0])

    assert plan.count('"ix_jobs_dead"') >= 4
    assert "Seq Scan" not in plan + listed
    assert '"ix_jobs_dead"' in listed
    assert '"Sort"' not in listed
    assert "->> " in batch


def explained(rows: Any) -> tuple[str, Any]:
    sql, params = rows.query.sql_with_params()
    return f"EXPLAIN (FORMAT JSON) {sql}", params
