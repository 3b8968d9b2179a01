"""Reprocessing of a live version: the live one stays until the new one is complete."""

from typing import Any
from uuid import UUID

import pytest

from accessa.integrity.violations import find_changed_artifacts, find_violations
from documents.models import Document
from documents.services import delete
from documents.storage import buckets
from embeddings.models import DocumentChunk
from jobs import services, worker
from jobs.choices import Stage
from jobs.claims import Claim, ClaimLost
from jobs.models import UploadJob
from statutes import document_ids, search
from statutes.artifact_import import BucketSource, import_artifacts
from statutes.consumer.message_jobs import settle_message
from statutes.intake import IntakeStatus, accept_message
from statutes.models import Law, LawVersion
from statutes.sqs.message_schema import Message
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
    put_file,
    statute_message,
)
from statutes.tests.statement_hooks import after_statement
from statutes.withdrawal import withdraw
from testing.fakes.s3 import S3Server
from testing.personas import Person, claim_at_stage, run_all_jobs, run_stages

pytestmark = pytest.mark.django_db
FIRST, SECOND = document_ids.document_ids("LIVA", "2024-01")
RENAMED = law_xml(TAXED, LOWER, title="Ley del Impuesto Reformado")


def kinds() -> set[str]:
    return {row.kind for row in find_violations()} - {"vector"}


def searchable_articles(reader: Person) -> list[Any]:
    """Return all that a reader is shown of the law, and what its rows say of it."""
    seen = search.search_statutes(user_id=reader.id, query="impuesto enajenación de bienes tasa", law_ids=["LIVA"])
    cited = [(law.chunk_id, law.text, law.citation, law.title, law.status, law.version) for law in seen]
    law = Law.objects.values().get()
    assert law["document_id"]
    return [sorted(cited), law, LawVersion.objects.values().get(pk=law["document_id"])]


def uploaded_law(s3: S3Server) -> dict[str, bytes]:
    """Return what is uploaded of laws that are found."""
    return {key: content for key, content in bucket_objects(s3).items() if not key.startswith(("raw/", "failed/"))}


# From another file


@pytest.mark.slow
def test_the_live_version_is_found_until_the_new_file_is_complete(laws: S3Server, ana: Person) -> None:
    process(laws, law_xml(TAXED, RATE))
    before = searchable_articles(ana)
    put_file(laws, RENAMED, key="raw/reformed.xml")
    accept_message(statute_message(force_reprocess=True, raw_key="raw/reformed.xml"))

    seen = [(claim.job.stage, searchable_articles(ana), kinds()) for claim in run_stages()]

    after = searchable_articles(ana)
    assert before[0]
    assert seen == [(stage.value, before, set()) for stage in Stage]
    assert {text for _, _, _, text, *_ in after[0]} == {"Ley del Impuesto Reformado"}
    assert are_searchable(TAXED, RATE, LOWER) == [True, False, True]
    assert not {row[0] for row in before[0]} & {row[0] for row in after[0]}
    assert (Document.objects.get().pk, after[1]["document_id"], after[1]["status"]) == (SECOND, SECOND, "embedded")
    assert (kinds(), list(find_changed_artifacts())) == (set(), [])


def test_vectors_of_unchanged_passages_are_reused(laws: S3Server) -> None:
    process(laws, law_xml(TAXED, RATE))

    job = process(laws, law_xml(TAXED, LOWER), force_reprocess=True)

    total = Law.objects.get().chunk_count
    assert (job.document_id, job.payload["num_vectors"], job.payload["reused"]) == (SECOND, total, total - 1)


@pytest.mark.slow
def test_a_version_alternates_between_two_documents(laws: S3Server) -> None:
    process(laws, law_xml(TAXED, RATE))
    first = set(DocumentChunk.objects.values_list("pk", flat=True))

    at = []
    for text in (LOWER, RATE, LOWER):
        at.append(process(laws, law_xml(TAXED, text), force_reprocess=True).document_id)
        assert are_searchable(TAXED, text) == [True, True]
        assert sum(are_searchable(RATE, LOWER)) == 1

    assert at == [SECOND, FIRST, SECOND]
    assert not first & set(DocumentChunk.objects.values_list("pk", flat=True))
    assert set(LawVersion.objects.values_list("pk", flat=True)) == {FIRST, SECOND}
    assert list(find_violations(deep=True)) == []


