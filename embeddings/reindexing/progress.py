"""Progress of a campaign in documents and cents, in total and by tenant."""

from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from django.db.models import Count, Q, Sum

from embeddings.reindexing.models import Campaign
from jobs.choices import ACTIVE, CANCELLED_CODES, State
from jobs.models import UploadJob
from vendors import ledger
from vendors.models import Purchase


@dataclass(frozen=True, slots=True)
class Progress:
    """``documents`` at the start; ``done`` may be more: documents uploaded since are reindexed too."""

    documents: int
    done: int
    active: int
    failed: int
    cents: Decimal


def campaign_progress(campaign: Campaign) -> Progress:
    """Return a campaign's progress. Reads all of its jobs and purchases, by their indexes."""
    documents = campaign.tenants.aggregate(total=Sum("documents"))["total"] or 0
    jobs = UploadJob.objects.filter(campaign_id=campaign.pk).aggregate(**_COUNTS)
    return Progress(documents, jobs["done"], jobs["active"], jobs["failed"], ledger.spent_by_campaign(campaign.pk))


def progress_by_tenant(campaign: Campaign) -> dict[UUID, Progress]:
    """Return the progress of each tenant of the campaign."""
    jobs = UploadJob.objects.filter(campaign_id=campaign.pk).values("user_id").annotate(**_COUNTS)
    counted = {row.pop("user_id"): row for row in jobs}
    purchases = Purchase.objects.filter(campaign_id=campaign.pk).values_list("user_id").annotate(Sum("cents"))
    cents = dict(purchases)
    nothing = dict.fromkeys(_COUNTS, 0)
    return {
        user_id: Progress(documents=documents, cents=cents.get(user_id, Decimal(0)), **counted.get(user_id, nothing))
        for user_id, documents in campaign.tenants.values_list("user_id", "documents")
    }


_COUNTS = {
    "done": Count("document_id", distinct=True, filter=Q(state=State.DONE)),
    "active": Count("pk", filter=Q(state__in=ACTIVE)),
    "failed": Count(
        "document_id", distinct=True, filter=Q(state=State.DEADLETTER) & ~Q(last_error__code__in=CANCELLED_CODES)
    ),
}
