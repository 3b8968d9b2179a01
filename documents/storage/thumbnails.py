"""Thumbnails: the image of a document's first page, beside its parsed text, deleted with it."""

from django.db import transaction

from documents.locks import lock_document
from documents.models import Document
from documents.storage import buckets


def thumbnail_path(document: Document) -> str:
    return buckets.object_uri("parsed", document.user_id, document.pk, "jpg")


def read_thumbnail(document: Document) -> bytes | None:
    """Return the stored thumbnail, None where there is none yet. Raises ``OSError`` of the store."""
    bucket, name = buckets.locate(thumbnail_path(document))
    return bucket.read(name) if bucket.exists(name) else None


def store_thumbnail(document: Document, image: bytes) -> None:
    """Write the thumbnail, unless the document was deleted meanwhile: it must leave no object."""
    bucket, name = buckets.locate(thumbnail_path(document))
    with transaction.atomic():
        lock_document(document.pk)
        if Document.objects.filter(pk=document.pk).exists():
            bucket.put(name, image)
