"""The walk over the old documents: one verdict for each, shared by the dry run and the import."""

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from itertools import groupby, islice
from pathlib import Path
from typing import cast
from uuid import UUID

import numpy as np
from django.conf import settings

from accounts.errors import ApiError, ErrorCode
from documents import deterministic_ids
from documents.error_codes import TOO_MANY_PAGES
from documents.models import Document
from documents.parsers import pdf_parser, registry
from documents.storage import buckets
from documents.upload_request_validation import validate_upload
from embeddings import embedding_calls
from embeddings.embedders.http_base import HttpEmbedder
from embeddings.embedders.registry import DIMENSIONS, EmbeddingModel, find_embedder
from embeddings.vector_store import decode_vector
from jobs.outcomes import StageFailure
from legacy import error_codes
from legacy.column_mapping import OldMapping
from legacy.inventory import known_user_ids
from legacy.models import ImportRun, LegacyDocument
from legacy.old_bucket import OldBucket, decrypt
from legacy.old_database import OldCatalog, OldChunk, OldDocument
from vendors import ledger

REINGEST, ADOPT = ImportRun.Mode.REINGEST, ImportRun.Mode.ADOPT
BATCH = 32  # documents whose files are read ahead
PDF_HEADER = b"%PDF-"
LEAST_COSINE = 0.999
STAGE = "legacy_sample"  # of the purchases of sampled vectors


class Action(StrEnum):
    IMPORT = "import"
    MERGE = "merge"  # with a document of the same user and the same bytes
    REFUSE = "refuse"
    UNCHANGED = "unchanged"  # since an earlier run


@dataclass(slots=True)
class Verdict:
    """The fate of one old document. ``file`` is a copy of its bytes, decrypted; the consumer may move it."""

    old: OldDocument
    fingerprint: str
    action: Action = Action.IMPORT
    code: ErrorCode | None = None  # why it is refused, or reingested although the run adopts
    mode: ImportRun.Mode = REINGEST
    file: Path | None = None
    filename: str = ""
    bytes_len: int = 0
    file_sha256: str = ""
    pages: int = 0
    document_id: UUID | None = None
    chunks: list[OldChunk] = field(default_factory=list)
    tokens: int = 0
    cents: Decimal = Decimal(0)

    @property
    def user_id(self) -> UUID:
        """The tenant of a document that is not refused."""
        return cast(UUID, self.old.user_id)

    def refuse(self, code: ErrorCode) -> None:
        self.action, self.code = Action.REFUSE, code

    def reingest(self, code: ErrorCode) -> None:
        self.mode, self.code = REINGEST, code


