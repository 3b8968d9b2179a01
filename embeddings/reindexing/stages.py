"""Stage handler of campaign jobs: the last stage enqueues the campaign's next documents."""

from embeddings.reindexing import scheduler
from jobs import failpoints
from jobs.claims import Claim
from jobs.outcomes import Outcome

MAX_STEPS = 5  # the tenants' own jobs wait for this worker; the periodic task does the rest


def finish_reindex_job(claim: Claim) -> Outcome:
    """embedded: finish the document and enqueue the next. After a kill in between, the periodic task does."""
    with claim.transaction():
        moved = claim.advance()
    failpoints.failpoint("feeding:begin")
    if claim.job.campaign_id:
        scheduler.enqueue_documents(claim.job.campaign_id, steps=MAX_STEPS)
    return moved
