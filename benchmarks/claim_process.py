"""Worker process that claims and finishes jobs and prints the milliseconds of each claim."""

import json
import sys
import time

import django

django.setup()

from jobs import claim_queries, claims, worker  # noqa: E402


def claim_and_finish(count: int) -> list[float]:
    """Claim and finish ``count`` jobs. Raises ``RuntimeError`` when nothing is left to claim."""
    worker.configure_connection()
    last = claim_queries.NIL_UUID
    took: list[float] = []
    while len(took) < count:
        began = time.perf_counter()
        claim = claims.claim_next("benchmark", last)
        took.append(1000 * (time.perf_counter() - began))
        if claim is None:
            raise RuntimeError("there was nothing to claim")
        last = claim.job.user_id
        claim.move("finish")
    return took


if __name__ == "__main__":
    print(json.dumps(claim_and_finish(int(sys.argv[1]))))
