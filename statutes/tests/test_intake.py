"""Intake of messages: order, priority, concurrency."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from django.conf import settings
from django.db import connection

from accounts.system_tenant import SYSTEM_TENANT_ID
from jobs import worker
from jobs.models import UploadJob
from statutes import version_order
from statutes.intake import IntakeStatus, accept_message
from statutes.models import Law, LawVersion
from statutes.tests import sample_laws
from statutes.tests.sample_laws import RATE, TAXED, deliver, law_xml, statute_message
from testing.fakes.s3 import S3Server
from testing.personas import make_parked_jobs_due

EARLY, LATE = datetime(2025, 1, 1, tzinfo=UTC), datetime(2025, 6, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("2024-01", "2024-02"),
        ("2024-9", "2024-10"),
        ("v2", "v10"),
        ("1.0", "1.0.1"),
        ("2024-draft", "2024-1"),
        ("a", "B"),
        ("9" * 5000, "1" + "0" * 5000),
        ("2024-12-31T23:59:59.000000Z", "2025-01-01T00:00:00.000000Z"),
    ],
)
def test_numbers_in_versions_are_compared_as_numbers(older: str, newer: str) -> None:
    assert version_order.is_older(older, LATE, than=newer, than_ingested=EARLY)
    assert not version_order.is_older(newer, EARLY, than=older, than_ingested=LATE)


def test_equal_versions_are_ordered_by_ingestion_time() -> None:
    assert version_order.is_older("2024-1", EARLY, than="2024-01", than_ingested=LATE)
    assert not version_order.is_older("2024-1", LATE, than="2024-01", than_ingested=EARLY)
    assert not version_order.is_older("2024-1", EARLY, than="2024-1", than_ingested=LATE)


@pytest.mark.django_db
def test_law_ids_are_case_sensitive(laws: S3Server) -> None:
    accept_message(statute_message(law_id="liva"))
    accept_message(statute_message(law_id="LIVA"))

    assert set(Law.objects.values_list("pk", flat=True)) == {"liva", "LIVA"}
    assert UploadJob.objects.count() == 2


def drain_all() -> None:
    """Work until nothing is due: a turn ends after two seconds, whatever is left."""
    while worker.drain():
        pass


@pytest.mark.slow
@pytest.mark.django_db
def test_the_more_urgent_statute_starts_first(laws: S3Server) -> None:
    sent = [
        deliver(laws, law_xml(TAXED), law_id=priority, raw_key=f"raw/{priority}.xml", priority=priority)
        for priority in ("low", "normal", "high")
    ]
    drain_all()
    make_parked_jobs_due()
    drain_all()
    make_parked_jobs_due()
    drain_all()

    ended = UploadJob.objects.filter(state="done").order_by("finished_at").values_list("document_id", flat=True)
    assert list(ended) == [sample_laws.job_of(each).document_id for each in reversed(sent)]
    assert sample_laws.job_of(sent[0]).attempts == 1


@pytest.mark.django_db
def test_a_job_older_than_15_minutes_no_longer_yields(laws: S3Server) -> None:
    low = deliver(laws, law_xml(TAXED), law_id="low", raw_key="raw/low.xml", priority="low")
    deliver(laws, law_xml(RATE), law_id="high", raw_key="raw/high.xml", priority="high")
    UploadJob.objects.filter(pk=sample_laws.job_of(low).pk).update(created_at=EARLY)

    drain_all()

    assert not UploadJob.objects.exclude(state="done").exists()


@pytest.mark.django_db(transaction=True)
def test_two_consumers_with_one_message_start_one_job(laws: S3Server) -> None:
    def take(_: int) -> IntakeStatus:
        try:
            return accept_message(statute_message()).status
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        kinds = sorted(pool.map(take, range(4)))

    assert kinds == [IntakeStatus.ACCEPTED, *[IntakeStatus.IN_PROGRESS] * 3]
    assert (UploadJob.objects.count(), LawVersion.objects.count(), Law.objects.count()) == (1, 1, 1)


def test_the_setting_names_the_system_tenant() -> None:
    environment = os.environ | {"STATUTES_EMBEDDER": "titan"}
    command = [
        sys.executable,
        "-c",
        "from accessa import settings_statutes; print(*settings_statutes.EMBEDDERS_OF.items())",
    ]
    process = subprocess.run(
        command, env=environment, cwd=settings.BASE_DIR, capture_output=True, text=True, check=True
    )

    assert process.stdout.strip() == str((SYSTEM_TENANT_ID, "titan"))
