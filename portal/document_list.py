"""Document list of a tenant, with the progress of each document: a fixed number of queries per page."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from accounts.rls import as_tenant
from documents.models import Document, DocumentTag, Tag
from jobs import display_status
from portal.document_status import DocumentStatus, _newest_jobs, document_status
from portal.list_query import ListQuery

PAGE_SIZE = 50


@dataclass(frozen=True, slots=True)
class ListRow:
    status: DocumentStatus
    tags: Sequence[Tag]

    @property
    def id(self) -> UUID:
        return self.status.id

    @property
    def document(self) -> Document:
        return self.status.document

    @property
    def fingerprint(self) -> str:
        tags = ",".join(f"{tag.name}/{tag.color}" for tag in self.tags)
        return f"{self.status.fingerprint}-{self.document.filename}-{tags}"


@dataclass(frozen=True, slots=True)
class DocumentListPage:
    """``older`` is the cursor of the next page, None on the last one."""

    rows: list[ListRow]
    older: str | None

    @property
    def active(self) -> bool:
        return any(row.status.active for row in self.rows)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(":".join(row.fingerprint for row in self.rows).encode()).hexdigest()[:16]


def list_documents(user_id: UUID, query: ListQuery | None = None) -> DocumentListPage:
    """Return the page of the tenant's documents that ``query`` asks for; an invalid cursor is the first page."""
    query = query or ListQuery()
    with as_tenant(user_id):
        own = Document.objects.filter(query.conditions(user_id)).order_by(*query.order.order_by)
        documents = list(own[: PAGE_SIZE + 1])
        has_more, documents = len(documents) > PAGE_SIZE, documents[:PAGE_SIZE]
        jobs = _newest_jobs(user_id, documents)
        tags = document_tags(user_id, documents)
        running = display_status.count_running(user_id)
    rows = [
        ListRow(document_status(document, jobs.get(document.pk), running=running), tags.get(document.pk, []))
        for document in documents
    ]
    return DocumentListPage(rows, query.cursor_after(documents[-1]) if has_more else None)


def document_tags(user_id: UUID, documents: Sequence[Document]) -> dict[UUID, list[Tag]]:
    """Return the tags of documents by name; call inside ``as_tenant``."""
    given: dict[UUID, list[Tag]] = {}
    own = DocumentTag.objects.filter(user_id=user_id, document__in=[document.pk for document in documents])
    for row in own.select_related("tag").order_by("tag__key"):
        given.setdefault(row.document_id, []).append(row.tag)
    return given


def get_documents(user_id: UUID, document_ids: Sequence[UUID]) -> list[Document]:
    """Return those of the tenant's documents among ``document_ids`` that exist, by name."""
    with as_tenant(user_id):
        own = Document.objects.filter(user_id=user_id, pk__in=document_ids)
        return list(own.order_by("sort_name", "document_id")[:PAGE_SIZE])
