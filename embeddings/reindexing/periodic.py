"""What the keeper does for campaigns from time to time: whatever their jobs do not do themselves."""

from __future__ import annotations

import logging

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from embeddings.reindexing import scheduler, tenant_workflow
from embeddings.reindexing.models import Campaign, CampaignTenant
from jobs.cluster import background
from jobs.errors import is_database_unavailable, safe_traceback

log = logging.getLogger("accessa.campaigns")

GOING_ON = "campaigns"
RUNNING, PAUSED, FINISHED = Campaign.State.RUNNING, Campaign.State.PAUSED, Campaign.State.FINISHED


def start_advancing() -> None:
    """Begin to go on with the campaigns, if there are any and nobody is at it.

    Aside: canaries ask a vendor, and an index takes minutes.
    """
    if _open().exists():
        background.start_in_background(
            GOING_ON, advance_campaigns, log=log, broke_off="A campaign broke off and is taken up again"
        )


def advance_campaigns() -> None:
    """Go on with each campaign: feed it, take its tenants a step further, close it. Call outside of a transaction."""
    for campaign in _open().order_by("created_at"):
        scheduler.hold_tenants_without_model(campaign)
        _feed(campaign)
        for tenant in list(tenant_workflow.due_tenants(campaign)):
            _advance(tenant)
        _feed(campaign)  # tenants of which something was left
        _close(campaign)


def _advance(tenant: CampaignTenant) -> None:
    try:
        tenant_workflow.advance_tenant(tenant)
    except Exception as error:  # as a runner of jobs: one tenant's trouble, logged without values, is not the others'
        if is_database_unavailable(error):
            raise
        log.error("Tenant %s of campaign %s: %s", tenant.user_id, tenant.campaign_id, safe_traceback(error))


def _open() -> QuerySet[Campaign]:
    left = CampaignTenant.objects.filter(campaign=OuterRef("pk"), ended_at=None)
    return Campaign.objects.filter(Q(state__in=[RUNNING, PAUSED]) | Exists(left))


def _feed(campaign: Campaign) -> None:
    while scheduler.enqueue_documents(campaign.pk):
        pass


def _close(campaign: Campaign) -> None:
    """running -> finished, when no tenant has anything left to do."""
    if not campaign.tenants.filter(ended_at=None).exists():
        done = Campaign.objects.filter(pk=campaign.pk, state__in=[RUNNING, PAUSED])
        if done.update(state=FINISHED, reason=None, finished_at=Now(), updated_at=Now()):
            log.info("Campaign %s has finished.", campaign.pk)
