"""What staff do to jobs: done and written down together, or neither."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import ProgrammingError, connection

from accounts.audit.models import AuditEntry
from accounts.errors import ApiError
from accounts.models import User
from documents.parsers import registry
from jobs import claims, services, staff_actions
from jobs.models import Event, UploadJob
from jobs.staff_actions import BulkResult
from testing.concurrency import run_concurrently
from testing.factories import DocumentFactory, JobFactory, UserFactory
from testing.fakes.llamaparse import LlamaParseServer
from testing.personas import Person, Upload, plan_pdf, run_all_jobs
from vendors.models import Purchase

WHY = "ticket 4711"


def said(work: Callable[[], object]) -> str:
    try:
        work()
    except ApiError as refused:
        return refused.code
    return "done"


def read(job: UploadJob) -> UploadJob:
    return UploadJob.objects.get(pk=job.pk)


@pytest.fixture
def sue(db: None) -> User:
    return UserFactory.create(username="sue")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("verb", "state", "moved", "code"),
    [
        ("retry", "deadletter", "queued", None),
        ("cancel", "queued", "deadletter", "CANCELLED"),
        ("cancel", "working", "deadletter", "CANCELLED"),
        ("discard", "retryable", "deadletter", "MOVED_BY_STAFF"),
        ("discard", "working", "deadletter", "MOVED_BY_STAFF"),
    ],
)
def test_a_repair_is_done_and_says_who_did_what_and_why(
    sue: User, verb: str, state: str, moved: str, code: str | None
) -> None:
    job = JobFactory.create(state=state, last_error={"code": "ALWAYS_FAILS", "detail": "It always fails."})

    staff_actions.run_action(verb, job.pk, by=sue, reason=WHY)

    entry = AuditEntry.objects.get()
    assert (entry.action, entry.actor_id, entry.actor, entry.reason) == (f"jobs.{verb}", sue.pk, "sue", WHY)
    assert (entry.object_type, entry.object_id, entry.tenant_id) == ("upload_job", str(job.pk), job.user_id)
    assert entry.details == {
        "document_id": str(job.document_id), "code": "ALWAYS_FAILS", "from": job.stage, "to": job.stage,
    }  # fmt: skip
    after = read(job)
    assert (after.state, (after.last_error or {}).get("code")) == (moved, code)
    assert Event.objects.get().payload["by"] == str(sue.pk)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("verb", "columns", "code"),
    [
        ("retry", {"state": "queued"}, "JOB_ALREADY_ACTIVE"),
        ("retry", {"state": "working"}, "JOB_ALREADY_ACTIVE"),
        ("retry", {"state": "retryable"}, "JOB_ALREADY_ACTIVE"),
        ("retry", {"state": "done"}, "JOB_DONE"),
        ("retry", {"state": "deadletter", "pipeline": "not-here"}, "PIPELINE_UNKNOWN"),
        ("retry_from", {"state": "deadletter", "stage": "parsed"}, "STAGE_UNKNOWN"),
        ("cancel", {"state": "deadletter"}, "JOB_STATE_CHANGED"),
        ("cancel", {"state": "done"}, "JOB_STATE_CHANGED"),
        ("discard", {"state": "deadletter"}, "JOB_STATE_CHANGED"),
        ("discard", {"state": "done"}, "JOB_STATE_CHANGED"),
    ],
)
def test_what_is_refused_leaves_no_entry(sue: User, verb: str, columns: dict[str, Any], code: str) -> None:
    job = JobFactory.create(**{"pipeline": "stages"} | columns)

    assert said(lambda: staff_actions.run_action(verb, job.pk, by=sue, reason=WHY, stage="no-such-stage")) == code

    assert not AuditEntry.objects.exists()
    assert not Event.objects.exists()
    assert read(job).state == job.state


@pytest.mark.django_db
@pytest.mark.parametrize("verb", ["retry", "cancel", "discard"])
def test_nothing_is_done_without_a_reason_or_to_a_job_that_was_deleted(sue: User, verb: str) -> None:
    job = JobFactory.create(state="deadletter" if verb == "retry" else "queued")

    assert said(lambda: staff_actions.run_action(verb, job.pk, by=sue, reason="  ")) == "REASON_REQUIRED"
    assert said(lambda: staff_actions.run_bulk_action(verb, [job.pk], by=sue, reason="")) == "REASON_REQUIRED"
    assert read(job).state == job.state

    job.document.delete()

    assert said(lambda: staff_actions.run_action(verb, job.pk, by=sue, reason=WHY)) == "NOT_FOUND"
    assert said(lambda: getattr(staff_actions, verb)(job, by=sue, reason=WHY)) in ("NOT_FOUND", "JOB_STATE_CHANGED")
    assert not AuditEntry.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_an_entry_that_cannot_be_written_takes_the_repair_back(sue: User) -> None:
    job = JobFactory.create(state="deadletter")

    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE audit_entries RENAME TO away")
        try:
            with pytest.raises(ProgrammingError, match="audit_entries"):
                staff_actions.retry(job, by=sue, reason=WHY)
        finally:
            cursor.execute("ALTER TABLE away RENAME TO audit_entries")

    assert read(job).state == "deadletter"
    assert not Event.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("_", range(3))
def test_of_two_admins_who_retry_the_same_job_one_does_it(sue: User, _: int) -> None:
    job = JobFactory.create(state="deadletter")
    tom = UserFactory.create(username="tom")

    found = run_concurrently(
        *[lambda by=by: said(lambda: staff_actions.run_action("retry", job.pk, by=by, reason=WHY)) for by in (sue, tom)]
    )

    assert sorted(found)[1] == "done"
    assert sorted(found)[0] in ("JOB_ALREADY_ACTIVE", "JOB_STATE_CHANGED")
    assert AuditEntry.objects.count() == Event.objects.filter(code="REQUEUED").count() == 1


@pytest.mark.django_db
def test_of_many_mixed_jobs_each_is_done_or_counted_by_why_not(sue: User) -> None:
    dead = JobFactory.create_batch(3, state="deadletter")
    others = [JobFactory.create(state=state) for state in ("working", "queued", "done")]
    gone = uuid.uuid4()

    done = staff_actions.run_bulk_action(
        "retry", [job.pk for job in (*dead, *others, dead[0])] + [gone], by=sue, reason=WHY
    )

    assert done == BulkResult(3, {"JOB_ALREADY_ACTIVE": 2, "JOB_DONE": 1, "NOT_FOUND": 1}, 0)
    assert sorted(AuditEntry.objects.values_list("object_id", flat=True)) == sorted(str(job.pk) for job in dead)


@pytest.mark.django_db
def test_more_than_a_request_can_do_is_left_and_said(sue: User, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = JobFactory.create_batch(3, state="deadletter")

    monkeypatch.setattr(staff_actions, "MAX_JOBS", 2)
    assert staff_actions.run_bulk_action("retry", [job.pk for job in dead], by=sue, reason=WHY) == BulkResult(2, {}, 1)
    monkeypatch.setattr(staff_actions, "MAX_SECONDS", -1)
    assert staff_actions.run_bulk_action("retry", [dead[2].pk], by=sue, reason=WHY) == BulkResult(0, {}, 1)

    assert AuditEntry.objects.count() == 2


@pytest.mark.django_db
def test_the_worker_of_a_buried_job_can_write_nothing_more(sue: User) -> None:
    job = JobFactory.create()
    claim = claims.claim_next("w")
    assert claim is not None

    staff_actions.discard(job, by=sue, reason=WHY)

    with pytest.raises(claims.ClaimLost):
        claim.move("finish")
    assert Event.objects.filter(code="MOVED_BY_STAFF").count() == 1


@pytest.mark.django_db
def test_what_a_campaign_has_let_go_of_is_not_retried_and_what_a_tenant_cancelled_is(sue: User) -> None:
    let_go = {"state": "deadletter", "last_error": {"code": "CANCELLED"}}
    of_campaign = JobFactory.create(campaign_id=uuid.uuid4(), **let_go)

    assert said(lambda: staff_actions.retry(of_campaign, by=sue, reason=WHY)) == "JOB_LET_GO"
    assert said(lambda: staff_actions.retry(JobFactory.create(**let_go), by=sue, reason=WHY)) == "done"


@pytest.mark.django_db
def test_the_command_line_leaves_an_entry_of_its_own(db: None) -> None:
    job = JobFactory.create(state="deadletter")

    call_command("requeue", str(job.document_id), reason=WHY)

    entry = AuditEntry.objects.get()
    assert (entry.action, entry.actor_id, entry.actor, entry.reason) == ("jobs.retry", None, "command line", WHY)


# From which stage.


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("queued", "done"),
        ("parsed", "done"),
        ("chunking", "done"),
        ("chunks_buffered", "chunking"),
        ("embedded", "chunking"),
    ],
)
def test_a_retry_begins_no_later_than_what_is_proven_and_the_refusal_names_that(
    sue: User, asked: str, found: str
) -> None:
    job = JobFactory.create(state="deadletter", pipeline="unproven", stage="embedding")  # holds up to chunking

    if found == "done":
        staff_actions.retry(job, stage=asked, by=sue, reason=WHY)
        assert (read(job).stage, read(job).state) == (asked, "queued")
        assert AuditEntry.objects.get().details["to"] == asked
        return
    with pytest.raises(ApiError, match=f"STAGE_NOT_REACHED.* {found}\\.$"):
        staff_actions.retry(job, stage=asked, by=sue, reason=WHY)
    assert read(job).state == "deadletter"


@pytest.mark.django_db
def test_no_job_goes_past_where_it_stands(sue: User) -> None:
    job = JobFactory.create(state="deadletter", pipeline="stages", stage="parsing")  # every proof holds

    assert said(lambda: staff_actions.retry(job, stage="parsed", by=sue, reason=WHY)) == "STAGE_NOT_REACHED"


@pytest.fixture
def dead(ana: UUID, settings: Any, store: None) -> Upload:
    """A document of a tenant's, searchable, whose job then was made a dead letter at its last stage."""
    settings.JOBS_PIPELINES = "accessa.pipelines.PIPELINES"
    made = Person("mia").ingest(plan_pdf("dental", lines=9))
    assert made.job.state == "done"
    UploadJob.objects.filter(pk=made.job_id).update(  # as if its last try had failed
        **{"state": "deadletter", "last_error": {"code": "VECTORS_NOT_SOUND"}}
    )
    return made


