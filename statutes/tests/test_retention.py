"""What failed is kept for a while, and then taken out; what is found never is. A file is what its bytes are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as configured
from django.db import connection

from accessa.integrity import find_violations
from documents.models import Document
from jobs import worker
from jobs.models import UploadJob
from statutes import periodic
from statutes.intake import IntakeStatus, accept_message
from statutes.models import Law, LawVersion
from statutes.settlement import settle_message
from statutes.sqs.messages import Message
from statutes.tests import sample_laws
from statutes.tests.race_helpers import after
from statutes.tests.sample_laws import LOWER, TAXED, arrived, articles, done, put, xml
from testing.fakes.s3 import S3Server
from testing.personas import run_all_jobs

pytestmark = pytest.mark.django_db


def failed(laws: S3Server, version: str = "2024-01", **fields: Any) -> Message:
    """Let a law fail for good, and its message be settled."""
    sent = arrived(laws, b"no law", version, **fields)
    run_all_jobs()
    settle_message(sent, sample_laws.job_of(sent))
    return sent


def days_pass(days: int = 31) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE law_versions SET updated_at = updated_at - make_interval(days => %s)", [days])


def test_a_version_that_failed_long_ago_is_taken_out_and_its_row_stays(laws: S3Server) -> None:
    sent = failed(laws)
    document = Document.objects.get()
    days_pass(29)
    periodic.delete_expired_failures()
    assert Document.objects.exists()
    days_pass(2)

    periodic.delete_expired_failures()

    version = sample_laws.version_of(sent)
    assert not Document.objects.exists()
    assert not UploadJob.objects.exists()
    assert not Path(configured.STORAGE_ROOT, document.raw_path.removeprefix("storage://")).exists()
    assert (version.status, version.error_code, version.job_id) == ("failed", "UNKNOWN_FORMAT", None)
    assert list(find_violations(deep=True)) == []


def test_a_message_brings_a_version_back_that_was_taken_out(laws: S3Server) -> None:
    sent = failed(laws)
    days_pass()
    periodic.delete_expired_failures()

    put(laws, xml(TAXED))
    again = accept_message(sent)
    run_all_jobs()

    assert again.status == IntakeStatus.ACCEPTED
    assert (Law.objects.get().status, articles(TAXED)) == ("embedded", [True])


def test_what_is_found_is_kept_though_doing_it_anew_has_failed(laws: S3Server) -> None:
    done(laws, xml(TAXED))
    failed(laws, force_reprocess=True)
    days_pass()

    periodic.delete_expired_failures()

    assert Law.objects.get().document_id == Document.objects.get().pk


def test_what_is_tried_again_is_kept_and_so_is_everything_without_an_end_to_it(laws: S3Server, settings: Any) -> None:
    sent = failed(laws)
    days_pass()
    settings.STATUTES_FAILED_DAYS = 0
    periodic.delete_expired_failures()
    assert Document.objects.exists()
    settings.STATUTES_FAILED_DAYS = 30
    accept_message(sent)
    LawVersion.objects.update(status="failed")
    days_pass()

    periodic.delete_expired_failures()

    assert UploadJob.objects.get().state == "queued"


def test_what_a_message_has_just_come_for_is_kept(laws: S3Server) -> None:
    sent = failed(laws)
    days_pass()
    taken: list[bool] = []

    # Noted, and not yet begun.
    with after("RELEASE SAVEPOINT", lambda: taken.append(periodic._erase_if_expired(sample_laws.version_of(sent).pk))):
        again = accept_message(sent)

    assert taken == [False]
    assert again.job_id == UploadJob.objects.get().pk
    assert (UploadJob.objects.get().state, sample_laws.version_of(sent).status) == ("queued", "processing")


def test_what_a_version_that_was_replaced_said_is_not_kept(laws: S3Server) -> None:
    done(laws, xml(TAXED))
    done(laws, xml(LOWER), "2024-02")

    old, new = LawVersion.objects.order_by("version")

    assert (old.canonical, old.job_id) == (None, None)
    assert new.canonical is not None


def test_a_file_whose_name_says_another_format_is_read_as_what_it_is(laws: S3Server) -> None:
    sent = arrived(laws, xml(TAXED), raw_key="raw/ley.pdf")

    worker.drain()

    assert (sample_laws.version_of(sent).format, Law.objects.get().status) == ("xml", "embedded")
