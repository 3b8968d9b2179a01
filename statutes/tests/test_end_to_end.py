"""A law from its message to search, and its later versions."""

import json
from pathlib import Path

import psycopg
import pytest
from django.conf import settings
from django.db import connection, transaction

from accessa.integrity.violations import find_violations
from accounts.system_tenant import SYSTEM_TENANT_ID
from documents.models import Document, OcrPage
from jobs import worker
from jobs.choices import Stage
from jobs.models import UploadJob
from jobs.outcomes import Moved, Retryable, Wait
from jobs.pipeline import get_pipeline
from statutes.intake import IntakeStatus, accept_message
from statutes.models import Law, LawVersion
from statutes.stages import SCANS
from statutes.tests import sample_laws
from statutes.tests.sample_laws import (
    LOWER,
    RATE,
    TAXED,
    are_searchable,
    bucket_objects,
    deliver,
    law_xml,
    process,
    search_texts,
    statute_message,
)
from testing.fakes.s3 import S3Server
from testing.pdfs import text_pdf
from testing.personas import claim_at_stage, run_all_jobs, run_stages

pytestmark = pytest.mark.django_db


def test_a_message_becomes_searchable_passages(laws: S3Server) -> None:
    job = process(laws, law_xml(TAXED, RATE))

    law, version = Law.objects.get(), sample_laws.version_of(statute_message())
    manifest = json.loads(bucket_objects(laws)["normalized/LIVA/manifest.json"])
    assert (job.state, job.last_error, job.user_id) == ("done", None, SYSTEM_TENANT_ID)
    assert are_searchable(TAXED, RATE) == [True, True]
    assert (law.status, law.version, law.chunk_count, law.language) == ("embedded", "2024-01", 2, "es")
    assert (law.title, law.document_id) == ("Ley del Impuesto al Valor Agregado", job.document_id)
    assert (version.status, version.format, version.job_id) == ("embedded", "xml", job.pk)
    assert manifest["document_id"] == str(job.document_id)
    assert Document.objects.get().filename == law.title


def test_a_repeated_message_gives_one_result(laws: S3Server) -> None:
    sent = deliver(laws, law_xml(TAXED))
    again = accept_message(sent)
    run_all_jobs()
    before = bucket_objects(laws)
    once_more = accept_message(sent)
    run_all_jobs()

    assert (again.status, once_more.status) == (IntakeStatus.IN_PROGRESS, IntakeStatus.DUPLICATE)
    assert again.job_id == once_more.job_id == UploadJob.objects.get().pk
    assert bucket_objects(laws) == before
    assert len(search_texts()) == len(set(search_texts()))


def test_a_new_version_replaces_the_old_one_atomically(laws: S3Server) -> None:
    old = process(laws, law_xml(TAXED, RATE))
    deliver(laws, law_xml(TAXED, LOWER), "2024-02")

    seen = [(claim.job.stage, are_searchable(RATE, LOWER)) for claim in run_stages()]

    assert {stage for stage, _ in seen} == set(Stage.values)
    assert all(shown == [True, False] for _, shown in seen)
    assert are_searchable(TAXED, RATE, LOWER) == [True, False, True]
    assert len(search_texts("enajenación de bienes")) == len(set(search_texts("enajenación de bienes")))
    assert Law.objects.get().version == "2024-02"
    assert not Document.objects.filter(pk=old.document_id).exists()
    assert not UploadJob.objects.filter(pk=old.pk).exists()
    assert not Path(settings.STORAGE_ROOT, "raw", str(SYSTEM_TENANT_ID), f"{old.document_id}.pdf").exists()


def test_an_interrupted_replacement_keeps_the_old_version(laws: S3Server) -> None:
    process(laws, law_xml(TAXED, RATE))
    deliver(laws, law_xml(TAXED, LOWER), "2024-02")
    claim = claim_at_stage("embedded")
    with connection.cursor() as cursor:
        cursor.execute("""
            CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
            CREATE TRIGGER refused BEFORE DELETE ON documents FOR EACH ROW EXECUTE FUNCTION refuse();""")

    with transaction.atomic():
        ending = worker.run_stage(claim)

    assert isinstance(ending, Retryable)
    assert are_searchable(TAXED, RATE, LOWER) == [True, True, False]
    assert Law.objects.get().version == "2024-01"


