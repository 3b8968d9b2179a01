"""Tenant page: newest documents with their jobs, and the money of the last days by document."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db import connection
from django.utils import timezone

from accounts.models import User
from documents.models import Document
from jobs import display_status
from jobs.models import UploadJob

MAX_DOCUMENTS = 20
SPEND_DAYS = 30
MAX_PURCHASES = 5_000  # that are summed: a tenant may have millions
MAX_COSTS = 10

# Along ix_purchases_user_day, the newest first.
COSTS = """
    SELECT document_id, (array_agg(job_id ORDER BY created_at DESC))[1], sum(cents), count(*)
    FROM (SELECT document_id, job_id, cents, created_at FROM purchases
          WHERE user_id = %(tenant)s AND campaign_id IS NULL AND created_at > %(since)s
          ORDER BY created_at DESC LIMIT %(most)s) newest
    GROUP BY document_id ORDER BY sum(cents) DESC"""


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A document and its newest job; ``standing`` says why it moves or does not."""

    document: Document
    job: UploadJob | None
    standing: str

    @property
    def code(self) -> str:
        if self.job is None or self.standing == "done":
            return ""
        return (self.job.last_error or {}).get("code") or (self.job.wait_reason if self.job.run_after else "") or ""


@dataclass(frozen=True, slots=True)
class Cost:
    document_id: UUID | None
    job_id: UUID | None
    cents: Decimal
    calls: int


@dataclass(frozen=True, slots=True)
class Spending:
    """Purchases of the last ``SPEND_DAYS`` days by document, the dearest first; ``is_cut``: of the newest only."""

    costs: Sequence[Cost]
    cents: Decimal
    is_cut: bool


def newest_documents(tenant: User) -> list[DocumentRow]:
    rows = Document.objects.filter(user_id=tenant.pk).defer("page_starts", "raw_path", "parsed_path")
    documents = list(rows.order_by("-created_at", "document_id")[:MAX_DOCUMENTS])
    jobs = UploadJob.objects.annotate(is_starved=display_status.starved_filter()).defer("payload", "traceback")
    newest: dict[UUID, UploadJob] = {}
    for job in jobs.filter(document_id__in=[row.pk for row in documents], campaign_id=None).order_by("created_at"):
        newest[job.document_id] = job
    return [DocumentRow(row, newest.get(row.pk), _standing(newest.get(row.pk))) for row in documents]


def _standing(job: UploadJob | None) -> str:
    return display_status.display_status(job, is_starved=getattr(job, "is_starved", False)) if job else "no job"


def recent_spending(tenant: User, *, now: datetime | None = None) -> Spending:
    since = (now or timezone.now()) - timedelta(days=SPEND_DAYS)
    with connection.cursor() as cursor:
        cursor.execute(COSTS, {"tenant": tenant.pk, "since": since, "most": MAX_PURCHASES})
        costs = [Cost(*row) for row in cursor.fetchall()]
    is_cut = sum(cost.calls for cost in costs) >= MAX_PURCHASES
    return Spending(costs[:MAX_COSTS], sum((cost.cents for cost in costs), Decimal(0)), is_cut)