@pytest.mark.django_db
@pytest.mark.parametrize("stage", ["queued", "job_validated", "parsing", "parse_validated", "chunking", "chunked"])
def test_from_any_stage_a_document_gets_to_its_end_again_with_the_same_passages(
    sue: User, dead: Upload, stage: str
) -> None:
    before = _passages(dead)

    staff_actions.retry(dead.job, stage=stage, by=sue, reason=WHY)
    assert dead.job.stage == stage
    run_all_jobs(2)

    assert dead.job.state == "done"
    assert _passages(dead) == before
    assert not Purchase.objects.exists()


def _passages(made: Upload) -> list[Any]:
    chunks = made.job.document.chunks.order_by("chunk_ord")
    return list(chunks.values_list("chunk_id", "chunk_sha", "vector_sha", "embed_model"))


@pytest.mark.django_db
def test_from_parse_validated_a_document_is_cut_by_todays_chunker(sue: User, dead: Upload, settings: Any) -> None:
    settings.CHUNKER = "markdown-simple@2"

    staff_actions.retry(dead.job, stage="parse_validated", by=sue, reason=WHY)
    run_all_jobs(2)

    assert (dead.job.state, dead.job.chunks_version) == ("done", "markdown-simple@2")


@pytest.mark.django_db
def test_from_job_validated_a_parse_that_was_made_by_another_plan_is_not_taken_for_the_new_one(
    sue: User, dead: Upload
) -> None:
    staff_actions.retry(dead.job, stage="job_validated", by=sue, reason=WHY)

    job = dead.job
    assert (job.parsed_path, job.parsed_sha256) == (None, None)
    run_all_jobs(2)
    reused = Event.objects.filter(job_id=job.pk, code="PARSE_REUSED")
    assert reused.count() == 1  # the same plan takes what is stored as it is
    assert dead.job.parsed_sha256 == job.document.parsed_sha256


