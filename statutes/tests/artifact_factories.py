"""Chunked and embedded versions, and a bucket for their artifacts."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from accounts.system_tenant import SYSTEM_TENANT_ID
from documents.deterministic_ids import chunk_id
from documents.models import Document
from documents.storage import buckets
from embeddings import chunk_store, vector_store
from embeddings.chunking.chunkers import Chunk
from embeddings.embedders import registry
from jobs import services
from jobs.models import UploadJob
from statutes import document_ids
from statutes.models import LawVersion
from statutes.s3 import client, keys, manifests
from testing.fakes.http_messages import ErrorResponse, Request, Response
from testing.fakes.s3 import S3Server

BUCKET = "laws"
CHUNKER = "legal-articles@1"
TEXTS = (
    "Artículo 1. El impuesto se paga.",
    "Artículo 2 Bis. La tasa es del 16 %.",
    "Artículo 3. Nadie paga dos veces.",
)


class InterruptibleS3Server(S3Server):
    """An S3 that from some write on takes no more: what a worker that died at that point leaves."""

    def __init__(self) -> None:
        super().__init__(buckets=(BUCKET, "elsewhere"))
        self.left: int | None = None

    def respond(self, request: Request) -> Response:
        if self.left is not None and request.method in ("PUT", "DELETE"):
            if self.left == 0:
                raise ErrorResponse(self.error_response(403))
            self.left -= 1
        return super().respond(request)


def create_version(
    law_id: str = "ISR_2024",
    version: str = "2024-01",
    *,
    texts: Sequence[str] = TEXTS,
    refused: Sequence[int] = (),
) -> LawVersion:
    """Return a version as it stands before its artifacts are uploaded: cut, its vectors buffered."""
    document_id = document_ids.document_id(law_id, version)
    Document.objects.get_or_create(
        pk=document_id,
        defaults={
            "user_id": SYSTEM_TENANT_ID,
            "filename": law_id,
            "mime": "application/xml",
            "bytes_len": 4_711,
            "file_sha256": document_ids.file_sha256(document_id),
            "raw_path": buckets.object_uri("raw", SYSTEM_TENANT_ID, document_id, "pdf"),
            "parser_name": "law-xml",
            "parser_version": "1",
        },
    )
    model = registry.get_embedder("testing.embedders.InstantEmbedder")
    job = services.newest_job(UploadJob.objects.filter(document_id=document_id)) or services.enqueue(
        pipeline="statute",
        user_id=SYSTEM_TENANT_ID,
        document_id=document_id,
        raw_path="",
        chunks_version=CHUNKER,
        embed_model=model.model,
        embed_version=model.version,
    )
    create_chunks(document_id, texts, refused)
    row, _ = LawVersion.objects.update_or_create(
        pk=document_id,
        defaults={
            "law_id": law_id,
            "version": version,
            "job_id": job.pk,
            "bucket": BUCKET,
            "raw_key": f"raw/{version}.xml",
            "raw_sha256": "0" * 64,
            "format": "xml",
            "canonical": {"title": f"Ley {version}", "language": "es", "children": list(texts)},
        },
    )
    return row


def create_chunks(document_id: Any, texts: Sequence[str], refused: Sequence[int]) -> None:
    model = registry.get_embedder("testing.embedders.InstantEmbedder")
    passages = [Chunk(at, text, at, at + 1, (1, 1), ("Título I",), 9) for at, text in enumerate(texts)]
    chunk_store.buffer_chunks(
        user_id=SYSTEM_TENANT_ID, document_id=document_id, chunks=passages, chunks_version=CHUNKER
    )
    chunk_store.commit_chunks(document_id, chunks_version=CHUNKER)
    vector_store.empty_buffers(document_id)
    embedded = [at for at in range(len(texts)) if at not in refused]
    vector_store.buffer_vectors(
        document_id,
        registry.EmbeddingModel(model.model, model.version),
        [chunk_id(document_id, "legal-articles", "1", at) for at in embedded],
        model.embed([texts[at] for at in embedded]),
        user_id=SYSTEM_TENANT_ID,
    )


def stored_objects(prefix: str = "") -> dict[str, bytes]:
    return {key: client.read_object(BUCKET, key) for key in client.list_keys(BUCKET, prefix)}


def empty_buckets() -> None:
    for bucket in (BUCKET, "elsewhere"):
        for key in list(client.list_keys(bucket, "")):
            client.delete_object(bucket, key)


def read_whole_law(law_id: str) -> str:
    """Read a law as its readers do; return its version, once every object is what the manifest says."""
    manifest = manifests.parse_manifest(client.read_object(BUCKET, keys.manifest(law_id)))
    for entry in manifest.entries():
        content = client.read_object(BUCKET, entry.key)
        assert (len(content), hashlib.sha256(content).hexdigest()) == (entry.size, entry.sha256), entry.key
    body = json.loads(client.read_object(BUCKET, manifest.law.key))
    assert body["title"] == f"Ley {manifest.version}"
    return manifest.version
