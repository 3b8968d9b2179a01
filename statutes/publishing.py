"""From passages to a law that is found: the last stages. A version takes its predecessor's place in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from django.db import connection, transaction
from django.db.models.functions import Now

from documents import services
from documents.locks import lock
from documents.models import Document
from embeddings import active_model, chunk_store, stages, vector_reuse, vector_store
from embeddings.indexes import bm25
from jobs import failpoints
from jobs.claims import Claim
from jobs.models import UploadJob
from jobs.outcomes import Moved, Outcome, Permanent, Postponed, Retryable, Wait
from jobs.states import State
from statutes import aws_lambda, invariants, publish_lock, reprocessing
from statutes.intake import OVERTAKEN, is_outdated
from statutes.models import Law, LawVersion
from statutes.s3 import artifacts

UPLOADED = "uploaded_manifest"  # in the job's payload: the sha256 of what this run of it has put into the bucket
_LACKING = f"""
    SELECT c.chunk_id::text {invariants.LACKING.format(wanted="j", committed="false")} ORDER BY c.chunk_ord"""
LACKING = f"SELECT array(({_LACKING})) FROM upload_jobs j WHERE j.job_id = %s"
# Of what is found: whether a passage of it is no more as it was in what is to be committed.
LOSING = """
    SELECT EXISTS (
        SELECT FROM law_versions v JOIN laws w USING (law_id, document_id) JOIN document_chunks c USING (document_id)
        WHERE v.document_id = %(document)s AND c.chunker_name || '@' || c.chunker_version = %(chunker)s
          AND NOT EXISTS (
            SELECT FROM document_chunk_buffer b WHERE b.chunk_id = c.chunk_id AND b.chunk_sha = c.chunk_sha))"""


def commit_chunks(claim: Claim) -> Outcome:
    """chunks_buffered: as every document's, but no passage that is found goes: what would take one is done beside it.

    Nothing is known that could come so far: the same text is cut into the same passages.
    """
    job = claim.job
    with connection.cursor() as cursor:
        cursor.execute(LOSING, {"document": job.document_id, "chunker": job.chunks_version})
        (is_losing,) = cursor.fetchone()
    return reprocessing.leave(claim, for_good=True) if is_losing else stages.commit_chunks(claim)


def embed(claim: Claim) -> Outcome:
    """embedding: as every document's, but what the model refuses costs the law only those passages (spec 004 §5.1)."""
    try:
        return stages.embed_chunks(claim)
    except Permanent as failure:
        if failure.code != "TEXT_REFUSED":
            raise
        job, total = claim.job, claim.job.progress["embeds_total"]
        with claim.transaction():
            vector_reuse.copy_to_duplicates(job.document_id, job.embed_model or "", job.embed_version or "")
            refused = _lacking(job.pk)
            if len(refused) < total:
                LawVersion.objects.filter(pk=job.document_id).update(refused=refused, updated_at=Now())
                done = total - len(refused)
                event = {"vectors": done, "refused": len(refused)}
                return claim.advance(code="EMBED_PARTIAL", event=event, progress={"embeds_done": done})
        raise


def _lacking(job_id: UUID) -> list[str]:
    """Return the passages of the job's cut that have no vector of its model, in order."""
    with connection.cursor() as cursor:
        cursor.execute(LACKING, [job_id])
        return list(cursor.fetchone()[0])


def verify(claim: Claim) -> Outcome:
    """embeddings_buffered: prove that what is buffered is whole and sound. Nothing of it is found as yet."""
    job = claim.job
    with claim.transaction():
        lock(job.document_id, "vectors")
        version = LawVersion.objects.defer("canonical").get(pk=job.document_id)
        refused = [chunk_id for chunk_id in _lacking(job.pk) if chunk_id in version.refused]
        LawVersion.objects.filter(pk=version.pk).update(refused=refused)  # what was refused before may be there by now
        broken = invariants.covered([job.pk])
        if not broken:
            return claim.advance(code="EMBED_VERIFIED", event={"refused": len(refused)}, payload={UPLOADED: None})
        vector_store.delete_corrupt_vectors(job.document_id)
    raise Retryable("VECTORS_NOT_SOUND", broken[job.pk])