@pytest.fixture
def bought(settings: Any) -> Iterator[LlamaParseServer]:
    """LlamaParse from now on, done as soon as it is asked."""
    with LlamaParseServer() as server:
        settings.PARSER, settings.LLAMAPARSE_API_KEY, settings.LLAMAPARSE_BASE_URL = (
            "llamaparse",
            server.key,
            server.url,
        )
        settings.PARSE_POLL_FIRST_SECONDS = 0.0
        registry.vendor_client.cache_clear()
        yield server
    registry.vendor_client.cache_clear()


@pytest.mark.django_db
def test_another_parser_is_paid_once_and_its_text_is_taken_and_going_back_again_buys_nothing(
    sue: User, dead: Upload, bought: LlamaParseServer
) -> None:
    staff_actions.retry(dead.job, stage="job_validated", by=sue, reason=WHY)
    run_all_jobs(4)
    assert (dead.job.state, dead.job.document.parser_name) == ("done", "llamaparse")
    assert bought.ledger.sold == 1

    UploadJob.objects.filter(pk=dead.job_id).update(**{"state": "deadletter", "last_error": {"code": "X"}})
    for stage in ("job_validated", "parsing", "chunked"):
        staff_actions.retry(dead.job, stage=stage, by=sue, reason=WHY)
        run_all_jobs(3)
        assert dead.job.state == "done"
        UploadJob.objects.filter(pk=dead.job_id).update(**{"state": "deadletter"})

    assert bought.ledger.sold == Purchase.objects.count() == 1


