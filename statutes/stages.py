"""Stage handlers of the pipeline ``statute``, from a message's key to a live version of a law (spec 004 §4)."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models import JSONField, Value
from django.db.models.functions import Cast, Now

from documents import object_deletion, ocr_batches, parse_store, services
from documents.deterministic_ids import canonical_json, parse_id
from documents.error_codes import PARSE_HASH_MISMATCH, PARSE_TWIN_GONE
from documents.locks import lock_document
from documents.models import Document, OcrPage
from documents.parse_store import ParseResult
from documents.parsers import ocr, pdf_parser
from documents.parsers.registry import Parser
from documents.storage import buckets
from embeddings import active_model, chunk_store, pending_chunks, vector_store
from embeddings import stages as embedding_stages
from embeddings.error_codes import VECTORS_NOT_SOUND
from embeddings.pending_chunks import planned_model
from embeddings.search import bm25
from jobs import failpoints
from jobs.advisory_locks import holds_session_lock, session_lock
from jobs.choices import Stage, State
from jobs.claims import Claim, ClaimLost
from jobs.models import UploadJob
from jobs.outcomes import Advance, Moved, Outcome, Permanent, Retryable, Wait
from statutes import article_chunker, document_ids, stage_invariants, standby_document, version_order
from statutes.error_codes import LAMBDA_REFUSED, LAW_BUSY, LAW_UNKNOWN, MORE_URGENT_LAW
from statutes.intake import OUTDATED, PIPELINE
from statutes.models import Law, LawVersion
from statutes.readers import sandbox_client
from statutes.readers.file_type import Format, sniff_format
from statutes.readers.sandbox_client import ParsedStatute
from statutes.s3 import artifact_upload, client, keys, raw_files
from statutes.sqs.message_schema import PRIORITIES
from statutes.stage_invariants import CHUNKS_WITHOUT_VECTOR
from statutes.structure import schema_validation
from vendors import aws_client, calls
from vendors.vendor_account import Vendor

MIMES = {
    "pdf": "application/pdf",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xml": "application/xml",
}
SCANS = f"{sandbox_client.VERSION}.ocr-{ocr.VERSION}"  # parser version of the OCR pages that can be reused
YIELD_SECONDS = 5.0
MAX_YIELD_SECONDS = 900.0  # a job older than this no longer yields, so that none starves
LAMBDA_READ_SECONDS, LAMBDA_WAIT_SECONDS = 20.0, 60.0
UPLOADED = "uploaded_manifest"  # in the job's payload: sha256 of the manifest that this run has uploaded
# ix_law_versions_urgent gives the versions that are begun and not read; the subquery then looks up each one's job. All
# statutes belong to one user, whose jobs take 150 ms to scan at 100,000 statutes. A failed version that was withdrawn
# has no job. The inner LIMIT keeps the planner from joining.
_URGENT = """EXISTS (
        SELECT FROM law_versions v
        WHERE v.status = '{status}' AND v.job_id IS NOT NULL AND v.priority = ANY(%(before)s) AND (
            SELECT j.job_id FROM upload_jobs j
            WHERE j.document_id = v.document_id AND j.pipeline = %(pipeline)s AND j.stage = %(first)s
              AND j.state = 'queued' AND (j.run_after IS NULL OR j.wait_reason = 'MORE_URGENT_LAW')
            LIMIT 1) IS NOT NULL)"""
# Failed versions, which staff may have retried, can be many: they are scanned only where nothing else waits.
MORE_URGENT = f"""
    SELECT clock_timestamp() < %(since)s + make_interval(secs => %(aged)s) AND (
        {_URGENT.format(status="processing")} OR {_URGENT.format(status="failed")})"""
# Whether the live version has a passage that the new chunks would remove or change.
LOSES_PASSAGE = """
    SELECT EXISTS (
        SELECT FROM law_versions v JOIN laws w USING (law_id, document_id) JOIN document_chunks c USING (document_id)
        WHERE v.document_id = %(document)s AND c.chunker_name || '@' || c.chunker_version = %(chunker)s
          AND NOT EXISTS (
            SELECT FROM document_chunk_buffer b WHERE b.chunk_id = c.chunk_id AND b.chunk_sha = c.chunk_sha))"""
CHUNK_IDS_WITHOUT_VECTOR = f"""
    SELECT array((
        SELECT c.chunk_id::text {CHUNKS_WITHOUT_VECTOR.format(wanted="j", committed="false")} ORDER BY c.chunk_ord))
    FROM upload_jobs j WHERE j.job_id = %s"""


def receive(claim: Claim) -> Outcome:
    """Stage queued: yield to more urgent statutes; then check the raw file, download it, and store our own copy."""
    version, document = _version(claim), claim.job.document
    if standby_document.is_live(version):
        return standby_document.move_to_second_document(claim)
    if _yields(claim, version):
        raise Wait(YIELD_SECONDS, MORE_URGENT_LAW)
    head = raw_files.head_raw_file(version)
    with raw_files.download_raw_file(version, head) as (path, length, raw_sha256):
        file_format = sniff_format(path, most=settings.STATUTES_MAX_BYTES)
        pages = pdf_parser.inspect_pdf(path).pages if file_format == "pdf" else 1
        with claim.transaction():
            pass  # a version that was withdrawn meanwhile gets no new object
        bucket, name = buckets.locate(document.raw_path)
        bucket.put_file(path, name)
    failpoints.failpoint("queued:stored")
    try:
        with claim.transaction():
            Document.objects.filter(pk=document.pk).update(
                bytes_len=length,
                file_sha256=document_ids.file_sha256(document.pk, raw_sha256),
                mime=MIMES[file_format],
                pages=pages,
                stored_at=Now(),
                updated_at=Now(),
            )
            columns: dict[str, object] = {"raw_sha256": raw_sha256, "format": file_format}
            if raw_sha256 != version.raw_sha256:  # OCR pages and refused passages were of another file
                OcrPage.objects.filter(document_id=document.pk).delete()
                columns["reprocessed"] = 0
            _update(version, **columns)
            return claim.advance(event={"format": file_format, "bytes": length}, payload={"format": file_format})
    except ClaimLost:
        object_deletion.delete_pending_objects(document.pk)  # a no-op unless the version was withdrawn meanwhile
        raise


def _yields(claim: Claim, version: LawVersion) -> bool:
    """Tell whether a more urgent statute waits: within one user, jobs are claimed the oldest first."""
    if version.priority == PRIORITIES[0]:
        return False
    before = list(PRIORITIES[: PRIORITIES.index(version.priority)])
    params: dict[str, Any] = {"pipeline": PIPELINE, "first": Stage.QUEUED.value, "before": before}
    params |= {"since": claim.job.created_at, "aged": MAX_YIELD_SECONDS}
    with connection.cursor() as cursor:
        cursor.execute(MORE_URGENT, params)
        return bool(cursor.fetchone()[0])


def choose_reader(claim: Claim) -> Outcome:
    """Stage job_validated: choose the reader of the file's format."""
    reader = _reader(_version(claim))
    plan = {
        "parser_name": reader.name,
        "parser_version": reader.version,
        "parse_id": str(parse_id(claim.job.document_id, reader.name, reader.version)),
    }
    return Advance("PARSE_REQUESTED", fields={"payload": plan}, payload={"parser": reader.name})