@pytest.mark.parametrize("stage", ["queued", "chunks_buffered", "embedded"])
def test_a_cancelled_reprocessing_keeps_the_live_version_and_can_resume(
    stage: str, laws: S3Server, ana: Person
) -> None:
    process(laws, law_xml(TAXED, RATE))
    before = searchable_articles(ana), uploaded_law(laws)
    sent = deliver(laws, RENAMED, force_reprocess=True)
    claim = claim_at_stage(stage)

    services.cancel(claim.job, by="sam")
    settle_message(sent, sample_laws.job_of(sent))
    left = (searchable_articles(ana), uploaded_law(laws)), kinds()
    repeated = accept_message(statute_message())
    again = accept_message(sent)
    run_all_jobs()

    assert left == (before, set())
    assert (repeated.status, again.status, again.job_id) == (
        IntakeStatus.DUPLICATE,
        IntakeStatus.ACCEPTED,
        claim.job.pk,
    )
    assert (are_searchable(TAXED, RATE, LOWER), kinds()) == ([True, False, True], set())


@pytest.mark.parametrize("file", [b"no law", law_xml(TAXED) + b"<"], ids=["no law", "cut off"])
def test_an_unreadable_file_keeps_the_live_version(file: bytes, laws: S3Server, ana: Person) -> None:
    process(laws, law_xml(TAXED, RATE))
    before, files = searchable_articles(ana), uploaded_law(laws)
    sent = deliver(laws, file, force_reprocess=True)

    seen = [searchable_articles(ana) for _ in run_stages()]
    ended = settle_message(sent, sample_laws.job_of(sent))

    assert (ended, [*seen, searchable_articles(ana)], uploaded_law(laws)) == (
        "delete",
        [before] * (len(seen) + 1),
        files,
    )
    failed = sample_laws.version_of(sent)
    assert (failed.pk, failed.status, failed.error_code is None) == (SECOND, "failed", False)
    assert [key for key in bucket_objects(laws, "failed/") if key.endswith("error.json")]
    assert kinds() == set()


def test_a_successful_reprocessing_clears_the_earlier_failure(laws: S3Server) -> None:
    process(laws, law_xml(TAXED, RATE))
    sent = deliver(laws, b"no law", force_reprocess=True)
    run_all_jobs()
    settle_message(sent, sample_laws.job_of(sent))

    process(laws, law_xml(TAXED, LOWER), force_reprocess=True)

    row = sample_laws.version_of(sent)
    assert (row.pk, row.status, row.error_code) == (SECOND, "embedded", None)
    assert (are_searchable(RATE, LOWER), kinds()) == ([False, True], set())


def test_a_cancelled_job_publishes_nothing(laws: S3Server, ana: Person) -> None:
    process(laws, law_xml(TAXED, RATE))
    before = searchable_articles(ana)
    deliver(laws, law_xml(TAXED, LOWER), force_reprocess=True)
    claim = claim_at_stage("embedded")

    services.cancel(claim.job, by="sam")

    with pytest.raises(ClaimLost):
        worker.run_stage(claim)
    assert (searchable_articles(ana), kinds()) == (before, set())


@pytest.mark.slow
def test_artifacts_of_a_second_document_can_be_imported(laws: S3Server) -> None:
    process(laws, law_xml(TAXED, RATE))
    process(laws, law_xml(TAXED, LOWER), force_reprocess=True)
    before = list(DocumentChunk.objects.order_by("pk").values_list("pk", "text", "vector_sha"))
    delete(Document.objects.get())
    LawVersion.objects.all().delete()
    Law.objects.all().delete()

    import_artifacts(BucketSource(sample_laws.BUCKET), "LIVA")

    assert list(DocumentChunk.objects.order_by("pk").values_list("pk", "text", "vector_sha")) == before
    assert (Law.objects.get().document_id, are_searchable(TAXED, RATE, LOWER)) == (SECOND, [True, False, True])


# From the same file


