"""Verdict of the kill loop: lost, duplicated and twice-paid work, by comparison with the undisturbed run."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from testing.chaos.queues import Deliveries
from testing.chaos.world import BATCH, IN_FLIGHT, PROMPT, WORKERS, Snapshot


@dataclass(frozen=True)
class Verdict:
    kills: int
    lost: int
    duplicated: int
    paid_twice: int
    parses_paid_twice: int
    callbacks: Mapping[str, int]
    bought_again_after_crash: int
    bought_again_bound: int
    points: Mapping[str, int]
    missed_points: list[str]
    deliveries: Deliveries
    unfinished: int
    dead: list[str]
    overdue: float
    findings: str

    @property
    def ok(self) -> bool:
        twice = self.duplicated or self.paid_twice or self.parses_paid_twice
        spotless = not (self.lost or twice or self.unfinished or self.findings)
        bounded = self.bought_again_after_crash <= self.bought_again_bound
        return spotless and bounded and self.deliveries.ok and not self.missed_points

    @property
    def prompt(self) -> bool:
        """Tell whether the cluster noticed each expired lease soon."""
        return self.overdue < PROMPT


def verdict(broken: Snapshot, calm: Snapshot) -> Verdict:
    """Compare what a disturbed run left with what an undisturbed one of the same documents left."""
    keys = Counter((user, file, ordinal) for user, file, ordinal, *_ in broken.rows.elements())
    twice = sum(times - 1 for times in keys.values())
    unfinished = sum(broken.jobs.values()) - broken.jobs["done"]
    paid_twice = sum(times - 1 for times in broken.committed.values())
    # A death between the vendor's answer and the commit loses the batch; a death at random may fall there too.
    points = [f"embedding:{edge}" for edge in ("answered", "before-commit")]
    if not broken.parses:  # a local embedder's last batch is saved with the stage that follows, a purchase at once
        points += ["embedding:end", "embeddings_buffered:begin", "embeddings_buffered:before-commit"]
        points += ["chain:middle", "chain:before-commit"]
    gaps = sum(broken.points[point] for point in points)
    # So may several batches of one worker, where they are in flight together.
    gaps += broken.kills["worker"] + WORKERS * broken.kills["cluster"]
    return Verdict(
        kills=sum(broken.kills.values()) + sum(broken.points.values()),
        lost=(calm.rows - broken.rows).total() + max(0, broken.taken - sum(broken.jobs.values())),
        duplicated=twice + (broken.rows - calm.rows).total() + broken.repeated,
        paid_twice=paid_twice,
        parses_paid_twice=sum(times - 1 for times in broken.parses.values()),
        callbacks=broken.callbacks,
        bought_again_after_crash=broken.bought - sum(broken.committed.values()),
        bought_again_bound=gaps * BATCH * (IN_FLIGHT + 2 if broken.parses else 1),
        deliveries=broken.deliveries,
        points=dict(sorted(broken.points.items())),
        missed_points=[point for point in broken.expected if not broken.points[point]],
        unfinished=unfinished,
        dead=broken.dead,
        overdue=broken.overdue,
        findings=broken.findings + calm.findings,
    )
