"""Tags of a tenant: create, change, delete, and give to documents."""

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, QuerySet

from accounts.common_error_codes import INVALID_REQUEST, not_found
from accounts.errors import ApiError
from accounts.rls import as_tenant
from documents import error_codes
from documents.locks import lock_document
from documents.models import Document, DocumentTag, Tag
from documents.upload_request_validation import remove_invisible
from jobs.advisory_locks import lock_transaction

MAX_TAGS = 200  # of a tenant
MAX_DOCUMENT_TAGS = 20
MAX_NAME_CHARS = 40
MAX_FILTER_TAGS = 50  # of a list or a search
# Both ids are the tenant's, whatever was asked for.
ADD_TAG = """
    INSERT INTO document_tags (document_id, tag_id, user_id)
    SELECT d.document_id, t.tag_id, d.user_id FROM documents d JOIN tags t USING (user_id)
    WHERE d.document_id = %(document)s AND d.user_id = %(user)s AND t.tag_id = ANY(%(tags)s)
    ON CONFLICT (document_id, tag_id) DO NOTHING"""


def tenant_tags(user_id: UUID) -> QuerySet[Tag]:
    return Tag.objects.filter(user_id=user_id)


def list_tags(user_id: UUID) -> list[Tag]:
    """Return the tenant's tags by name."""
    with as_tenant(user_id):
        return list(tenant_tags(user_id).order_by("key")[:MAX_TAGS])


def get_tag(user_id: UUID, tag_id: UUID) -> Tag:
    """Return a tag of the tenant's. Raises ``ApiError``: NOT_FOUND for another tenant's, too."""
    with as_tenant(user_id):
        tag = tenant_tags(user_id).filter(pk=tag_id).first()
    if tag is None:
        raise not_found()
    return tag


def create_tag(*, user_id: UUID, name: str, color: str = Tag.Color.GRAY) -> tuple[Tag, bool]:
    """Return the tenant's tag of that name, and whether it is new: one that exists keeps its colour."""
    name = clean_name(name)
    with transaction.atomic():
        _lock_tags(user_id)
        known = tenant_tags(user_id).filter(key=name_key(name)).first()
        if known is not None:
            return known, False
        if tenant_tags(user_id).count() >= MAX_TAGS:
            raise ApiError(error_codes.TAG_LIMIT_REACHED)
        return Tag.objects.create(user_id=user_id, name=name, key=name_key(name), color=color), True


def change_tag(tag: Tag, *, name: str | None = None, color: str | None = None) -> Tag:
    """Rename or recolour a tag. Raises ``ApiError``: TAG_NAME_TAKEN, and NOT_FOUND if it was deleted meanwhile."""
    changes = {} if color is None else {"color": color}
    if name is not None:
        name = clean_name(name)
        changes |= {"name": name, "key": name_key(name)}
    with transaction.atomic():
        _lock_tags(tag.user_id)
        own = tenant_tags(tag.user_id)
        if name is not None and own.filter(key=changes["key"]).exclude(pk=tag.pk).exists():
            raise ApiError(error_codes.TAG_NAME_TAKEN, field="name")
        if changes and not own.filter(pk=tag.pk).update(**changes):
            raise not_found()
    return get_tag(tag.user_id, tag.pk)


def delete_tag(tag: Tag) -> None:
    """Delete a tag; the documents that have it stay."""
    with transaction.atomic():
        _lock_tags(tag.user_id)
        tenant_tags(tag.user_id).filter(pk=tag.pk).delete()


def set_tags(document: Document, tag_ids: Collection[UUID]) -> None:
    """Give a document exactly these tags. Raises ``ApiError``: UNKNOWN_TAG, TOO_MANY_TAGS, NOT_FOUND."""
    chosen = set(tag_ids)
    with transaction.atomic():
        _lock_document(document)
        if tenant_tags(document.user_id).filter(pk__in=chosen).count() < len(chosen):
            raise ApiError(error_codes.UNKNOWN_TAG, field="tags")
        _tag_rows(document).exclude(tag__in=chosen).delete()
        _add_tags(document, chosen)


def add_tags(document: Document, tag_ids: Iterable[UUID]) -> None:
    """Give a document these tags as well; ids that are not the tenant's are passed over."""
    with transaction.atomic():
        _lock_document(document)
        _add_tags(document, tag_ids)


def remove_tags(document: Document, tag_ids: Iterable[UUID]) -> None:
    _tag_rows(document).filter(tag__in=list(tag_ids)).delete()


def clean_name(name: str) -> str:
    """Return a name without invisible characters and repeated spaces; raise ``ApiError`` for none or a long one."""
    cleaned = re.sub(r"\s+", " ", remove_invisible(re.sub(r"\s", " ", unicodedata.normalize("NFC", name)))).strip()
    if not cleaned or max(len(name), len(cleaned)) > MAX_NAME_CHARS:
        raise ApiError(error_codes.INVALID_TAG_NAME, field="name")
    return cleaned


def name_key(name: str) -> str:
    """Return what two names that differ in case alone have in common, whatever the database's locale."""
    return unicodedata.normalize("NFKC", name).casefold()


def has_any_tag(user_id: UUID, tag_ids: Sequence[UUID]) -> Exists:
    """Return the condition on documents that they have any of these tags."""
    return Exists(DocumentTag.objects.filter(document=OuterRef("pk"), user_id=user_id, tag__in=tag_ids))


def parse_tag_ids(values: Sequence[str]) -> list[UUID]:
    """Parse the ``tag`` parameters of a list; raise ``ApiError`` for one that is no id, and for too many."""
    try:
        tag_ids = [UUID(value) for value in values if value]
    except ValueError:
        raise ApiError(INVALID_REQUEST, "tag is the id of a tag.", field="tag") from None
    if len(tag_ids) > MAX_FILTER_TAGS:
        raise ApiError(INVALID_REQUEST, f"{MAX_FILTER_TAGS} tags are the most.", field="tag")
    return tag_ids


def _tag_rows(document: Document) -> QuerySet[DocumentTag]:
    return DocumentTag.objects.filter(document=document, user_id=document.user_id)


def _add_tags(document: Document, tag_ids: Iterable[UUID]) -> None:
    params: dict[str, Any] = {"document": document.pk, "user": document.user_id, "tags": list(tag_ids)}
    with connection.cursor() as cursor:
        cursor.execute(ADD_TAG, params)
    if _tag_rows(document).count() > MAX_DOCUMENT_TAGS:
        raise ApiError(error_codes.TOO_MANY_TAGS, field="tags")


def _lock_document(document: Document) -> None:
    """Let neither the document nor a tag of the tenant's be deleted until the transaction ends."""
    lock_document(document.pk)
    _lock_tags(document.user_id)
    if not Document.objects.filter(pk=document.pk, user_id=document.user_id).exists():
        raise not_found()


def _lock_tags(user_id: UUID) -> None:
    lock_transaction(f"tags:{user_id}")
