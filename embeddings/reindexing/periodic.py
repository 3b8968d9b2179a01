"""Periodic task of campaigns: enqueue documents, run the tenants' next steps, finish campaigns."""

import logging

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from embeddings.reindexing import scheduler, tenant_workflow
from embeddings.reindexing.models import Campaign, CampaignTenant
from jobs.cluster import maintenance
from jobs.infrastructure_errors import is_database_unavailable
from jobs.safe_errors import safe_traceback

log = logging.getLogger("accessa.campaigns")

THREAD_NAME = "campaigns"
RUNNING, PAUSED, FINISHED = Campaign.State.RUNNING, Campaign.State.PAUSED, Campaign.State.FINISHED


def start_advancing() -> None:
    """Start ``advance_campaigns`` in a background thread: canaries call a vendor, and an index takes minutes."""
    if _open_campaigns().exists():
        maintenance.start_in_background(
            THREAD_NAME, advance_campaigns, log=log, broke_off="A campaign broke off and is taken up again"
        )


def advance_campaigns() -> None:
    """Advance each open campaign: documents, tenants, end. Call outside of a transaction."""
    for campaign in _open_campaigns().order_by("created_at"):
        scheduler.hold_tenants_without_model(campaign)
        _enqueue_all(campaign)
        for tenant in list(tenant_workflow.due_tenants(campaign)):
            try:
                tenant_workflow.advance_tenant(tenant)
            except Exception as error:  # one tenant's trouble, logged without values, does not stop the others
                if is_database_unavailable(error):
                    raise
                log.error("Tenant %s of campaign %s: %s", tenant.user_id, campaign.pk, safe_traceback(error))
        _enqueue_all(campaign)  # tenants with documents left
        if not campaign.tenants.filter(ended_at=None).exists():
            unfinished = Campaign.objects.filter(pk=campaign.pk, state__in=[RUNNING, PAUSED])
            if unfinished.update(state=FINISHED, reason=None, finished_at=Now(), updated_at=Now()):
                log.info("Campaign %s has finished.", campaign.pk)


def _open_campaigns() -> QuerySet[Campaign]:
    unfinished = CampaignTenant.objects.filter(campaign=OuterRef("pk"), ended_at=None)
    return Campaign.objects.filter(Q(state__in=[RUNNING, PAUSED]) | Exists(unfinished))


def _enqueue_all(campaign: Campaign) -> None:
    while scheduler.enqueue_documents(campaign.pk):
        pass