def test_an_older_version_never_replaces_a_newer_one(laws: S3Server) -> None:
    process(laws, law_xml(LOWER), "2024-10")

    late = accept_message(statute_message("2024-9", force_reprocess=True))

    assert (late.status, late.job_id) == (IntakeStatus.OUTDATED, None)
    assert not LawVersion.objects.filter(version="2024-9").exists()


def test_a_version_outdated_during_processing_is_erased(laws: S3Server) -> None:
    slow = deliver(laws, law_xml(RATE), "2024-01")
    claim = claim_at_stage("embedded")
    newer = process(laws, law_xml(LOWER), "2024-02")
    before = bucket_objects(laws)

    ending = worker.run_stage(claim)

    assert isinstance(ending, Moved)
    assert ending.ended
    assert newer.state == "done"
    assert are_searchable(RATE, LOWER) == [False, True]
    assert bucket_objects(laws) == before
    assert list(Document.objects.values_list("pk", flat=True)) == [newer.document_id]
    assert sample_laws.version_of(slow).error_code == "LAW_OUTDATED"


def test_a_forced_version_is_reprocessed_and_stays_searchable(laws: S3Server) -> None:
    first = process(laws, law_xml(TAXED, RATE))
    before = bucket_objects(laws)

    again = accept_message(statute_message(force_reprocess=True))
    seen = [are_searchable(TAXED, RATE) for _ in run_stages()]

    assert again.status == IntakeStatus.ACCEPTED
    assert again.job_id != first.pk
    assert all(shown == [True, True] for shown in seen)
    assert bucket_objects(laws) == before
    assert sample_laws.job_of(statute_message()).state == "done"


def test_forced_another_file_of_the_same_version_replaces_it(laws: S3Server) -> None:
    process(laws, law_xml(TAXED, RATE))

    process(laws, law_xml(TAXED, LOWER), force_reprocess=True)

    assert are_searchable(TAXED, RATE, LOWER) == [True, False, True]
    assert Document.objects.count() == 1
    assert Law.objects.get().status == "embedded"


def test_only_one_worker_publishes_a_law(laws: S3Server) -> None:
    deliver(laws, law_xml(TAXED))
    claim = claim_at_stage("embedded")

    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": psycopg.Cursor}) as other:
        other.execute("SELECT pg_advisory_lock(hashtextextended('law:LIVA', 0))")
        ending = worker.run_stage(claim)

    assert isinstance(ending, Wait)
    assert (ending.seconds, ending.reason) == (2.0, "LAW_BUSY")
    assert list(bucket_objects(laws)) == [sample_laws.KEY]


def test_each_stage_holds_its_invariant(laws: S3Server) -> None:
    deliver(laws, law_xml(TAXED, RATE))

    for claim in run_stages():
        assert get_pipeline(claim.job.pipeline).step(claim.job.stage).invariant([claim.job.pk]) == {}

    assert list(find_violations(deep=True)) == []


def test_ocr_pages_are_kept_until_another_file_comes(laws: S3Server) -> None:
    sent = deliver(laws, text_pdf("Artículo 1. Los de la ley.", ""), raw_key="raw/ley.pdf")
    document = Document.objects.get()
    read = {"document": document, "user_id": SYSTEM_TENANT_ID, "page": 2, "parser_version": SCANS}
    OcrPage.objects.create(**read, text="Artículo 2. De otro archivo.")
    claim = claim_at_stage("parsing")
    left = OcrPage.objects.exists()

    OcrPage.objects.create(**read, text="Artículo 2. El resto de la ley.")
    moved = worker.run_stage(claim)

    canonical = sample_laws.version_of(sent).canonical or {}
    assert isinstance(moved, Moved)
    assert not left
    assert [(article["paragraphs"][0]["text"], article["page"]) for article in canonical["children"]] == [
        ("Los de la ley.", 1),
        ("El resto de la ley.", 2),
    ]
    assert not OcrPage.objects.exists()
