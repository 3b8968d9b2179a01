"""Document list of a tenant, with the progress of each document: a fixed number of queries per page."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q
from django.utils.dateparse import parse_datetime

from accounts.error_codes import not_found
from accounts.rls import as_tenant
from documents.models import Document
from jobs import display_status, services
from jobs.models import UploadJob
from portal.document_status import DocumentStatus, document_status

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


def get_document(user_id: UUID, document_id: UUID) -> DocumentStatus:
    """Return a document of the tenant. Raises ``NOT_FOUND`` for another tenant's and for one that does not exist."""
    with as_tenant(user_id):
        document = Document.objects.filter(user_id=user_id, pk=document_id).first()
        if document is None:
            raise not_found()
        job = _newest_jobs(user_id, [document]).get(document_id)
        return document_status(document, job, running=display_status.count_running(user_id))


def _newest_jobs(user_id: UUID, documents: Sequence[Document]) -> dict[UUID, UploadJob]:
    own = services.tenant_jobs().filter(user_id=user_id, document_id__in=[document.pk for document in documents])
    newest = own.order_by("document_id", "-created_at", "-job_id").distinct("document_id")
    return {job.document_id: job for job in newest}


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
