"""Retention of failed versions; live versions are never deleted."""

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as configured
from django.db import connection

from accessa.integrity.violations import find_violations
from documents.models import Document
from jobs import worker
from jobs.models import UploadJob
from statutes import failed_versions
from statutes.consumer.message_jobs import settle_message
from statutes.intake import IntakeStatus, accept_message
from statutes.models import Law, LawVersion
from statutes.sqs.message_schema import Message
from statutes.tests import sample_laws
from statutes.tests.sample_laws import LOWER, TAXED, are_searchable, deliver, law_xml, process, put_file
from statutes.tests.statement_hooks import after_statement
from testing.fakes.s3 import S3Server
from testing.personas import run_all_jobs

pytestmark = pytest.mark.django_db


def failed_version(laws: S3Server, version: str = "2024-01", **fields: Any) -> Message:
    """Let a law fail for good, and its message be settled."""
    sent = deliver(laws, b"no law", version, **fields)
    run_all_jobs()
    settle_message(sent, sample_laws.job_of(sent))
    return sent


def age_versions(days: int = 31) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE law_versions SET updated_at = updated_at - make_interval(days => %s)", [days])


def test_an_expired_failure_is_erased_and_its_row_stays(laws: S3Server) -> None:
    sent = failed_version(laws)
    document = Document.objects.get()
    age_versions(29)
    failed_versions.delete_expired_failures()
    assert Document.objects.exists()
    age_versions(2)

    failed_versions.delete_expired_failures()

    version = sample_laws.version_of(sent)
    assert not Document.objects.exists()
    assert not UploadJob.objects.exists()
    assert not Path(configured.STORAGE_ROOT, document.raw_path.removeprefix("storage://")).exists()
    assert (version.status, version.error_code, version.job_id) == ("failed", "UNKNOWN_FORMAT", None)
    assert list(find_violations(deep=True)) == []


def test_a_message_restores_an_erased_version(laws: S3Server) -> None:
    sent = failed_version(laws)
    age_versions()
    failed_versions.delete_expired_failures()

    put_file(laws, law_xml(TAXED))
    again = accept_message(sent)
    run_all_jobs()

    assert again.status == IntakeStatus.ACCEPTED
    assert (Law.objects.get().status, are_searchable(TAXED)) == ("embedded", [True])


def test_a_live_version_with_a_failed_reprocessing_is_kept(laws: S3Server) -> None:
    process(laws, law_xml(TAXED))
    failed_version(laws, force_reprocess=True)
    age_versions()

    failed_versions.delete_expired_failures()

    assert Law.objects.get().document_id == Document.objects.get().pk


def test_retried_versions_and_unlimited_retention_are_kept(laws: S3Server, settings: Any) -> None:
    sent = failed_version(laws)
    age_versions()
    settings.STATUTES_FAILED_DAYS = 0
    failed_versions.delete_expired_failures()
    assert Document.objects.exists()
    settings.STATUTES_FAILED_DAYS = 30
    accept_message(sent)
    LawVersion.objects.update(status="failed")
    age_versions()

    failed_versions.delete_expired_failures()

    assert UploadJob.objects.get().state == "queued"


def test_a_version_with_a_new_message_is_kept(laws: S3Server) -> None:
    sent = failed_version(laws)
    age_versions()
    erased: list[bool] = []

    # Noted, and not yet begun.
    with after_statement(
        "RELEASE SAVEPOINT", lambda: erased.append(failed_versions._erase_if_expired(sample_laws.version_of(sent).pk))
    ):
        again = accept_message(sent)

    assert erased == [False]
    assert again.job_id == UploadJob.objects.get().pk
    assert (UploadJob.objects.get().state, sample_laws.version_of(sent).status) == ("queued", "processing")


def test_a_replaced_version_keeps_no_canonical_text(laws: S3Server) -> None:
    process(laws, law_xml(TAXED))
    process(laws, law_xml(LOWER), "2024-02")

    old, new = LawVersion.objects.order_by("version")

    assert (old.canonical, old.job_id) == (None, None)
    assert new.canonical is not None


def test_a_file_is_read_by_content_and_not_by_suffix(laws: S3Server) -> None:
    sent = deliver(laws, law_xml(TAXED), raw_key="raw/ley.pdf")

    worker.drain()

    assert (sample_laws.version_of(sent).format, Law.objects.get().status) == ("xml", "embedded")
