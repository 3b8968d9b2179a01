"""What must hold of every law: of its rows, as one statement each, and of its objects in the bucket."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings

from accounts.system_tenant import SYSTEM_TENANT_ID
from jobs.states import ACTIVE
from statutes.models import Law, LawVersion
from statutes.s3 import artifact_source, keys
from statutes.s3.artifact_source import Source
from statutes.s3.manifests import Entry, Manifest, ManifestRefused

# A version's status is "processing" from the message on: what is said here is of those that nobody is at.
_AT_REST = "v.status IN ('embedded', 'partial_failed')"
_NOBODY_AT_IT = f"""NOT EXISTS (
            SELECT FROM upload_jobs j WHERE j.document_id = v.document_id
              AND j.state IN ({", ".join(f"'{state}'" for state in sorted(ACTIVE))}))"""
_INCOMPLETE = """FROM laws w JOIN law_versions v USING (document_id) JOIN documents d USING (document_id)
        CROSS JOIN LATERAL (
            SELECT count(*) AS passages,
                   count(*) FILTER (WHERE c.embed_model IS NULL AND NOT v.refused ? c.chunk_id::text) AS lost
            FROM document_chunks c WHERE c.document_id = w.document_id
              AND c.chunker_name || '@' || c.chunker_version = d.chunks_version) c
        WHERE (c.passages <> w.chunk_count OR c.lost > 0)"""

ROWS = {
    "law": f"""SELECT w.law_id, 'What is found of the law is not its version, or no document of the corpus.'
        FROM laws w LEFT JOIN law_versions v USING (document_id) LEFT JOIN documents d USING (document_id)
        WHERE w.document_id IS NOT NULL
          AND (v.law_id, v.version, d.user_id) IS DISTINCT FROM (w.law_id, w.version, '{SYSTEM_TENANT_ID}'::uuid)""",
    "law's status": """SELECT w.law_id, 'The law is found and does not say so, or the other way round.'
        FROM laws w WHERE (w.document_id IS NOT NULL) <> (w.status IN ('embedded', 'partial_failed'))""",
    "law's passages": f"""SELECT w.law_id, 'Passages of the law are missing, or are neither found nor noted as refused.'
        {_INCOMPLETE} AND ({_AT_REST} OR {_NOBODY_AT_IT})""",
    "law without artifacts": f"""SELECT w.law_id, 'The law is found, and no manifest of it was uploaded.'
        FROM laws w JOIN law_versions v USING (document_id) WHERE {_AT_REST} AND v.manifest_sha256 IS NULL""",
    "version without a job": """SELECT v.document_id, 'The version is to be worked on, and has no job.'
        FROM law_versions v WHERE v.status IN ('processing', 'normalized') AND NOT EXISTS (
            SELECT FROM upload_jobs j WHERE j.job_id = v.job_id AND j.document_id = v.document_id)""",
    "version beside another": """SELECT v.document_id, 'The version is found, and it is not the one that its law names.'
        FROM law_versions v LEFT JOIN laws w USING (law_id)
        WHERE w.document_id IS DISTINCT FROM v.document_id AND EXISTS (
            SELECT FROM document_chunks c WHERE c.document_id = v.document_id AND c.embed_model IS NOT NULL)""",
    "version that stays": """SELECT v.document_id, 'The text of the version is kept, and its document is gone.'
        FROM law_versions v WHERE v.canonical IS NOT NULL AND NOT EXISTS (
            SELECT FROM documents d WHERE d.document_id = v.document_id)""",
    "document of no law": f"""SELECT d.document_id, 'The document is the corpus'' and of no law.'
        FROM documents d WHERE d.user_id = '{SYSTEM_TENANT_ID}' AND NOT EXISTS (
            SELECT FROM law_versions v WHERE v.document_id = d.document_id)""",
}

CHANGED = "An object is missing, or is not the one that the manifest names"
NO_MANIFEST = "The law's manifest is missing."
OTHER_MANIFEST = "The law's manifest is not the one that was uploaded."
OTHER_VERSION = "The law's manifest names another version than the one that is found."


def find_changed_artifacts() -> Iterator[tuple[str, str]]:
    """Hold each object of each law that was uploaded here against its manifest; slow, it reads the whole bucket.

    Yields a law's id and what is wrong. A law that is being published meanwhile is looked at once more.
    """
    if not settings.STATUTES_BUCKET:
        return
    source = artifact_source.BucketSource(settings.STATUTES_BUCKET)
    for law_id in _uploaded():
        if _wrong(source, law_id) and (reason := _wrong(source, law_id)):
            yield law_id, reason


def _uploaded() -> list[str]:
    """Return the laws that have objects in our bucket: one that was ingested from elsewhere has no job."""
    ours = LawVersion.objects.filter(manifest_sha256__isnull=False, job_id__isnull=False)
    return list(Law.objects.filter(document_id__in=ours.values("pk")).order_by("pk").values_list("pk", flat=True))


def _wrong(source: Source, law_id: str) -> str | None:
    """Return what is wrong with a law's objects, None when all is well or the law is gone."""
    law = Law.objects.filter(pk=law_id).first()
    if law is None or law.document_id is None:
        return None
    version = LawVersion.objects.filter(pk=law.document_id).values_list("version", "manifest_sha256").first()
    try:
        manifest, sha256 = artifact_source.read_manifest(source, law_id)
    except FileNotFoundError:
        return NO_MANIFEST
    except ManifestRefused as refused:
        return refused.detail
    if version is None or manifest.version != version[0]:
        return OTHER_VERSION
    if sha256 != version[1] and not _is_kept_aside(manifest):
        return OTHER_MANIFEST
    return next((reason for entry in manifest.entries() if (reason := _differs(source, manifest, entry))), None)


def _is_kept_aside(manifest: Manifest) -> bool:
    """Tell whether the law's next version began to be uploaded: the manifest then names where its objects are kept."""
    return any(entry.key.startswith(keys.former(manifest.law_id)) for entry in manifest.entries())


def _differs(source: Source, manifest: Manifest, entry: Entry) -> str | None:
    try:
        if entry is manifest.embeddings:
            with artifact_source.verified_file(source, entry):
                return None
        artifact_source.read_verified(source, entry)
    except ManifestRefused:
        return f"{CHANGED}: {_name(manifest, entry)}."
    return None


def _name(manifest: Manifest, entry: Entry) -> str:
    if entry.chunk_id:
        return f"passage {entry.chunk_id}"
    return "the vectors" if entry is manifest.embeddings else "the canonical law"