@pytest.mark.django_db
def test_a_store_that_is_away_is_no_reason_to_begin_anew(sue: User, dead: Upload, monkeypatch: Any) -> None:
    def away(*_: Any) -> bool:
        raise OSError("away")

    monkeypatch.setattr("documents.storage.LocalSignedStorage.exists", away)

    assert said(lambda: staff_actions.retry(dead.job, by=sue, reason=WHY)) == "UNAVAILABLE"
    assert staff_actions.run_bulk_action("retry", [dead.job_id], by=sue, reason=WHY) == BulkResult(
        0, {"UNAVAILABLE": 1}, 0
    )
    assert (dead.job.state, services.newest_job(UploadJob.objects.all())) == ("deadletter", dead.job)


# Through the API.


@pytest.mark.django_db
def test_staffs_retry_of_a_tenants_job_through_the_api_is_written_down(dead: Upload, sam: Person) -> None:
    path = f"/jobs/{dead.document_id}/retry"

    assert sam.post(path, {"reason": WHY}).status_code == 202

    entry = AuditEntry.objects.get()
    assert (entry.action, entry.actor_id, entry.reason) == ("jobs.retry", sam.id, WHY)
    assert sam.post(path, {"reason": ["no", "text"]}).status_code == 400
    assert sam.post(path).status_code == 409
    assert AuditEntry.objects.count() == 1


@pytest.mark.django_db
def test_without_a_reason_the_entry_says_that_it_came_through_the_api(dead: Upload, sam: Person) -> None:
    assert sam.client.post(f"/jobs/{dead.document_id}/retry").status_code == 202

    assert AuditEntry.objects.get().reason == "via the API"


@pytest.mark.django_db
def test_staff_without_the_permission_have_no_more_rights_than_a_tenant(dead: Upload) -> None:
    novice = Person("novice", staff=True)

    assert novice.post(f"/jobs/{dead.document_id}/retry").status_code == 404
    assert dead.job.state == "deadletter"


@pytest.mark.django_db
def test_a_tenants_own_retry_is_nobody_elses_business(ana: UUID, settings: Any, store: None) -> None:
    mia = Person("mia")
    document = DocumentFactory.create(user_id=mia.id)
    JobFactory.create(document=document, user_id=mia.id, state="deadletter")

    assert mia.post(f"/jobs/{document.pk}/retry").status_code == 202
    assert not AuditEntry.objects.exists()
