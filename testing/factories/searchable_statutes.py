"""Factory of searchable statutes, without the pipeline."""

from collections.abc import Sequence
from uuid import UUID

from django.db.models.functions import Now

from accounts.system_tenant import SYSTEM_TENANT_ID
from embeddings import active_model, chunk_store
from embeddings.embedders.registry import DIMENSIONS, vector_sha
from embeddings.models import DocumentChunk
from embeddings.search import bm25
from statutes import article_chunker, document_ids
from statutes.models import Law, LawVersion
from statutes.structure import markdown
from statutes.structure.builder import build_law
from statutes.structure.model import CanonicalLaw as Canonical
from statutes.structure.model import Line, Place
from testing.factories import DocumentFactory


def create_searchable_statute(
    law_id: str,
    text: str,
    *,
    title: str = "Ley de Ejemplo",
    version: str = "2024-01",
    form: str = "pdf",
    status: str = Law.Status.EMBEDDED.value,
) -> UUID:
    """Store a law of some lines, a page for each text between form feeds; return its document's id."""
    law = _read(text)
    rendered = markdown.render_markdown(law, pages=text.count("\f") + 1 if form == "pdf" else 0)
    document_id: UUID = DocumentFactory.create(
        pk=document_ids.document_id(law_id, version),
        user_id=SYSTEM_TENANT_ID,
        filename=title,
        chunks_version=article_chunker.CHUNKER.label,
        page_starts=list(rendered.page_starts),
    ).pk
    cut = article_chunker.CHUNKER.split(rendered.text, rendered.page_starts)
    chunk_store.buffer_chunks(
        user_id=SYSTEM_TENANT_ID, document_id=document_id, chunks=cut, chunks_version=article_chunker.CHUNKER.label
    )
    chunk_store.commit_chunks(document_id, chunks_version=article_chunker.CHUNKER.label)
    _embed(document_id, [chunk.text for chunk in cut])
    common = {"version": version, "status": status}
    row = {"law_id": law_id, "bucket": "laws", "raw_key": "raw/law", "format": form}
    LawVersion.objects.create(pk=document_id, **row, **common)
    columns = {"title": title, "language": law.language, "document_id": document_id, "chunk_count": len(cut), **common}
    Law.objects.update_or_create(pk=law_id, defaults=columns)
    return document_id


def _read(text: str) -> Canonical:
    lines, at = [], 0
    for page, lying in enumerate(text.split("\f"), 1):
        for line in lying.strip("\n").split("\n"):
            lines.append(Line(line, Place(at, at + len(line), page)))
            at += len(line) + 1
    return build_law(lines)


def _embed(document_id: UUID, texts: Sequence[str]) -> None:
    embedder = active_model.require_embedder(active_model.active_model(SYSTEM_TENANT_ID))
    vectors = embedder.embed(texts)
    for at, (row, sha) in enumerate(zip(vectors, map(vector_sha, vectors), strict=True)):
        DocumentChunk.objects.filter(document_id=document_id, chunk_ord=at).update(
            embedding=row,
            embed_model=embedder.model,
            embed_version=embedder.version,
            vector_dim=DIMENSIONS,
            vector_sha=sha,
            embed_updated_at=Now(),
        )
    bm25.index_document(document_id)