@pytest.mark.slow
def test_reprocessing_the_same_file_keeps_passages_and_ids(laws: S3Server, ana: Person) -> None:
    job = process(laws, law_xml(TAXED, RATE))
    before, files = searchable_articles(ana)[:2], bucket_objects(laws)
    rows = list(DocumentChunk.objects.order_by("pk").values())
    deliver(laws, law_xml(TAXED, RATE), force_reprocess=True)

    seen = [searchable_articles(ana)[:2] for _ in run_stages()]

    again = UploadJob.objects.exclude(pk=job.pk).get()
    assert seen == [before] * len(Stage)
    assert (again.state, again.document_id, again.payload["reused"]) == ("done", FIRST, 0)
    assert list(DocumentChunk.objects.order_by("pk").values()) == rows
    assert (list(LawVersion.objects.values_list("pk", flat=True)), Document.objects.count()) == ([FIRST], 1)
    assert bucket_objects(laws) == files
    assert set(again.events.values_list("document_id", flat=True)) == {FIRST}
    assert list(find_violations(deep=True)) == []


@pytest.mark.parametrize(
    ("file", "fields"),
    [(law_xml(TAXED, RATE, LOWER), {"force_reprocess": True}), (law_xml(TAXED, LOWER), {"version": "2024-02"})],
    ids=["with an article more", "as a newer version"],
)
def test_the_live_version_does_not_change_before_the_end(file: bytes, fields: dict[str, Any], laws: S3Server) -> None:
    process(laws, law_xml(TAXED, RATE))
    before = Law.objects.values().get()
    deliver(laws, file, **fields)

    seen = [(Law.objects.values().get(), are_searchable(TAXED, RATE)) for _ in run_stages()]

    assert len(seen) == len(Stage)
    assert all(shown == (before, [True, True]) for shown in seen)


@pytest.mark.parametrize("column", ["parsed_path", "raw_path"])
def test_a_damaged_live_document_is_rebuilt_in_the_second(column: str, laws: S3Server) -> None:
    process(laws, law_xml(TAXED, RATE))
    bucket, name = buckets.locate(Document.objects.values_list(column, flat=True).get())
    bucket.delete(name)

    job = process(laws, law_xml(TAXED, RATE), force_reprocess=True)

    assert (job.state, job.document_id, are_searchable(TAXED, RATE)) == ("done", SECOND, [True, True])
    assert kinds() == set()


def started_on_live_document(laws: S3Server) -> tuple[Claim, Message]:
    """Return the claim of a job that does again what is found, from the same file."""
    process(laws, law_xml(TAXED, RATE))
    sent = deliver(laws, law_xml(TAXED, RATE), force_reprocess=True)
    claim = claim_at_stage("chunked")
    assert claim.job.document_id == FIRST
    return claim, sent


@pytest.mark.parametrize("forced", [False, True])
def test_a_job_that_failed_in_the_live_document_resumes(forced: bool, laws: S3Server) -> None:
    claim, sent = started_on_live_document(laws)
    services.cancel(claim.job, by="sam")
    settle_message(sent, sample_laws.job_of(sent))

    again = accept_message(statute_message(force_reprocess=forced))
    run_all_jobs()

    assert (again.status, again.job_id) == (IntakeStatus.ACCEPTED, claim.job.pk)
    assert (sample_laws.job_of(sent).state, sample_laws.version_of(sent).status) == ("done", "embedded")
    assert (Document.objects.get().pk, are_searchable(TAXED, RATE), kinds()) == (FIRST, [True, True], set())


@pytest.mark.slow
def test_a_failed_job_leaves_the_live_document_for_another_file(laws: S3Server, ana: Person) -> None:
    claim, _ = started_on_live_document(laws)
    services.cancel(claim.job, by="sam")
    deliver(laws, law_xml(TAXED, LOWER), force_reprocess=True)
    before = searchable_articles(ana)[:2]

    left = stop_before_leaving(claim.job.pk)
    restored = LawVersion.objects.get(pk=FIRST)
    meanwhile = searchable_articles(ana)[:2], kinds()
    run_all_jobs()

    assert left == SECOND
    assert (restored.status, restored.job_id == claim.job.pk) == ("embedded", False)
    assert meanwhile == (before, set())
    assert (are_searchable(TAXED, RATE, LOWER), kinds()) == ([True, False, True], set())