class Plan:
    """Verdicts of one run. ``sample_vendors``: chunks may be embedded again by a vendor, which costs money."""

    def __init__(
        self,
        catalog: OldCatalog,
        mapping: OldMapping,
        old_bucket: OldBucket,
        *,
        mode: ImportRun.Mode,
        sample_vendors: bool,
    ) -> None:
        self.catalog, self.mapping, self.bucket, self.mode = catalog, mapping, old_bucket, mode
        self.sample_vendors = sample_vendors
        self.model = model_of(mapping)
        self._users = known_user_ids()
        self._planned: set[UUID] = set()

    def verdicts(self) -> Iterator[Verdict]:
        """Yield the verdict of each old document; its file is deleted when the next one is asked for."""
        documents = self.catalog.documents(self.mapping.sections["documents"])
        with ThreadPoolExecutor(max_workers=2) as readers:
            while batch := list(islice(documents, BATCH)):
                verdicts = [self._begin(old) for old in batch]
                known = LegacyDocument.objects.in_bulk([old.old_id for old in batch])
                for verdict in verdicts:
                    self._compare(verdict, known.get(verdict.old.old_id))
                try:
                    list(readers.map(self._read_file, verdicts))
                    self._check_chunks(verdicts)
                    for verdict in verdicts:
                        self._place(verdict, known.get(verdict.old.old_id))
                        yield verdict
                finally:
                    for verdict in verdicts:
                        if verdict.file is not None:
                            verdict.file.unlink(missing_ok=True)

    def _begin(self, old: OldDocument) -> Verdict:
        version = self.bucket.version(old.path) if old.path else ""
        verdict = Verdict(old, fingerprint=f"{old.row_hash}:{version}", mode=self.mode)
        if old.user_id is None or old.user_id not in self._users:
            verdict.refuse(error_codes.UNKNOWN_USER)
        elif not version:
            verdict.refuse(error_codes.FILE_MISSING)
        return verdict

    def _compare(self, verdict: Verdict, known: LegacyDocument | None) -> None:
        """Mark a document that an earlier run imported and that has not changed since; a refused one is tried again."""
        if known and known.state != LegacyDocument.State.REFUSED and known.fingerprint == verdict.fingerprint:
            verdict.action, verdict.code = Action.UNCHANGED, None
            verdict.document_id = known.document_id

    def _read_file(self, verdict: Verdict) -> None:
        """Copy the file here, decrypted, and check it. In a thread: no database."""
        if verdict.action != Action.IMPORT:
            return
        try:
            content = read_content(self.bucket, verdict.old)
            verdict.file_sha256, verdict.bytes_len = hashlib.sha256(content).hexdigest(), len(content)
            verdict.filename = validate_upload(
                filename=verdict.old.filename or Path(verdict.old.path).name,
                bytes_len=len(content),
                mime=buckets.MIME,
                sha256=verdict.file_sha256,
            )
            raw, _ = buckets.locate(buckets.object_uri("raw", verdict.user_id, UUID(int=0), "pdf"))
            verdict.file = raw.write_incoming([content])
            verdict.pages = pdf_parser.inspect_pdf(verdict.file).pages
            if verdict.pages > settings.MAX_PAGES:
                verdict.refuse(TOO_MANY_PAGES)
        except (ApiError, StageFailure) as error:
            verdict.refuse(error.code)

    def _check_chunks(self, verdicts: Sequence[Verdict]) -> None:
        adopted = [verdict for verdict in verdicts if verdict.action == Action.IMPORT and verdict.mode == ADOPT]
        if not adopted:
            return
        by_id = self.catalog.chunks(self.mapping.sections["chunks"], [verdict.old.old_id for verdict in adopted])
        for verdict in adopted:
            verdict.chunks = by_id.get(verdict.old.old_id, [])
            _check_chunks(verdict)
        sound = [verdict for verdict in adopted if verdict.action == Action.IMPORT and verdict.mode == ADOPT]
        for user_id, group in groupby(sound, key=lambda verdict: verdict.user_id):
            self._compare_samples(user_id, list(group))

    def _compare_samples(self, user_id: UUID, verdicts: Sequence[Verdict]) -> None:
        """Embed a chunk of each document again: the declared model must have made the old vectors."""
        embedder = find_embedder(self.model)
        if isinstance(embedder, HttpEmbedder) and not self.sample_vendors:
            return
        if embedder is None:
            for verdict in verdicts:
                verdict.reingest(error_codes.MODEL_NOT_ACTIVE)
            return
        chunks = [verdict.chunks[int(verdict.file_sha256[:8], 16) % len(verdict.chunks)] for verdict in verdicts]
        vectors = embedding_calls.embed_texts(embedder, [chunk.text for chunk in chunks], user_id=user_id, stage=STAGE)
        for verdict, chunk, vector in zip(verdicts, chunks, vectors, strict=True):
            old = decode_vector(chunk.vector or b"")
            if float(old @ vector) / float(np.linalg.norm(old) * np.linalg.norm(vector)) < LEAST_COSINE:
                verdict.reingest(error_codes.VECTOR_DISAGREES)

    def _place(self, verdict: Verdict, known: LegacyDocument | None) -> None:
        """Give the document its new id, see whether it is here already, and price it."""
        if verdict.action != Action.IMPORT:
            return
        verdict.document_id = deterministic_ids.document_id(verdict.user_id, verdict.file_sha256)
        if known and known.document_id == verdict.document_id:
            verdict.action = Action.UNCHANGED  # its row has changed, its file has not
        elif verdict.document_id in self._planned or Document.objects.filter(document_id=verdict.document_id).exists():
            verdict.action = Action.MERGE
        else:
            self._planned.add(verdict.document_id)
            if verdict.mode == REINGEST:
                is_local = registry.configured_parser(ocr=False).name == pdf_parser.NAME
                verdict.tokens, verdict.cents = ledger.predict_price(verdict.pages, is_local=is_local)


def model_of(mapping: OldMapping) -> EmbeddingModel:
    model, _, version = mapping.adopt_model.rpartition("@")
    return EmbeddingModel(model, version)


def read_content(old_bucket: OldBucket, old: OldDocument) -> bytes:
    """Return the document's bytes, decrypted. Raises ``ApiError("FILE_MISSING")``, ``("FILE_NOT_DECRYPTED")``."""
    try:
        content = old_bucket.read(old.path)
    except FileNotFoundError as error:
        raise ApiError(error_codes.FILE_MISSING) from error
    is_encrypted = old.encrypted
    if is_encrypted is None:
        is_encrypted = bool(settings.LEGACY_DECRYPT) and not content.startswith(PDF_HEADER)
    return decrypt(content) if is_encrypted else content


def _check_chunks(verdict: Verdict) -> None:
    """Refuse a document whose chunks cannot be adopted, or let it be reingested."""
    chunks, text = verdict.chunks, verdict.old.text
    if not chunks or not text:
        return verdict.reingest(error_codes.NO_CHUNKS_TO_ADOPT)
    if [chunk.ord for chunk in chunks] != list(range(len(chunks))):
        return verdict.refuse(error_codes.CHUNK_GAP)
    if not all(_is_usable(chunk.vector) for chunk in chunks):
        return verdict.refuse(error_codes.VECTOR_UNUSABLE)
    if len(list(locate_chunks(text, chunks))) < len(chunks):
        return verdict.reingest(error_codes.CHUNK_NOT_IN_TEXT)
    return None


def _is_usable(vector: bytes | None) -> bool:
    return vector is not None and len(vector) == 4 + 4 * DIMENSIONS and bool(decode_vector(vector).any())


def locate_chunks(text: str, chunks: Sequence[OldChunk]) -> Iterator[int]:
    """Yield where each chunk starts in the text, in characters; end at the first that is not there."""
    start = 0
    for chunk in chunks:
        start = text.find(chunk.text, start)
        if start < 0 or not chunk.text.strip():
            return
        yield start
