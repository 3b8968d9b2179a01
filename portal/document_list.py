"""What a tenant has, and how far each document is: a fixed number of queries for a page of the list."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q
from django.utils.dateparse import parse_datetime

from accounts.errors import not_found
from accounts.rls import as_tenant
from documents.models import Document
from jobs import progress, services
from jobs.models import UploadJob
from portal.document_status import Shown, shown

PAGE = 20


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of the list. ``older`` is the place where the next one begins, None on the last."""

    rows: list[Shown]
    older: str | None

    @property
    def active(self) -> bool:
        return any(row.active for row in self.rows)

    @property
    def fingerprint(self) -> str:
        """Differs whenever something has moved that the list shows."""
        return hashlib.sha256(":".join(row.fingerprint for row in self.rows).encode()).hexdigest()[:16]


def listed(user_id: UUID, place: str = "") -> Listed:
    """Return the tenant's documents from ``place`` on, the newest first; a place that is none is the beginning."""
    with as_tenant(user_id):
        own = Document.objects.filter(user_id=user_id).order_by("-created_at", "document_id")
        found = list(own.filter(_after(place))[: PAGE + 1])
        page = found[:PAGE]
        newest = _newest(user_id, page)
        running = progress.count_running(user_id)
    rows = [shown(document, newest.get(document.pk), running=running) for document in page]
    return Listed(rows, _place(page[-1]) if len(found) > PAGE else None)


def one(user_id: UUID, document_id: UUID) -> Shown:
    """Return a document of the tenant's; raise ``Refused("NOT_FOUND")`` for what is another's or is not there."""
    with as_tenant(user_id):
        document = Document.objects.filter(user_id=user_id, pk=document_id).first()
        if document is None:
            raise not_found()
        job = _newest(user_id, [document]).get(document_id)
        return shown(document, job, running=progress.count_running(user_id))


def _newest(user_id: UUID, documents: Sequence[Document]) -> dict[UUID, UploadJob]:
    own = services.tenant_jobs().filter(user_id=user_id, document_id__in=[document.pk for document in documents])
    newest = own.order_by("document_id", "-created_at", "-job_id").distinct("document_id")
    return {job.document_id: job for job in newest}


def _place(document: Document) -> str:
    return f"{document.created_at.isoformat()}_{document.pk}"


def _after(place: str) -> Q:
    at, _, last = place.partition("_")
    try:
        moment, document_id = parse_datetime(at), UUID(last)
    except ValueError:
        return Q()
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        return Q()
    # Both bounds: the first alone is what the index can begin at.
    return Q(created_at__lte=moment) & (Q(created_at__lt=moment) | Q(document_id__gt=document_id))