def _reader(version: LawVersion) -> Parser:
    return Parser(f"law-{version.format}", sandbox_client.VERSION)


def normalize(claim: Claim) -> Outcome:
    """Stage parsing: read the file to canonical JSON, sandboxed; its rendered text is the document's parse."""
    document, version = claim.job.document, _version(claim)
    if standby_document.is_live(version):
        return standby_document.move_to_second_document(claim)
    bucket, name = buckets.locate(document.raw_path)
    failed_pages: tuple[int, ...] = ()

    def scan(path: Path, blank: Sequence[int]) -> dict[int, str]:
        """Read the blank pages with OCR, slice by slice: pages that a lost worker has read are reused."""
        nonlocal failed_pages
        pages = ["" if number in blank else "-" for number in range(1, max(blank) + 1)]
        scanned, failed_pages = ocr_batches.recognize_blank_pages(claim, path, pages, SCANS)
        return {number: scanned[number - 1] for number in blank}

    with bucket.local_file(name) as path:
        statute = sandbox_client.read_statute(
            path,
            format=cast(Format, version.format),
            scan=scan,
            header={
                "law_id": version.law_id,
                "version": version.version,
                "source": {"key": version.raw_key, "format": version.format, "sha256": version.raw_sha256},
            },
            pages=(document.pages or 1) if version.format == "pdf" else 0,
        )
    parse = ParseResult(_reader(version), statute.text, tuple(statute.page_starts), failed_pages)
    moved = standby_document.move_to_live_document(claim, version, parse, _as_jsonb(statute))
    return moved or _store_parse(claim, version, statute, parse)


