"""Staff actions: reprocess a version, withdraw a law."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings as configured
from django.db import connection
from django.utils import timezone

from accounts.audit.models import AuditEntry
from accounts.audit.tests.personas import audit_entries
from accounts.errors import ApiError
from accounts.system_tenant import SYSTEM_TENANT_ID
from documents.models import Document
from embeddings.models import DocumentChunk
from jobs import worker
from jobs.claims import ClaimLost
from jobs.models import UploadJob
from statutes import document_ids, failed_versions, staff_actions, withdrawal
from statutes.intake import accept_message
from statutes.models import Law, LawVersion
from statutes.tests import sample_laws
from statutes.tests.sample_laws import (
    KEY,
    LOWER,
    RATE,
    TAXED,
    are_searchable,
    bucket_objects,
    deliver,
    law_xml,
    process,
    put_file,
    statute_message,
)
from statutes.tests.statement_hooks import after_statement
from testing.fakes.s3 import S3Server
from testing.personas import claim_at_stage, run_all_jobs

pytestmark = pytest.mark.django_db
OTHERS = ("chunks/LIVA.2/a.json", "embeddings/LIVA_vectors.jsonl2_vectors.jsonl", "failed/LIVA2/1/error.json", KEY)


def refusal_code(act: Any, *args: str) -> str:
    with pytest.raises(ApiError) as caught:
        act(*args, by=None, reason="T-1")
    return caught.value.code


def test_a_version_is_reprocessed_from_its_current_raw_file(laws: S3Server) -> None:
    process(laws, law_xml(TAXED, RATE))
    put_file(laws, law_xml(TAXED, LOWER))

    job = staff_actions.reprocess("LIVA", "2024-01", by=None, reason="another file")

    assert are_searchable(RATE, LOWER) == [True, False]
    run_all_jobs()
    assert are_searchable(RATE, LOWER) == [False, True]
    first, second = document_ids.document_ids("LIVA", "2024-01")
    assert (LawVersion.objects.get(pk=second).job_id, Law.objects.get().document_id) == (job.pk, second)
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.object_id, entry.tenant_id) == ("laws.reprocess", str(first), SYSTEM_TENANT_ID)
    assert entry.details == {"law_id": "LIVA", "version": "2024-01", "job_id": str(job.pk)}


def test_a_failed_version_is_retried_and_its_error_cleared(laws: S3Server) -> None:
    dead = process(laws, b"no law")
    LawVersion.objects.update(status="failed", error_code="UNKNOWN_FORMAT")
    put_file(laws, law_xml(TAXED))

    job = staff_actions.reprocess("LIVA", "2024-01", by=None, reason="the file is mended")

    assert (job.pk, LawVersion.objects.get().error_code) == (dead.pk, None)
    run_all_jobs()
    assert LawVersion.objects.get().status == "embedded"


def test_a_rejected_reprocessing_is_not_audited(laws: S3Server) -> None:
    assert refusal_code(staff_actions.reprocess, "LIVA", "2024-01") == "NOT_FOUND"
    deliver(laws, law_xml(TAXED))
    assert refusal_code(staff_actions.reprocess, "LIVA", "2024-01") == "JOB_ALREADY_ACTIVE"
    run_all_jobs()
    process(laws, law_xml(LOWER), "2024-02")
    assert refusal_code(staff_actions.reprocess, "LIVA", "2024-01") == "LAW_OUTDATED"
    LawVersion.objects.update(raw_key="")
    assert refusal_code(staff_actions.reprocess, "LIVA", "2024-02") == "LAW_FILE_UNKNOWN"

    assert not AuditEntry.objects.exists()


def test_a_withdrawn_statute_leaves_only_its_raw_file(laws: S3Server) -> None:
    process(laws, law_xml(TAXED, RATE))
    process(laws, b"no law", "2024-02")
    for key in OTHERS[:3]:
        put_file(laws, b"another law's", key=key)
    put_file(laws, b"{}", key="failed/LIVA/2024-02/error.json")

    withdrawal.withdraw("LIVA", by=None, reason="repealed")

    assert are_searchable(TAXED, RATE) == [False, False]
    for model in (Law, LawVersion, Document, DocumentChunk, UploadJob):
        assert not model._default_manager.exists(), model
    assert sorted(bucket_objects(laws)) == sorted(OTHERS)
    assert not list(Path(configured.STORAGE_ROOT, "raw", str(SYSTEM_TENANT_ID)).glob("*"))
    assert [(action, object_id) for action, _, object_id, _ in audit_entries()] == [("laws.withdraw", "LIVA")]


def test_a_message_restores_a_withdrawn_statute(laws: S3Server) -> None:
    process(laws, law_xml(TAXED))
    withdrawal.withdraw("LIVA", by=None, reason="by mistake")

    accept_message(statute_message())
    run_all_jobs()

    assert are_searchable(TAXED) == [True]
    assert Law.objects.get().status == "embedded"


def test_a_message_during_a_withdrawal_starts_the_statute_again(laws: S3Server) -> None:
    process(laws, b"no law")
    LawVersion.objects.update(status="failed")

    with after_statement("RELEASE SAVEPOINT", lambda: withdrawal.withdraw("LIVA", by=None, reason="repealed")):
        again = accept_message(statute_message())

    assert (again.status, again.job_id) == ("accepted", UploadJob.objects.get().pk)
    assert (LawVersion.objects.get().job_id, LawVersion.objects.get().status) == (again.job_id, "processing")


def test_a_row_deleted_during_intake_is_inserted_again(laws: S3Server) -> None:
    Law.objects.create(law_id="LIVA", version="2023-01", status="failed")

    with after_statement('INSERT INTO "laws"', Law.objects.all().delete):
        accept_message(statute_message())

    assert Law.objects.get().version == "2024-01"


def test_a_statute_with_a_new_version_is_not_deleted(laws: S3Server) -> None:
    Law.objects.create(law_id="LIVA", version="2023-01", status="failed")

    with after_statement('DELETE FROM "law_versions"', lambda: accept_message(statute_message())):
        withdrawal._delete_rows("LIVA")

    assert Law.objects.get().version == "2024-01"


@pytest.mark.slow
def test_a_withdrawal_during_an_outage_can_be_repeated(laws: S3Server) -> None:
    process(laws, law_xml(TAXED))
    before = bucket_objects(laws)
    laws.inject_fault("DELETE *", "status-503", times=100)

    assert refusal_code(withdrawal.withdraw, "LIVA") == "UNAVAILABLE"

    assert are_searchable(TAXED) == [False]
    assert (Law.objects.get().document_id, LawVersion.objects.get().error_code) == (None, "LAW_WITHDRAWN")
    laws.clear_faults()
    assert bucket_objects(laws) == before
    withdrawal.withdraw("LIVA", by=None, reason="once more")
    assert (list(bucket_objects(laws)), Law.objects.count()) == ([KEY], 0)


def test_a_job_of_a_withdrawn_statute_writes_nothing(laws: S3Server) -> None:
    deliver(laws, law_xml(TAXED))
    claim = claim_at_stage("embedded")

    withdrawal.withdraw("LIVA", by=None, reason="repealed")

    with pytest.raises(ClaimLost):
        worker.run_stage(claim)
    assert list(bucket_objects(laws)) == [KEY]
    assert not Law.objects.exists()


def test_a_statute_being_published_cannot_be_withdrawn(laws: S3Server) -> None:
    process(laws, law_xml(TAXED))

    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": psycopg.Cursor}) as other:
        other.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [document_ids.publish_lock_key("LIVA")])
        assert refusal_code(withdrawal.withdraw, "LIVA") == "LAW_BUSY"

    assert are_searchable(TAXED) == [True]
    assert refusal_code(withdrawal.withdraw, "NONE") == "NOT_FOUND"


def test_a_cancelled_job_marks_its_version_failed(laws: S3Server) -> None:
    deliver(laws, law_xml(TAXED))
    claim = claim_at_stage("chunked")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE upload_jobs SET state = 'deadletter', slot = NULL, claim_token = NULL, claimed_by = NULL,"
            """ lease_until = NULL, finished_at = now() - interval '2 minutes', last_error = '{"code": "CANCELLED"}'"""
            " WHERE job_id = %s",
            [claim.job.pk],
        )

    failed_versions.record_failures()
    assert LawVersion.objects.get().status == "normalized"  # a message may be about to try it again
    LawVersion.objects.update(updated_at=timezone.now() - timedelta(minutes=2))
    failed_versions.record_failures()

    row = LawVersion.objects.get()
    assert (row.status, row.error_code, Law.objects.get().status) == ("failed", "CANCELLED", "failed")
    assert "statutes.failed_versions.record_failures" in configured.JOBS_PERIODIC_TASKS
    assert sample_laws.job_of(statute_message()).state == "deadletter"
