"""Text that was embedded once is not bought again: taken from elsewhere, or from the document itself."""

import hashlib
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from benchmarks.stored_pdfs import SAMPLES
from documents import services
from documents.markdown.normalization import normalize, normalize_pages
from documents.models import Document
from documents.parsers import pdf_parser
from embeddings import pending_chunks, tokenizer
from embeddings.chunking import chunkers
from embeddings.chunking.chunkers import Chunk
from embeddings.embedders import registry
from embeddings.models import DocumentChunk, VectorBuffer
from embeddings.pending_chunks import Reused, query_params
from embeddings.tests.conftest import RecordingOpenAIServer
from jobs import worker
from jobs.models import Event, UploadJob
from testing import planner_statistics
from testing.factories.pending_documents import create_chunked_job, passage_texts
from testing.fakes.openai import text_vector
from testing.personas import Person, claim_at_stage, run_stages

pytestmark = pytest.mark.django_db
INSERTED = "From January the plan also covers services of this kind, after prior authorization. "


def reload_job(job: UploadJob) -> UploadJob:
    return UploadJob.objects.get(pk=job.pk)


def bought(vendor: RecordingOpenAIServer, passages: Sequence[str]) -> list[int]:
    """How often each of ``passages`` was sold."""
    return [vendor.ledger.counts[hashlib.sha256(text.encode()).hexdigest()] for text in passages]


def embedded(passages: Sequence[str], person: Person) -> UploadJob:
    """Return the job of a document that has its vectors."""
    job = create_chunked_job(passages, user_id=person.id)
    worker.drain()
    assert reload_job(job).state == "done", reload_job(job).last_error
    return job


def reuse_vectors_for(passages: Sequence[str], person: Person) -> Reused:
    """Reuse vectors for a new document of ``passages``; its job stays claimed."""
    create_chunked_job(passages, user_id=person.id)
    claim = claim_at_stage("chunked")
    with claim.transaction():
        return pending_chunks.reuse_vectors(claim, registry.get_embedder("openai"))