def _as_jsonb(statute: ParsedStatute) -> Cast:
    return Cast(Value(statute.canonical), JSONField())


def _store_parse(claim: Claim, version: LawVersion, statute: ParsedStatute, parse: ParseResult) -> Outcome:
    document = claim.job.document
    with claim.transaction():
        pass
    path = parse_store.write_parse(document, parse)
    failpoints.failpoint("parsing:stored")
    try:
        with transaction.atomic():
            if not parse_store.lock_shared_parse(document, path):
                raise Retryable(PARSE_TWIN_GONE)
            with claim.transaction():
                fields = parse_store.record_parse(document, parse, path)
                Document.objects.filter(pk=document.pk).update(filename=statute.title or version.law_id)
                _update(version, canonical=_as_jsonb(statute), status=Law.Status.NORMALIZED)
                Law.objects.filter(pk=version.law_id, document_id=None, version=version.version).update(
                    status=Law.Status.NORMALIZED, title=statute.title, language=statute.language, updated_at=Now()
                )
                moved = claim.advance(code="PARSE_STORED", event={"bytes": len(parse.content)}, **fields)
    except ClaimLost:
        object_deletion.delete_pending_objects(document.pk)
        raise
    parse_store.delete_own_parse(document, path)
    return moved


def check_parse(claim: Claim) -> Outcome:
    """Stage parsed: check the canonical JSON against its schema, and the stored text by its hash and its pages."""
    document, version = claim.job.document, _version(claim)
    schema_validation.check_schema(version.canonical)
    content = parse_store.read_bytes(document)
    if hashlib.sha256(content).hexdigest() != document.parsed_sha256:
        raise Permanent(PARSE_HASH_MISMATCH)
    parse_store.require_pages(document, content.decode())
    return Advance()


def plan_chunks(claim: Claim) -> Outcome:
    """Stage parse_validated: chunk by article."""
    chunker = article_chunker.CHUNKER
    plan = {"chunker_name": chunker.name, "chunker_version": chunker.version}
    return Advance(fields={"chunks_version": chunker.label, "payload": plan})


def commit_chunks(claim: Claim) -> Outcome:
    """Stage chunks_buffered: in the second document where a live passage would be removed (no case is known)."""
    job = claim.job
    with connection.cursor() as cursor:
        cursor.execute(LOSES_PASSAGE, {"document": job.document_id, "chunker": job.chunks_version})
        (loses_passage,) = cursor.fetchone()
    if loses_passage:
        return standby_document.move_to_second_document(claim, for_good=True)
    return embedding_stages.commit_chunks(claim)


