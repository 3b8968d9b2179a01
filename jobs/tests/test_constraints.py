"""Constraints of the tables: each is violated by a raw UPDATE that violates only that one."""

import pytest
from django.db import connection
from django.db.utils import IntegrityError

from jobs.models import UploadJob
from testing.factories import DocumentFactory, JobFactory

HOLD = "claim_token = gen_random_uuid(), claimed_at = now(), lease_until = now(), slot = 0"
# fmt: off
REFUSED = [
    # constraint                 of a job that is   may not
    ("job_stage_known",          "queued",          "stage = 'ready'"),
    ("job_state_known",          "queued",          "state = 'running'"),
    ("job_held_while_working",   "queued",          "state = 'working'"),
    ("job_held_while_working",   "queued",          "claim_token = gen_random_uuid()"),
    ("job_held_while_working",   "queued",          "lease_until = now()"),
    ("job_held_while_working",   "queued",          "slot = 0"),
    ("job_held_while_working",   "working",         "state = 'queued'"),
    ("job_held_while_working",   "working",         "claim_token = NULL"),
    ("job_held_while_working",   "working",         "claimed_at = NULL"),
    ("job_held_while_working",   "working",         "lease_until = NULL"),
    ("job_held_while_working",   "working",         "slot = NULL"),
    ("job_parked_only_idle",     "working",         "run_after = now()"),
    ("job_parked_only_idle",     "done",            "run_after = now()"),
    ("job_parked_only_idle",     "deadletter",      "run_after = now()"),
    ("job_retryable_has_a_time", "queued",          "state = 'retryable'"),
    ("job_retryable_has_a_time", "retryable",       "run_after = NULL"),
    ("job_finished_when_ended",  "queued",          "state = 'deadletter'"),
    ("job_finished_when_ended",  "queued",          "state = 'done'"),
    ("job_finished_when_ended",  "queued",          "finished_at = now()"),
    ("job_finished_when_ended",  "done",            "finished_at = NULL"),
    ("job_finished_when_ended",  "deadletter",      "finished_at = NULL"),
    ("job_done_is_embedded",     "done",            "stage = 'embedding'"),
    ("job_counts_not_negative",  "queued",          "attempts = -1"),
    ("job_counts_not_negative",  "queued",          "retry_count = -1"),
    ("job_slot_not_negative",    "working",         "slot = -1"),
    ("job_in_batch_while_working", "queued",        "in_batch = true"),
    ("job_of_a_campaign_has_low_priority", "queued", "campaign_id = gen_random_uuid()"),
]
# fmt: on


def raw_update(job: UploadJob, sets: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE upload_jobs SET {sets} WHERE job_id = %s", [job.pk])


@pytest.mark.django_db
@pytest.mark.parametrize(("constraint", "state", "sets"), REFUSED)
def test_a_contradictory_row_is_rejected(constraint: str, state: str, sets: str) -> None:
    job = JobFactory.create(state=state)

    with pytest.raises(IntegrityError, match=f'"{constraint}"'):
        raw_update(job, sets)


@pytest.mark.django_db
def test_a_third_job_of_a_user_finds_no_slot() -> None:
    held = JobFactory.create(state="working")
    other = JobFactory.create(state="queued", user_id=held.user_id)

    with pytest.raises(IntegrityError, match='"uq_job_user_slot"'):
        raw_update(other, f"state = 'working', {HOLD}")


@pytest.mark.django_db
@pytest.mark.parametrize("state", ["queued", "working", "retryable"])
@pytest.mark.parametrize("stage", ["embedded", "parsing"])
def test_a_document_has_one_active_job_at_any_stage(state: str, stage: str) -> None:
    document = DocumentFactory.create()
    JobFactory.create(document=document, user_id=document.user_id, state=state)

    with pytest.raises(IntegrityError, match='"uq_job_doc'):
        JobFactory.create(document=document, user_id=document.user_id, stage=stage)


@pytest.mark.django_db
@pytest.mark.parametrize("state", ["done", "deadletter"])
def test_a_job_that_has_ended_makes_room_for_another(state: str) -> None:
    document = DocumentFactory.create()
    JobFactory.create(document=document, user_id=document.user_id, state=state)

    assert JobFactory.create(document=document, user_id=document.user_id).state == "queued"


@pytest.mark.django_db
def test_every_constraint_of_the_table_has_a_case() -> None:
    named = {constraint.name for constraint in UploadJob._meta.constraints}

    assert named == {name for name, _, _ in REFUSED} | {
        "uq_job_user_slot",
        "uq_job_document_active",
        "uq_job_doc_stage_active",
    }