def test_the_live_row_never_names_another_file(laws: S3Server) -> None:
    claim, _ = started_on_live_document(laws)
    services.cancel(claim.job, by="sam")
    fields = LawVersion.objects.values("raw_key", "ingest_timestamp", "job_id").get(pk=FIRST)
    put_file(laws, b"no law", key="raw/other.xml")

    accept_message(statute_message(force_reprocess=True, raw_key="raw/other.xml"))
    run_all_jobs()

    assert LawVersion.objects.values("raw_key", "ingest_timestamp", "job_id").get(pk=FIRST) == fields
    assert LawVersion.objects.get(pk=SECOND).raw_key == "raw/other.xml"
    assert are_searchable(TAXED, RATE) == [True, True]


def stop_before_leaving(job_id: UUID) -> UUID:
    """Let a job leave what is found; return the document that it is of now."""
    assert len(list(run_stages())) == 1
    job = UploadJob.objects.get(pk=job_id)
    assert (job.stage, job.state) == ("queued", "queued")
    return job.document_id


@pytest.mark.slow
def test_old_passages_are_kept_until_their_successors_are_live(laws: S3Server, ana: Person) -> None:
    process(laws, law_xml(TAXED, RATE))
    DocumentChunk.objects.filter(chunk_ord=1).update(chunk_sha="0" * 64)
    before = searchable_articles(ana)[0]
    deliver(laws, law_xml(TAXED, RATE), force_reprocess=True)

    seen = [searchable_articles(ana)[0] for _ in run_stages()] + [searchable_articles(ana)[0] for _ in run_stages()]

    assert seen == [before] * len(seen)
    assert (Law.objects.get().document_id, are_searchable(TAXED, RATE)) == (SECOND, [True, True])
    assert kinds() == set()


# Meanwhile


def test_a_message_during_reprocessing_starts_no_second_job(laws: S3Server) -> None:
    process(laws, law_xml(TAXED, RATE))
    sent = deliver(laws, law_xml(TAXED, LOWER), force_reprocess=True)

    kinds_ = [
        accept_message(each).status
        for each in (sent, statute_message(), statute_message(force_reprocess=True, raw_key="raw/other.xml"))
    ]

    assert kinds_ == [IntakeStatus.IN_PROGRESS] * 3
    assert UploadJob.objects.filter(state="queued").count() == 1


@pytest.mark.slow
def test_an_outdated_reprocessing_is_erased(laws: S3Server) -> None:
    process(laws, law_xml(TAXED, RATE))
    deliver(laws, law_xml(TAXED, LOWER), force_reprocess=True)
    claim = claim_at_stage("embedded")
    process(laws, law_xml(RATE), "2024-02")

    worker.run_stage(claim)

    assert list(Document.objects.values_list("pk", flat=True)) == [document_ids.document_id("LIVA", "2024-02")]
    assert (Law.objects.get().version, LawVersion.objects.get(pk=SECOND).error_code) == ("2024-02", "LAW_OUTDATED")
    assert (are_searchable(RATE, LOWER), list(find_violations(deep=True))) == ([True, False], [])


def test_a_statute_withdrawn_during_a_move_is_not_published(laws: S3Server) -> None:
    claim, _ = started_on_live_document(laws)
    services.cancel(claim.job, by="sam")
    deliver(laws, law_xml(TAXED, LOWER), force_reprocess=True)

    with after_statement('SELECT "law_versions"."version"', lambda: stop_before_leaving(claim.job.pk)):
        withdraw("LIVA", by=None, reason="repealed")
    run_all_jobs()

    assert not Law.objects.exclude(document_id=None).exists()
    assert not Document.objects.exists()
    assert (UploadJob.objects.count(), are_searchable(TAXED, LOWER)) == (0, [False, False])


def test_a_withdrawal_erases_the_second_document_too(laws: S3Server) -> None:
    process(laws, law_xml(TAXED, RATE))
    deliver(laws, law_xml(TAXED, LOWER), force_reprocess=True)
    claim_at_stage("chunked")

    withdraw("LIVA", by=None, reason="repealed")

    assert not Document.objects.exists()
    assert not LawVersion.objects.exists()
    assert not UploadJob.objects.exists()
    assert list(bucket_objects(laws)) == [sample_laws.KEY]