def publish(claim: Claim) -> Outcome:
    """embedded: upload the artifacts, the manifest last; then let this version be found instead of the one before it.

    A version that was overtaken while it was worked on is taken out.
    """
    with claim.transaction():  # a law that was taken out meanwhile has no row
        version = LawVersion.objects.get(pk=claim.job.document_id)
    with publish_lock.alone(version.law_id) as is_ours:
        if not is_ours:
            return Wait(reprocessing.BUSY_SECONDS, "LAW_BUSY")

        def sure() -> None:
            _require(claim, version.law_id)

        if is_outdated(version.law_id, version.version, version):
            _mend(version.law_id, sure)
            return _withdraw(claim)
        sure()
        manifest = artifacts.upload(version, sure=sure, known=claim.job.payload.get(UPLOADED))
        failpoints.failpoint("embedded:uploaded")
        _note(claim, manifest)
        aws_lambda.invoke(version, manifest)
        return _swap(claim, version, manifest)


def _require(claim: Claim, law_id: str) -> None:
    """Raise unless the claim is ours, and this session still the one that has the law's turn."""
    with claim.transaction():
        if not publish_lock.is_ours(law_id):
            raise Postponed(reprocessing.BUSY_SECONDS, "LAW_BUSY")


def _note(claim: Claim, manifest: str) -> None:
    """Let a later try of this run, which may wait for long for the Lambda, not upload the same once more."""
    with claim.transaction():
        claim.save_progress(total_pct=claim.job.total_pct, payload={UPLOADED: manifest})


def _mend(law_id: str, sure: Callable[[], None]) -> None:
    """Upload once more what is found: an earlier try that lost its turn at work may have written over it."""
    found = LawVersion.objects.filter(pk__in=Law.objects.filter(pk=law_id).values("document_id"))
    for version in found.filter(job_id__in=UploadJob.objects.filter(state=State.DONE).values("job_id")):
        artifacts.upload(version, sure=sure)


def _swap(claim: Claim, version: LawVersion, manifest: str) -> Moved:
    """Let search find this version and not the one before it, and say so in ``laws``: in one transaction."""
    before = Law.objects.filter(pk=version.law_id).exclude(document_id=version.pk).first()
    old = Document.objects.filter(pk=before.document_id).first() if before and before.document_id else None
    with transaction.atomic():
        for document_id in sorted({version.pk, *([old.pk] if old else [])}):
            lock(document_id)  # before any job's row, as deletions do
        with claim.transaction():
            moved = _found(claim, version, manifest, old)
    if old is not None:
        services.delete_objects(old.pk)
    return moved


def _found(claim: Claim, version: LawVersion, manifest: str, old: Document | None) -> Moved:
    job = claim.job
    lock(job.document_id, "vectors")
    model = {"model": job.embed_model or "", "version": job.embed_version or ""}
    if not active_model.confirm_active_model(job.user_id, **model):
        return stages.rewind_to_plan(claim)
    vector_store.commit_vectors(job.document_id, **model)
    chunk_store.replace_other_chunks(job.document_id, chunks_version=job.chunks_version)
    bm25.index_document(job.document_id)
    status = Law.Status.PARTIAL_FAILED if version.refused else Law.Status.EMBEDDED
    _record(version, status, manifest, chunk_count=job.progress["chunks_total"])
    if old is not None:
        services.delete_rows(old)
        LawVersion.objects.filter(pk=old.pk).update(canonical=None, job_id=None, updated_at=Now())
    return claim.advance(code="LAW_PUBLISHED", event={"law_status": status, "replaced": old is not None})


def _record(version: LawVersion, status: str, manifest: str, *, chunk_count: int) -> None:
    told = version.canonical or {}
    law = Law(
        law_id=version.law_id,
        version=version.version,
        status=status,
        title=told.get("title", ""),
        language=told.get("language", ""),
        chunk_count=chunk_count,
        document_id=version.pk,
        uploader_id=version.uploader_id,
        updated_at=Now(),
    )
    columns = ["version", "status", "title", "language", "chunk_count", "document_id", "uploader_id", "updated_at"]
    Law.objects.bulk_create([law], update_conflicts=True, unique_fields=["law_id"], update_fields=columns)
    LawVersion.objects.filter(pk=version.pk).update(
        status=status, manifest_sha256=manifest, error_code=None, updated_at=Now()
    )
    if not version.refused:
        LawVersion.objects.filter(pk=version.pk).update(reprocessed=0)


def _withdraw(claim: Claim) -> Moved:
    """Take out a version that a newer one has overtaken: its document, its passages, and this very job."""
    document = claim.job.document
    with transaction.atomic():
        lock(document.pk)
        with claim.transaction():
            services.delete_rows(document)
            LawVersion.objects.filter(pk=document.pk).update(
                status=Law.Status.FAILED, error_code=OVERTAKEN, canonical=None, job_id=None, updated_at=Now()
            )
    services.delete_objects(document.pk)
    return Moved(claim.job.stage, finished=True)
