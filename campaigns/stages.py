"""What a campaign's jobs do beyond the work of their stages."""

from __future__ import annotations

from jobs.claims import Claim
from jobs.outcomes import Advance, Outcome


def finish(claim: Claim) -> Outcome:
    """embedded: the document is done; the campaign feeds its next one."""
    return Advance()