def embed(claim: Claim) -> Outcome:
    """Stage embedding: as for any document, but texts that the model refuses cost only passages (spec 004 §5.1)."""
    try:
        return embedding_stages.embed_chunks(claim)
    except Permanent as failure:
        if failure.code != "TEXT_REFUSED":
            raise
        job, total = claim.job, claim.job.progress["embeds_total"]
        with claim.transaction():
            pending_chunks.copy_to_duplicates(job.document_id, planned_model(job))
            refused = _chunks_without_vector(job.pk)
            if len(refused) < total:
                LawVersion.objects.filter(pk=job.document_id).update(refused=refused, updated_at=Now())
                embedded = total - len(refused)
                event = {"vectors": embedded, "refused": len(refused)}
                return claim.advance(code="EMBED_PARTIAL", event=event, progress={"embeds_done": embedded})
        raise


def _chunks_without_vector(job_id: UUID) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(CHUNK_IDS_WITHOUT_VECTOR, [job_id])
        return list(cursor.fetchone()[0])


def verify_vectors(claim: Claim) -> Outcome:
    """Stage embeddings_buffered: verify that the buffered vectors are complete and sound. None is searchable yet."""
    job = claim.job
    with claim.transaction():
        lock_document(job.document_id, "vectors")
        version = LawVersion.objects.defer("canonical").get(pk=job.document_id)
        refused = [chunk_id for chunk_id in _chunks_without_vector(job.pk) if chunk_id in version.refused]
        LawVersion.objects.filter(pk=version.pk).update(refused=refused)  # some may have been embedded since
        broken = stage_invariants.vectors_complete([job.pk])
        if not broken:
            return claim.advance(code="EMBED_VERIFIED", event={"refused": len(refused)}, payload={UPLOADED: None})
        vector_store.delete_corrupt_vectors(job.document_id)
    raise Retryable(VECTORS_NOT_SOUND, broken[job.pk])


def publish(claim: Claim) -> Outcome:
    """Stage embedded: upload the artifacts, then replace the live version; erase a version that became outdated."""
    with claim.transaction():  # a law that was withdrawn meanwhile has no row
        version = LawVersion.objects.get(pk=claim.job.document_id)
    with session_lock(document_ids.publish_lock_key(version.law_id)) as is_ours:
        if not is_ours:
            raise Wait(standby_document.BUSY_SECONDS, LAW_BUSY)

        def ensure_lock() -> None:
            with claim.transaction():
                if not holds_session_lock(document_ids.publish_lock_key(version.law_id)):
                    raise Wait(standby_document.BUSY_SECONDS, LAW_BUSY)

        if version_order.is_outdated(version.law_id, version.version, version.ingest_timestamp):
            # An earlier attempt that lost its lock while uploading may have overwritten the live version's artifacts.
            live = LawVersion.objects.filter(pk__in=Law.objects.filter(pk=version.law_id).values("document_id"))
            for row in live.filter(job_id__in=UploadJob.objects.filter(state=State.DONE).values("job_id")):
                artifact_upload.upload_artifacts(row, ensure_lock=ensure_lock)
            return _erase_outdated(claim)
        ensure_lock()
        known = claim.job.payload.get(UPLOADED)
        manifest_sha256 = artifact_upload.upload_artifacts(version, ensure_lock=ensure_lock, known=known)
        failpoints.failpoint("embedded:uploaded")
        with claim.transaction():  # so that a retry, which may wait long for the Lambda, does not upload again
            claim.save_progress(total_pct=claim.job.total_pct, payload={UPLOADED: manifest_sha256})
        invoke_lambda(version, manifest_sha256)
        return _replace_live_version(claim, version, manifest_sha256)


def invoke_lambda(version: LawVersion, manifest_sha256: str) -> bool:
    """Invoke STATUTES_LAMBDA, if it is set, asynchronously; outside of transactions, and maybe twice for a manifest.

    Raises as ``vendors.calls``, and ``Wait`` for a function that is missing or forbidden: an operator's mistake.
    """
    function = settings.STATUTES_LAMBDA
    if not function:
        return False
    event = lambda_event(version, manifest_sha256)
    parts = function.split(":")
    region = str(parts[3] if parts[0] == "arn" and len(parts) > 3 else settings.SQS_REGION)
    function_client = aws_client.create_client("lambda", region=region, endpoint=None, seconds=LAMBDA_READ_SECONDS)
    try:
        with calls.guarded_call(Vendor("lambda", function, requests_per_minute=0), "invoke"):
            # https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html
            function_client.invoke(
                FunctionName=function, InvocationType="Event", Payload=canonical_json(event).encode()
            )
    except calls.VendorRefused as refused:
        raise Wait(LAMBDA_WAIT_SECONDS, LAMBDA_REFUSED) from refused
    return True


