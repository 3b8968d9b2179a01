"""Reindexing jobs of one document: re-embedding with another model, rechunking by another chunker.

Such a job is its document's only active one and is claimed when nothing else is due. It is billed to the campaign and
never buys a parse. A dead letter may be retried like any other; its vectors are kept. A ``reembed`` job ends with the
model's vectors in shadow_vectors, where no search looks; a ``rechunk`` job replaces the chunks in one transaction.
"""

from uuid import UUID

from django.db import connection, transaction

from accounts.error_codes import not_found
from documents.files import lock_document
from documents.models import Document
from embeddings import chunk_store, chunking, vector_store
from embeddings.embedders import DIMENSIONS
from jobs import services
from jobs.choices import ACTIVE
from jobs.models import UploadJob

REEMBED, RECHUNK = "reembed", "rechunk"

SEARCHABLE = """
    SELECT min(chunker_name || '@' || chunker_version), count(*) FROM document_chunks
    WHERE document_id = %(document)s AND embed_model IS NOT NULL"""


def enqueue_reembed(*, document_id: UUID, campaign_id: UUID, model: str, version: str) -> UploadJob:
    """Enqueue the embedding of a document's searchable chunks with another model.

    Raises ``ApiError``: "JOB_ALREADY_ACTIVE" while the document has a job, "NOT_FOUND" without searchable chunks.
    """
    document = _document(document_id)
    with connection.cursor() as cursor:
        cursor.execute(SEARCHABLE, {"document": document_id})
        chunks_version, total = cursor.fetchone()
    if not total:
        raise not_found()
    return services.enqueue(
        pipeline=REEMBED,
        user_id=document.user_id,
        document_id=document_id,
        campaign_id=campaign_id,
        raw_path=document.raw_path,
        parsed_path=document.parsed_path,
        parsed_sha256=document.parsed_sha256,
        chunks_version=document.chunks_version or chunks_version,
        embed_model=model,
        embed_version=version,
        payload={"vector_dim": DIMENSIONS},
        progress={"chunks_total": total, "chunks_done": total},
    )


def enqueue_rechunk(*, document_id: UUID, campaign_id: UUID, chunker: str) -> UploadJob:
    """Enqueue the splitting of a document's stored parse by another ``chunker`` (name@version).

    Raises ``ApiError``: "JOB_ALREADY_ACTIVE" while the document has a job, "NOT_FOUND" where it or its parse is gone.
    """
    label, document = chunking.get_chunker(chunker).label, _document(document_id)
    if document.parsed_path is None:
        raise not_found()
    return services.enqueue(
        pipeline=RECHUNK,
        user_id=document.user_id,
        document_id=document_id,
        campaign_id=campaign_id,
        raw_path=document.raw_path,
        parsed_path=document.parsed_path,
        parsed_sha256=document.parsed_sha256,
        chunks_version=label,
        payload={"chunker": label},
    )


def abandon_rechunk(document_id: UUID) -> bool:
    """Remove the chunks and vectors of an abandoned rechunk; False while the document has an active job."""
    with transaction.atomic():
        jobs = UploadJob.objects.select_for_update().filter(document_id=document_id)
        document = Document.objects.filter(pk=document_id).first()
        if any(job.state in ACTIVE for job in jobs):
            return False
        if document is not None and document.chunks_version is not None:
            lock_document(document_id, "vectors")
            chunk_store.replace_other_chunks(document_id, chunks_version=document.chunks_version)
            vector_store.empty_buffers(document_id)
        return True


def _document(document_id: UUID) -> Document:
    document = Document.objects.filter(pk=document_id).first()
    if document is None:
        raise not_found()
    return document
