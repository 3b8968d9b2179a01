"""Integrity check of statutes' artifacts: S3 objects against their manifest."""

from collections.abc import Iterator

from django.conf import settings

from statutes.models import Law, LawVersion
from statutes.s3 import artifact_source, keys
from statutes.s3.artifact_source import Source
from statutes.s3.manifests import Entry, Manifest, ManifestRefused

CHANGED = "An object is missing, or is not the one that the manifest names"
NO_MANIFEST = "The law's manifest is missing."
OTHER_MANIFEST = "The law's manifest is not the one that was uploaded."
OTHER_VERSION = "The law's manifest names another version than the one that is found."


def find_changed_artifacts() -> Iterator[tuple[str, str]]:
    """Yield the id of each statute whose objects differ from its manifest, and the reason; read the whole bucket.

    A statute that differs is checked twice, because it may be published meanwhile. One that was imported from
    elsewhere has no job, and no objects here.
    """
    if not settings.STATUTES_BUCKET:
        return
    source = artifact_source.BucketSource(settings.STATUTES_BUCKET)
    uploaded = LawVersion.objects.filter(manifest_sha256__isnull=False, job_id__isnull=False).values("pk")
    for law_id in list(Law.objects.filter(document_id__in=uploaded).order_by("pk").values_list("pk", flat=True)):
        if _find_difference(source, law_id) and (reason := _find_difference(source, law_id)):
            yield law_id, reason


def _find_difference(source: Source, law_id: str) -> str | None:
    law = Law.objects.filter(pk=law_id).first()
    if law is None or law.document_id is None:
        return None
    version = LawVersion.objects.filter(pk=law.document_id).values_list("version", "manifest_sha256").first()
    try:
        manifest, sha256 = artifact_source.read_manifest(source, law_id)
    except FileNotFoundError:
        return NO_MANIFEST
    except ManifestRefused as error:
        return error.detail
    if version is None or manifest.version != version[0]:
        return OTHER_VERSION
    # While the next version is uploaded, the manifest names the place where this one's objects are kept.
    is_replaced = any(entry.key.startswith(keys.former(law_id)) for entry in manifest.entries())
    if sha256 != version[1] and not is_replaced:
        return OTHER_MANIFEST
    return next((reason for entry in manifest.entries() if (reason := _check_object(source, manifest, entry))), None)


def _check_object(source: Source, manifest: Manifest, entry: Entry) -> str | None:
    name = f"passage {entry.chunk_id}" if entry.chunk_id else "the canonical law"
    try:
        if entry is manifest.embeddings:
            name = "the vectors"
            with artifact_source.verified_file(source, entry):
                return None
        artifact_source.read_verified(source, entry)
    except ManifestRefused:
        return f"{CHANGED}: {name}."
    return None