def lambda_event(version: LawVersion, manifest_sha256: str) -> dict[str, str]:
    """Return what the function gets; ``artifact_import_lambda`` is one that takes it."""
    return {
        "bucket": client.statutes_bucket(),
        "law_id": version.law_id,
        "version": version.version,
        "manifest_key": keys.manifest(version.law_id),
        "manifest_sha256": manifest_sha256,
    }


def _replace_live_version(claim: Claim, version: LawVersion, manifest_sha256: str) -> Moved:
    """Make this version searchable instead of the live one, and record it in ``laws``: in one transaction."""
    live = Law.objects.filter(pk=version.law_id).exclude(document_id=version.pk).first()
    old = Document.objects.filter(pk=live.document_id).first() if live and live.document_id else None
    with transaction.atomic():
        for document_id in sorted({version.pk, *([old.pk] if old else [])}):
            lock_document(document_id)  # before any job's row, as deletions do
        with claim.transaction():
            moved = _commit_version(claim, version, manifest_sha256, old)
    if old is not None:
        services.delete_objects(old.pk)
    return moved


def _commit_version(claim: Claim, version: LawVersion, manifest_sha256: str, old: Document | None) -> Moved:
    job = claim.job
    lock_document(job.document_id, "vectors")
    model = planned_model(job)
    if not active_model.confirm_active_model(job.user_id, model):
        return embedding_stages.rewind_to_plan(claim)
    vector_store.commit_vectors(job.document_id, model)
    chunk_store.replace_other_chunks(job.document_id, chunks_version=job.chunks_version)
    bm25.index_document(job.document_id)
    status = Law.Status.PARTIAL_FAILED if version.refused else Law.Status.EMBEDDED
    canonical = version.canonical or {}
    law = Law(
        law_id=version.law_id,
        version=version.version,
        status=status,
        title=canonical.get("title", ""),
        language=canonical.get("language", ""),
        chunk_count=job.progress["chunks_total"],
        document_id=version.pk,
        uploader_id=version.uploader_id,
        updated_at=Now(),
    )
    columns = ["version", "status", "title", "language", "chunk_count", "document_id", "uploader_id", "updated_at"]
    Law.objects.bulk_create([law], update_conflicts=True, unique_fields=["law_id"], update_fields=columns)
    reset = {} if version.refused else {"reprocessed": 0}
    _update(version, status=status, manifest_sha256=manifest_sha256, error_code=None, **reset)
    if old is not None:
        services.delete_rows(old)
        LawVersion.objects.filter(pk=old.pk).update(canonical=None, job_id=None, updated_at=Now())
    return claim.advance(code="LAW_PUBLISHED", event={"law_status": status, "replaced": old is not None})


def _erase_outdated(claim: Claim) -> Moved:
    document = claim.job.document
    with transaction.atomic():
        lock_document(document.pk)
        with claim.transaction():
            services.delete_rows(document)
            LawVersion.objects.filter(pk=document.pk).update(
                status=Law.Status.FAILED, error_code=OUTDATED, canonical=None, job_id=None, updated_at=Now()
            )
    services.delete_objects(document.pk)
    return Moved(ended=True)


def _version(claim: Claim) -> LawVersion:
    version = LawVersion.objects.filter(pk=claim.job.document_id).defer("canonical").first()  # megabytes
    if version is None:
        raise Permanent(LAW_UNKNOWN)
    return version


def _update(version: LawVersion, **columns: object) -> None:
    LawVersion.objects.filter(pk=version.pk).update(**columns, updated_at=Now())
