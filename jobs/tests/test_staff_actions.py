"""Staff actions on jobs and their audit entries, in one transaction."""

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


def outcome_code(work: Callable[[], object]) -> str:
    try:
        work()
    except ApiError as refused:
        return refused.code
    return "done"


def reload(job: UploadJob) -> UploadJob:
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
def test_an_action_moves_the_job_and_writes_an_audit_entry(
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
    after = reload(job)
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
def test_a_rejected_action_writes_no_audit_entry(sue: User, verb: str, columns: dict[str, Any], code: str) -> None:
    job = JobFactory.create(**{"pipeline": "stages"} | columns)

    assert (
        outcome_code(lambda: staff_actions.run_action(verb, job.pk, by=sue, reason=WHY, stage="no-such-stage")) == code
    )

    assert not AuditEntry.objects.exists()
    assert not Event.objects.exists()
    assert reload(job).state == job.state


@pytest.mark.django_db
@pytest.mark.parametrize("verb", ["retry", "cancel", "discard"])
def test_an_action_needs_a_reason_and_an_existing_job(sue: User, verb: str) -> None:
    job = JobFactory.create(state="deadletter" if verb == "retry" else "queued")

    assert outcome_code(lambda: staff_actions.run_action(verb, job.pk, by=sue, reason="  ")) == "REASON_REQUIRED"
    assert outcome_code(lambda: staff_actions.run_bulk_action(verb, [job.pk], by=sue, reason="")) == "REASON_REQUIRED"
    assert reload(job).state == job.state

    job.document.delete()

    assert outcome_code(lambda: staff_actions.run_action(verb, job.pk, by=sue, reason=WHY)) == "NOT_FOUND"
    assert outcome_code(lambda: getattr(staff_actions, verb)(job, by=sue, reason=WHY)) in (
        "NOT_FOUND",
        "JOB_STATE_CHANGED",
    )
    assert not AuditEntry.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_failed_audit_entry_rolls_the_action_back(sue: User) -> None:
    job = JobFactory.create(state="deadletter")

    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE audit_entries RENAME TO away")
        try:
            with pytest.raises(ProgrammingError, match="audit_entries"):
                staff_actions.retry(job, by=sue, reason=WHY)
        finally:
            cursor.execute("ALTER TABLE away RENAME TO audit_entries")

    assert reload(job).state == "deadletter"
    assert not Event.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("_", range(3))
def test_one_of_two_concurrent_staff_retries_succeeds(sue: User, _: int) -> None:
    job = JobFactory.create(state="deadletter")
    tom = UserFactory.create(username="tom")

    codes = run_concurrently(
        *[
            lambda by=by: outcome_code(lambda: staff_actions.run_action("retry", job.pk, by=by, reason=WHY))
            for by in (sue, tom)
        ]
    )

    assert sorted(codes)[1] == "done"
    assert sorted(codes)[0] in ("JOB_ALREADY_ACTIVE", "JOB_STATE_CHANGED")
    assert AuditEntry.objects.count() == Event.objects.filter(code="REQUEUED").count() == 1


@pytest.mark.django_db
def test_a_bulk_action_counts_errors_by_code(sue: User) -> None:
    dead = JobFactory.create_batch(3, state="deadletter")
    others = [JobFactory.create(state=state) for state in ("working", "queued", "done")]
    gone = uuid.uuid4()

    done = staff_actions.run_bulk_action(
        "retry", [job.pk for job in (*dead, *others, dead[0])] + [gone], by=sue, reason=WHY
    )

    assert done == BulkResult(3, {"JOB_ALREADY_ACTIVE": 2, "JOB_DONE": 1, "NOT_FOUND": 1}, 0)
    assert sorted(AuditEntry.objects.values_list("object_id", flat=True)) == sorted(str(job.pk) for job in dead)


@pytest.mark.django_db
def test_a_bulk_action_reports_jobs_that_were_not_tried(sue: User, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = JobFactory.create_batch(3, state="deadletter")

    monkeypatch.setattr(staff_actions, "MAX_JOBS", 2)
    assert staff_actions.run_bulk_action("retry", [job.pk for job in dead], by=sue, reason=WHY) == BulkResult(2, {}, 1)
    monkeypatch.setattr(staff_actions, "MAX_SECONDS", -1)
    assert staff_actions.run_bulk_action("retry", [dead[2].pk], by=sue, reason=WHY) == BulkResult(0, {}, 1)

    assert AuditEntry.objects.count() == 2


@pytest.mark.django_db
def test_the_worker_of_a_discarded_job_loses_its_claim(sue: User) -> None:
    job = JobFactory.create()
    claim = claims.claim_next("w")
    assert claim is not None

    staff_actions.discard(job, by=sue, reason=WHY)

    with pytest.raises(claims.ClaimLost):
        claim.move("finish")
    assert Event.objects.filter(code="MOVED_BY_STAFF").count() == 1


@pytest.mark.django_db
def test_a_campaigns_cancelled_job_is_not_retried_but_a_tenants_is(sue: User) -> None:
    let_go = {"state": "deadletter", "last_error": {"code": "CANCELLED"}}
    of_campaign = JobFactory.create(campaign_id=uuid.uuid4(), **let_go)

    assert outcome_code(lambda: staff_actions.retry(of_campaign, by=sue, reason=WHY)) == "JOB_LET_GO"
    assert outcome_code(lambda: staff_actions.retry(JobFactory.create(**let_go), by=sue, reason=WHY)) == "done"


@pytest.mark.django_db
def test_requeue_writes_an_audit_entry_of_the_command_line(db: None) -> None:
    job = JobFactory.create(state="deadletter")

    call_command("requeue", str(job.document_id), reason=WHY)

    entry = AuditEntry.objects.get()
    assert (entry.action, entry.actor_id, entry.actor, entry.reason) == ("jobs.retry", None, "command line", WHY)


# From which stage.


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("stage", "outcome"),
    [
        ("queued", "done"),
        ("parsed", "done"),
        ("chunking", "done"),
        ("chunks_buffered", "chunking"),
        ("embedded", "chunking"),
    ],
)
def test_a_retry_from_a_stage_is_bounded_by_the_latest_valid_one(sue: User, stage: str, outcome: str) -> None:
    job = JobFactory.create(state="deadletter", pipeline="unproven", stage="embedding")  # holds up to chunking

    if outcome == "done":
        staff_actions.retry(job, stage=stage, by=sue, reason=WHY)
        assert (reload(job).stage, reload(job).state) == (stage, "queued")
        assert AuditEntry.objects.get().details["to"] == stage
        return
    with pytest.raises(ApiError, match=f"STAGE_NOT_REACHED.* {outcome}\\.$"):
        staff_actions.retry(job, stage=stage, by=sue, reason=WHY)
    assert reload(job).state == "deadletter"


@pytest.mark.django_db
def test_a_retry_skips_no_stage(sue: User) -> None:
    job = JobFactory.create(state="deadletter", pipeline="stages", stage="parsing")  # every proof holds

    assert outcome_code(lambda: staff_actions.retry(job, stage="parsed", by=sue, reason=WHY)) == "STAGE_NOT_REACHED"


@pytest.fixture
def dead_letter(ana: UUID, settings: Any, store: None) -> Upload:
    """Return a searchable document whose job was made a dead letter at its last stage."""
    settings.JOBS_PIPELINES = "accessa.pipelines.PIPELINES"
    upload = Person("mia").ingest(plan_pdf("dental", lines=9))
    assert upload.job.state == "done"
    UploadJob.objects.filter(pk=upload.job_id).update(  # as if its last try had failed
        **{"state": "deadletter", "last_error": {"code": "VECTORS_NOT_SOUND"}}
    )
    return upload


@pytest.mark.django_db
@pytest.mark.parametrize("stage", ["queued", "job_validated", "parsing", "parse_validated", "chunking", "chunked"])
def test_a_retry_from_any_stage_gives_the_same_chunks(sue: User, dead_letter: Upload, stage: str) -> None:
    before = _chunks(dead_letter)

    staff_actions.retry(dead_letter.job, stage=stage, by=sue, reason=WHY)
    assert dead_letter.job.stage == stage
    run_all_jobs(2)

    assert dead_letter.job.state == "done"
    assert _chunks(dead_letter) == before
    assert not Purchase.objects.exists()


def _chunks(upload: Upload) -> list[Any]:
    chunks = upload.job.document.chunks.order_by("chunk_ord")
    return list(chunks.values_list("chunk_id", "chunk_sha", "vector_sha", "embed_model"))


@pytest.mark.django_db
def test_a_retry_from_parse_validated_uses_todays_chunker(sue: User, dead_letter: Upload, settings: Any) -> None:
    settings.CHUNKER = "markdown-simple@2"

    staff_actions.retry(dead_letter.job, stage="parse_validated", by=sue, reason=WHY)
    run_all_jobs(2)

    assert (dead_letter.job.state, dead_letter.job.chunks_version) == ("done", "markdown-simple@2")


@pytest.mark.django_db
def test_a_retry_from_job_validated_ignores_the_parse_of_another_plan(sue: User, dead_letter: Upload) -> None:
    staff_actions.retry(dead_letter.job, stage="job_validated", by=sue, reason=WHY)

    job = dead_letter.job
    assert (job.parsed_path, job.parsed_sha256) == (None, None)
    run_all_jobs(2)
    reused = Event.objects.filter(job_id=job.pk, code="PARSE_REUSED")
    assert reused.count() == 1  # the same plan takes what is stored as it is
    assert dead_letter.job.parsed_sha256 == job.document.parsed_sha256


@pytest.fixture
def count_purchases(settings: Any) -> Iterator[LlamaParseServer]:
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
def test_another_parser_is_paid_once(sue: User, dead_letter: Upload, count_purchases: LlamaParseServer) -> None:
    staff_actions.retry(dead_letter.job, stage="job_validated", by=sue, reason=WHY)
    run_all_jobs(4)
    assert (dead_letter.job.state, dead_letter.job.document.parser_name) == ("done", "llamaparse")
    assert count_purchases.ledger.sold == 1

    UploadJob.objects.filter(pk=dead_letter.job_id).update(**{"state": "deadletter", "last_error": {"code": "X"}})
    for stage in ("job_validated", "parsing", "chunked"):
        staff_actions.retry(dead_letter.job, stage=stage, by=sue, reason=WHY)
        run_all_jobs(3)
        assert dead_letter.job.state == "done"
        UploadJob.objects.filter(pk=dead_letter.job_id).update(**{"state": "deadletter"})

    assert count_purchases.ledger.sold == Purchase.objects.count() == 1


@pytest.mark.django_db
def test_an_unavailable_store_rejects_the_retry(sue: User, dead_letter: Upload, monkeypatch: Any) -> None:
    def away(*_: Any) -> bool:
        raise OSError("away")

    monkeypatch.setattr("documents.storage.local.LocalSignedStorage.exists", away)

    assert outcome_code(lambda: staff_actions.retry(dead_letter.job, by=sue, reason=WHY)) == "UNAVAILABLE"
    assert staff_actions.run_bulk_action("retry", [dead_letter.job_id], by=sue, reason=WHY) == BulkResult(
        0, {"UNAVAILABLE": 1}, 0
    )
    assert (dead_letter.job.state, services.newest_job(UploadJob.objects.all())) == ("deadletter", dead_letter.job)


# Through the API.


@pytest.mark.django_db
def test_a_staff_retry_through_the_api_writes_an_audit_entry(dead_letter: Upload, sam: Person) -> None:
    path = f"/jobs/{dead_letter.document_id}/retry"

    assert sam.post(path, {"reason": WHY}).status_code == 202

    entry = AuditEntry.objects.get()
    assert (entry.action, entry.actor_id, entry.reason) == ("jobs.retry", sam.id, WHY)
    assert sam.post(path, {"reason": ["no", "text"]}).status_code == 400
    assert sam.post(path).status_code == 409
    assert AuditEntry.objects.count() == 1


@pytest.mark.django_db
def test_an_api_retry_without_a_reason_has_a_default_one(dead_letter: Upload, sam: Person) -> None:
    assert sam.client.post(f"/jobs/{dead_letter.document_id}/retry").status_code == 202

    assert AuditEntry.objects.get().reason == "via the API"


@pytest.mark.django_db
def test_staff_without_the_permission_act_as_tenants(dead_letter: Upload) -> None:
    novice = Person("novice", staff=True)

    assert novice.post(f"/jobs/{dead_letter.document_id}/retry").status_code == 404
    assert dead_letter.job.state == "deadletter"


@pytest.mark.django_db
def test_a_tenants_own_retry_writes_no_audit_entry(ana: UUID, settings: Any, store: None) -> None:
    mia = Person("mia")
    document = DocumentFactory.create(user_id=mia.id)
    JobFactory.create(document=document, user_id=mia.id, state="deadletter")

    assert mia.post(f"/jobs/{document.pk}/retry").status_code == 202
    assert not AuditEntry.objects.exists()