def execute(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def numbers(text: str) -> Any:
    """Return the vector that the fake vendor sells for a text, as it comes back from the database."""
    return pytest.approx(text_vector(text).tolist(), abs=1e-6)


def test_vectors_of_the_tenant_are_reused(ana: Person, vendor: RecordingOpenAIServer) -> None:
    old, new = passage_texts(40, about="last year"), passage_texts(3, about="this year")
    embedded(old, ana)

    job = create_chunked_job([*old[:20], *new, *old[20:]], user_id=ana.id)
    worker.drain()

    assert reload_job(job).state == "done"
    assert bought(vendor, [*old, *new]) == [1] * 43
    rows = DocumentChunk.objects.filter(document=job.document_id).values_list("text", "embedding", "vector_sha")
    assert all(list(embedding or ()) == numbers(text) for text, embedding, _ in rows)
    sources = dict(DocumentChunk.objects.exclude(document=job.document_id).values_list("text", "vector_sha"))
    assert {text: sha for text, _, sha in rows if text in sources} == sources


def test_vectors_of_other_tenants_are_not_reused(ana: Person, ben: Person, vendor: RecordingOpenAIServer) -> None:
    embedded(passage_texts(10), ana)

    embedded(passage_texts(10), ben)

    assert bought(vendor, passage_texts(10)) == [2] * 10


def test_vectors_of_other_tenants_are_reused_where_allowed(
    ana: Person, ben: Person, vendor: RecordingOpenAIServer, settings: Any
) -> None:
    settings.REUSE_ACROSS_TENANTS = True
    embedded(passage_texts(10), ana)

    job = embedded(passage_texts(10), ben)

    assert bought(vendor, passage_texts(10)) == [1] * 10
    assert set(DocumentChunk.objects.filter(document=job.document_id).values_list("user_id", flat=True)) == {ben.id}


def test_text_repeated_within_a_document_is_bought_once(ana: Person, vendor: RecordingOpenAIServer) -> None:
    notice, body = "This is a summary. Read the policy for the whole of it.", passage_texts(300)
    passages = [notice, *body[:150], notice, *body[150:], notice]

    job = embedded(passages, ana)

    assert bought(vendor, [notice, *body]) == [1] * 301
    rows = DocumentChunk.objects.filter(document=job.document_id, text=notice).values_list("embedding", flat=True)
    assert [list(each or ()) for each in rows] == [numbers(notice)] * 3
    assert ana.get(f"/documents/{job.document_id}").json()["saved"]["passages"] == 2


def first_told(job: UploadJob) -> list[str]:
    """Return the stages of the job's EMBED_FIRST events."""
    events = Event.objects.filter(job_id=job.pk, code="EMBED_FIRST")
    return [event.payload["stage"] for event in events]


def test_first_vectors_event_is_logged_once_for_reused_vectors(
    ana: Person, vendor: RecordingOpenAIServer, settings: Any
) -> None:
    settings.EMBED_BATCH = 10
    embedded(passage_texts(5), ana)

    assert first_told(embedded(passage_texts(45), ana)) == ["chunked"]


@pytest.mark.parametrize("embedder", ["openai", "testing.embedders.InstantEmbedder"])
def test_first_vectors_event_is_logged_once_for_the_first_batch(
    embedder: str, ana: Person, vendor: RecordingOpenAIServer, settings: Any
) -> None:
    settings.EMBEDDER, settings.EMBED_BATCH = embedder, 10

    job = embedded([*passage_texts(45), *passage_texts(3)], ana)

    assert first_told(job) == ["embedding"]


def test_vectors_are_copied_only_to_chunks_of_the_same_chunker(ana: Person, vendor: RecordingOpenAIServer) -> None:
    job = create_chunked_job(["twice", "twice", "twice", "once"], user_id=ana.id)
    execute("UPDATE document_chunks SET chunker_version = '0' WHERE chunk_ord = 2")
    first = DocumentChunk.objects.get(chunk_ord=0)
    row = {"user_id": ana.id, "document_id": job.document_id, "embed_model": "m", "embed_version": "1"}
    VectorBuffer.objects.create(chunk=first, vector_dim=1536, vector_sha="x", embedding=text_vector("twice"), **row)

    pending_chunks.copy_to_duplicates(job.document_id, registry.EmbeddingModel("m", "2"))
    pending_chunks.copy_to_duplicates(job.document_id, registry.EmbeddingModel("m", "1"))
    pending_chunks.copy_to_duplicates(job.document_id, registry.EmbeddingModel("m", "1"))

    rows = VectorBuffer.objects.order_by("chunk__chunk_ord").values_list("chunk__chunk_ord", "vector_sha")
    assert list(rows) == [(0, "x"), (1, "x")]


@pytest.mark.parametrize("column", ["embed_model", "embed_version"])
def test_vectors_of_another_model_or_version_are_not_reused(
    column: str, ana: Person, vendor: RecordingOpenAIServer
) -> None:
    embedded(passage_texts(10), ana)
    execute(f"UPDATE document_chunks SET {column} = 'other' WHERE chunk_ord < 4")

    assert reuse_vectors_for(passage_texts(10), ana).passages == 6


def test_shadow_vectors_are_reused(ana: Person, vendor: RecordingOpenAIServer) -> None:
    embedded(passage_texts(10), ana)
    execute("""
        INSERT INTO shadow_vectors (chunk_id, user_id, document_id, embed_model, embed_version, vector_dim, vector_sha,
            embedding)
        SELECT chunk_id, user_id, document_id, embed_model, embed_version, vector_dim, vector_sha, embedding
        FROM document_chunks""")
    execute("UPDATE document_chunks SET embed_version = '0'")

    assert reuse_vectors_for(passage_texts(12), ana).passages == 10
    assert VectorBuffer.objects.count() == 10


def test_corrupt_vector_is_bought_again_and_not_copied(ana: Person, vendor: RecordingOpenAIServer) -> None:
    embedded(passage_texts(10), ana)
    execute("UPDATE document_chunks SET vector_sha = repeat('0', 64) WHERE chunk_ord = 3")

    embedded(passage_texts(10), ana)

    assert bought(vendor, passage_texts(10)) == [1, 1, 1, 2, 1, 1, 1, 1, 1, 1]


def test_a_copy_stays_when_its_source_is_deleted(ana: Person, vendor: RecordingOpenAIServer) -> None:
    source = embedded(passage_texts(10), ana)
    job = create_chunked_job(passage_texts(10), user_id=ana.id)

    for claim in run_stages():
        if claim.job.stage == "embedding":
            services.delete(Document.objects.get(pk=source.document_id))

    assert reload_job(job).state == "done"
    assert bought(vendor, passage_texts(10)) == [1] * 10
    assert DocumentChunk.objects.exclude(embedding=None).count() == 10


def test_savings_are_shown_with_the_document(
    ana: Person, ben: Person, vendor: RecordingOpenAIServer, settings: Any
) -> None:
    settings.OPENAI_CENTS_PER_MILLION_TOKENS = 2.0
    first = embedded(passage_texts(40), ana)
    second = embedded(passage_texts(50), ana)

    shown = {each["document_id"]: each["saved"] for each in ana.get("/documents").json()["results"]}

    count = sum(tokenizer.count_many(passage_texts(40)))
    saved = {"passages": 40, "tokens": count, "cents": float(Decimal(count) * 2 / 1_000_000)}
    assert shown[str(first.document_id)] == {"passages": 0, "tokens": 0, "cents": 0.0}
    assert shown[str(second.document_id)] == saved
    assert ana.get(f"/documents/{second.document_id}").json()["saved"] == saved
    assert ben.get(f"/documents/{second.document_id}").status_code == 404


def test_campaign_savings_are_not_shown(ana: Person, vendor: RecordingOpenAIServer) -> None:
    job = embedded(passage_texts(10), ana)
    columns = "job_id, user_id, document_id, stage, state, finished_at, raw_path, chunks_version, correlation_id"
    execute(
        f"INSERT INTO upload_jobs ({columns}, campaign_id, low_priority, payload)"
        " SELECT gen_random_uuid(), user_id, document_id, stage, state, finished_at, raw_path, chunks_version,"
        " correlation_id, gen_random_uuid(), true, '{\"reused\": 7}' FROM upload_jobs"
    )

    assert ana.get(f"/documents/{job.document_id}").json()["saved"]["passages"] == 0


def test_document_list_takes_as_many_queries_as_one_document(ana: Person, vendor: RecordingOpenAIServer) -> None:
    counts = []
    for _ in range(2):
        embedded(passage_texts(1), ana)
        with CaptureQueriesContext(connection) as queries:
            ana.get("/documents")
        counts.append(len(queries))

    assert counts[0] == counts[1]


def test_savings_survive_planning_again(ana: Person, vendor: RecordingOpenAIServer) -> None:
    embedded(passage_texts(10), ana)
    create_chunked_job(passage_texts(12), user_id=ana.id)
    claim, embedder = claim_at_stage("chunked"), registry.get_embedder("openai")

    with claim.transaction():
        first = pending_chunks.reuse_vectors(claim, embedder)
        made_with = {"embed_model": embedder.model, "embed_version": embedder.version}
        claim.job.payload |= made_with | {"reused": first.passages, "tokens_saved": first.tokens}
        second = pending_chunks.reuse_vectors(claim, embedder)

    assert first.passages == 10
    assert second == first


@pytest.mark.parametrize("statement", [pending_chunks.COPY_FROM_TENANT, pending_chunks.COPY_FROM_ALL])
@pytest.mark.parametrize(("pages", "rows"), [(0, -1), (1, 0), (500, 0)], ids=["never seen", "seen empty", "emptied"])
def test_known_texts_are_looked_up_by_sha_whatever_the_statistics(
    statement: str, pages: int, rows: int, ana: Person, vendor: RecordingOpenAIServer
) -> None:
    create_chunked_job(passage_texts(1), user_id=ana.id)
    execute("""
        INSERT INTO document_chunks
            (chunk_id, user_id, document_id, chunker_name, chunker_version, chunk_ord, chunk_sha, text)
        SELECT gen_random_uuid(), user_id, document_id, 'other', '1', n, encode(sha256(n::text::bytea), 'hex'), ''
        FROM document_chunks, generate_series(1, 20000) n""")
    planner_statistics.set_table_statistics("document_chunks", pages=pages, rows=rows)
    planner_statistics.set_table_statistics(
        "shadow_vectors"
    )  # one that was vacuumed while it was empty is read through, as it may be
    planner_statistics.set_table_statistics("document_vector_buffer")
    params = query_params(claim_at_stage("chunked"), registry.get_embedder("openai"))

    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {statement}", params)
        plan = "\n".join(line for (line,) in cursor.fetchall())

    assert plan.count("ix_chunks_sha") == 2, plan
    assert "Seq Scan" not in plan
    assert "ix_chunks_user_model" not in plan
    assert "idx_vector_buffer_embedding_progress" not in plan


def test_invisible_differences_are_reused(ana: Person, vendor: RecordingOpenAIServer) -> None:
    embedded([chunk.text for chunk in chunkers.split_markdown(normalize("# Care\n\nCare is covered.\n"))], ana)

    same = normalize("# Care\r\n\r\n\r\n\r\nCare is\u00a0covered.  \r\n")

    assert reuse_vectors_for([chunk.text for chunk in chunkers.split_markdown(same)], ana).passages == 1


def cut(pages: Sequence[str]) -> list[Chunk]:
    text = normalize_pages(pages)
    return chunkers.split_markdown(text.text, text.page_starts)


def renewed(pages: Sequence[str]) -> list[str]:
    """Return the pages with an insertion on page 11, a deletion on page 31 and a change on page 51."""
    changed = list(pages)
    paragraphs = changed[10].split("\n\n")
    changed[10] = "\n\n".join([*paragraphs[:2], INSERTED * 3, *paragraphs[2:]])
    changed[30] = "\n\n".join(changed[30].split("\n\n")[1:])
    words = changed[50].split(" ")
    changed[50] = " ".join([*words[:30], "$45 or more", *words[31:]])
    return changed


def test_renewed_policy_pays_for_its_changed_pages(ana: Person, vendor: RecordingOpenAIServer) -> None:
    pages = pdf_parser.parse_pdf(SAMPLES / "evidence_of_coverage.pdf", pages=200).markdown
    before, after = cut(pages), cut(renewed(pages))
    embedded([chunk.text for chunk in before], ana)
    paid = vendor.ledger.totals["tokens"]

    embedded([chunk.text for chunk in after], ana)

    changed = [chunk for chunk in before if any(chunk.pages[0] <= page <= chunk.pages[1] for page in (11, 31, 51))]
    renewal = vendor.ledger.totals["tokens"] - paid
    assert 0 < renewal <= 1.25 * sum(chunk.tokens for chunk in changed)
    assert renewal < 0.08 * paid
