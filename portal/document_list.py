"""Document list of a tenant, with the progress of each document: a fixed number of queries per page."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q
from django.utils.dateparse import parse_datetime

from accounts.rls import as_tenant
from documents.models import Document
from jobs import display_status
from portal.document_status import DocumentStatus, _newest_jobs, document_status

PAGE_SIZE = 20


@dataclass(frozen=True, slots=True)
class DocumentListPage:
    """``older`` is the cursor of the next page, None on the last one."""

    rows: list[DocumentStatus]
    older: str | None

    @property
    def active(self) -> bool:
        return any(row.active for row in self.rows)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(":".join(row.fingerprint for row in self.rows).encode()).hexdigest()[:16]


def list_documents(user_id: UUID, cursor: str = "") -> DocumentListPage:
    """Return the tenant's documents after ``cursor``, the newest first. An invalid cursor is the first page."""
    with as_tenant(user_id):
        own = Document.objects.filter(user_id=user_id).order_by("-created_at", "document_id")
        documents = list(own.filter(_after(cursor))[: PAGE_SIZE + 1])
        has_more, documents = len(documents) > PAGE_SIZE, documents[:PAGE_SIZE]
        jobs = _newest_jobs(user_id, documents)
        running = display_status.count_running(user_id)
    rows = [document_status(document, jobs.get(document.pk), running=running) for document in documents]
    last = documents[-1] if has_more else None
    return DocumentListPage(rows, f"{last.created_at.isoformat()}_{last.pk}" if last else None)


def _after(cursor: str) -> Q:
    created_at, _, last_id = cursor.partition("_")
    try:
        time, document_id = parse_datetime(created_at), UUID(last_id)
    except ValueError:
        return Q()
    if not isinstance(time, datetime) or time.tzinfo is None:
        return Q()
    # Both bounds: the index can start at the first one only.
    return Q(created_at__lte=time) & (Q(created_at__lt=time) | Q(document_id__gt=document_id))
