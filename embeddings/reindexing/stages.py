"""What a campaign's jobs do beyond the work of their stages."""

from __future__ import annotations

from embeddings.reindexing import scheduler
from jobs import failpoints
from jobs.claims import Claim
from jobs.outcomes import Outcome

MOST_STEPS = 5  # the tenants' own jobs wait for this worker; the rest is the sweep's


def finish_reindex_job(claim: Claim) -> Outcome:
    """embedded: the document is done, and makes room for the next. Killed in between, the sweep feeds it."""
    with claim.transaction():
        moved = claim.advance()
    failpoints.failpoint("feeding:begin")
    if claim.job.campaign_id:
        scheduler.enqueue_documents(claim.job.campaign_id, steps=MOST_STEPS)
    return moved
