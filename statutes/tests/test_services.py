"""What staff may ask of a law: to be done again, and to be taken out with all that there is of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings as configured
from django.db import connection
from django.utils import timezone

from accounts.audit.models import AuditEntry
from accounts.audit.tests.personas import written
from accounts.errors import ApiError
from accounts.system_tenant import SYSTEM_TENANT_ID
from documents.models import Document
from embeddings.models import DocumentChunk
from jobs import worker
from jobs.claims import ClaimLost
from jobs.models import UploadJob
from statutes import periodic, services, versions
from statutes.intake import accept_message
from statutes.models import Law, LawVersion
from statutes.tests import sample_laws
from statutes.tests.race_helpers import after
from statutes.tests.sample_laws import KEY, LOWER, RATE, TAXED, arrived, articles, done, message, objects, put, xml
from testing.fakes.s3 import S3Server
from testing.personas import claim_at_stage, run_all_jobs

pytestmark = pytest.mark.django_db
OTHERS = ("chunks/LIVA.2/a.json", "embeddings/LIVA_vectors.jsonl2_vectors.jsonl", "failed/LIVA2/1/error.json", KEY)


def refused(act: Any, *args: str) -> str:
    with pytest.raises(ApiError) as caught:
        act(*args, by=None, reason="T-1")
    return caught.value.code


def test_a_version_is_done_again_from_its_raw_file_as_it_is_now(laws: S3Server) -> None:
    done(laws, xml(TAXED, RATE))
    put(laws, xml(TAXED, LOWER))

    job = services.reprocess("LIVA", "2024-01", by=None, reason="another file")

    assert articles(RATE, LOWER) == [True, False]
    run_all_jobs()
    assert articles(RATE, LOWER) == [False, True]
    first, second = versions.document_ids("LIVA", "2024-01")
    assert (LawVersion.objects.get(pk=second).job_id, Law.objects.get().document_id) == (job.pk, second)
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.object_id, entry.tenant_id) == ("laws.reprocess", str(first), SYSTEM_TENANT_ID)
    assert entry.details == {"law_id": "LIVA", "version": "2024-01", "job_id": str(job.pk)}


def test_a_dead_version_is_tried_again_and_what_was_wrong_is_forgotten(laws: S3Server) -> None:
    dead = done(laws, b"no law")
    LawVersion.objects.update(status="failed", error_code="UNKNOWN_FORMAT")
    put(laws, xml(TAXED))

    job = services.reprocess("LIVA", "2024-01", by=None, reason="the file is mended")

    assert (job.pk, LawVersion.objects.get().error_code) == (dead.pk, None)
    run_all_jobs()
    assert LawVersion.objects.get().status == "embedded"


def test_what_cannot_be_done_again_is_refused_and_not_written_down(laws: S3Server) -> None:
    assert refused(services.reprocess, "LIVA", "2024-01") == "NOT_FOUND"
    arrived(laws, xml(TAXED))
    assert refused(services.reprocess, "LIVA", "2024-01") == "JOB_ALREADY_ACTIVE"
    run_all_jobs()
    done(laws, xml(LOWER), "2024-02")
    assert refused(services.reprocess, "LIVA", "2024-01") == "LAW_OUTDATED"
    LawVersion.objects.update(raw_key="")
    assert refused(services.reprocess, "LIVA", "2024-02") == "LAW_FILE_UNKNOWN"

    assert not AuditEntry.objects.exists()


def test_a_law_that_is_taken_out_leaves_nothing_but_its_raw_file(laws: S3Server) -> None:
    done(laws, xml(TAXED, RATE))
    done(laws, b"no law", "2024-02")
    for key in OTHERS[:3]:
        put(laws, b"another law's", key=key)
    put(laws, b"{}", key="failed/LIVA/2024-02/error.json")

    services.withdraw("LIVA", by=None, reason="repealed")

    assert articles(TAXED, RATE) == [False, False]
    for model in (Law, LawVersion, Document, DocumentChunk, UploadJob):
        assert not model._default_manager.exists(), model
    assert sorted(objects(laws)) == sorted(OTHERS)
    assert not list(Path(configured.STORAGE_ROOT, "raw", str(SYSTEM_TENANT_ID)).glob("*"))
    assert [(action, object_id) for action, _, object_id, _ in written()] == [("laws.withdraw", "LIVA")]


def test_a_law_that_was_taken_out_comes_back_by_its_message(laws: S3Server) -> None:
    done(laws, xml(TAXED))
    services.withdraw("LIVA", by=None, reason="by mistake")

    accept_message(message())
    run_all_jobs()

    assert articles(TAXED) == [True]
    assert Law.objects.get().status == "embedded"


def test_a_message_that_comes_while_its_law_is_taken_out_begins_it_anew(laws: S3Server) -> None:
    done(laws, b"no law")
    LawVersion.objects.update(status="failed")

    with after("RELEASE SAVEPOINT", lambda: services.withdraw("LIVA", by=None, reason="repealed")):
        again = accept_message(message())

    assert (again.status, again.job_id) == ("accepted", UploadJob.objects.get().pk)
    assert (LawVersion.objects.get().job_id, LawVersion.objects.get().status) == (again.job_id, "processing")


def test_a_law_that_is_forgotten_while_a_message_notes_it_is_noted_anew(laws: S3Server) -> None:
    Law.objects.create(law_id="LIVA", version="2023-01", status="failed")

    with after('INSERT INTO "laws"', Law.objects.all().delete):
        accept_message(message())

    assert Law.objects.get().version == "2024-01"


def test_a_law_is_not_forgotten_of_which_a_message_has_just_brought_a_version(laws: S3Server) -> None:
    Law.objects.create(law_id="LIVA", version="2023-01", status="failed")

    with after('DELETE FROM "law_versions"', lambda: accept_message(message())):
        services._delete_rows("LIVA")

    assert Law.objects.get().version == "2024-01"


def test_a_bucket_that_is_away_leaves_a_law_that_is_not_found_and_can_be_taken_out_again(laws: S3Server) -> None:
    done(laws, xml(TAXED))
    before = objects(laws)
    laws.inject_fault("DELETE *", "status-503", times=100)

    assert refused(services.withdraw, "LIVA") == "UNAVAILABLE"

    assert articles(TAXED) == [False]
    assert (Law.objects.get().document_id, LawVersion.objects.get().error_code) == (None, "LAW_WITHDRAWN")
    laws.clear_faults()
    assert objects(laws) == before
    services.withdraw("LIVA", by=None, reason="once more")
    assert (list(objects(laws)), Law.objects.count()) == ([KEY], 0)


def test_work_on_a_law_that_is_taken_out_writes_nothing(laws: S3Server) -> None:
    arrived(laws, xml(TAXED))
    claim = claim_at_stage("embedded")

    services.withdraw("LIVA", by=None, reason="repealed")

    with pytest.raises(ClaimLost):
        worker.run_stage(claim)
    assert list(objects(laws)) == [KEY]
    assert not Law.objects.exists()


def test_a_law_that_is_just_being_published_is_left_alone(laws: S3Server) -> None:
    done(laws, xml(TAXED))

    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": psycopg.Cursor}) as other:
        other.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [versions.publish_lock_key("LIVA")])
        assert refused(services.withdraw, "LIVA") == "LAW_BUSY"

    assert articles(TAXED) == [True]
    assert refused(services.withdraw, "NONE") == "NOT_FOUND"


def test_a_version_whose_job_was_cancelled_has_failed_where_no_message_says_so(laws: S3Server) -> None:
    arrived(laws, xml(TAXED))
    claim = claim_at_stage("chunked")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE upload_jobs SET state = 'deadletter', slot = NULL, claim_token = NULL, claimed_by = NULL,"
            """ lease_until = NULL, finished_at = now() - interval '2 minutes', last_error = '{"code": "CANCELLED"}'"""
            " WHERE job_id = %s",
            [claim.job.pk],
        )

    periodic.record_failures()
    assert LawVersion.objects.get().status == "normalized"  # a message may be about to try it again
    LawVersion.objects.update(updated_at=timezone.now() - timedelta(minutes=2))
    periodic.record_failures()

    found = LawVersion.objects.get()
    assert (found.status, found.error_code, Law.objects.get().status) == ("failed", "CANCELLED", "failed")
    assert "statutes.periodic.record_failures" in configured.JOBS_PERIODIC_TASKS
    assert sample_laws.job_of(message()).state == "deadletter"
