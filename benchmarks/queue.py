"""Throughput of no-op jobs, against procrastinate, DBOS Transact and a bare SKIP LOCKED loop."""

import os
from argparse import ArgumentParser, Namespace
from importlib.metadata import version
from importlib.util import find_spec
from statistics import median
from typing import Any

from benchmarks import fairness, idle_cluster, many_clusters, noop_jobs, pickup_latency, subprocesses, throughput
from benchmarks.report import Result, percentile, print_progress
from benchmarks.throughput import Contestant

SUMMARY = __doc__
USERS = 200
RATIO_GOAL, HELD_GOAL, ONE_USER_GOAL, STAGES_GOAL = 4.0, 2.5, 2.0, 5.0
PICKUP_GOAL, BUSY_PICKUP_GOAL = 8.0, 50.0
HAS_DBOS = bool(find_spec("dbos"))
# Run the code of "noop" with other arguments: nothing that --quick would show.
ALIKE = ("hold", "one_user") if HAS_DBOS else ("hold", "one_user", "stages")
CONTESTANTS = (
    Contestant("noop", throughput.run_accessa("noop", users=USERS), 9000),
    Contestant("procrastinate", throughput.run_procrastinate, 3500),
    Contestant("hold", throughput.run_accessa("hold", users=USERS), 6000),
    Contestant("skip_locked", throughput.run_skip_locked, 12000),
    Contestant("one_user", throughput.run_accessa("noop", users=1), 7000),
    # Eleven stages or steps, each committed.
    Contestant("stages", throughput.run_accessa("stages", users=USERS), 2000),
    *([Contestant("dbos", throughput.run_dbos, 600)] if HAS_DBOS else []),
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="of each contestant, by turns")
    parser.add_argument("--only", choices=["throughput", "pickup", "crowd", "idle", "many"], help="one part")
    parser.add_argument("--clusters", type=int, default=50, help="of four workers; with --only many")


def measure(options: Namespace) -> Result:
    rates = _rates(options) if options.only in (None, "throughput") else {}
    # With --quick the crowd's newcomers show that a pickup is measured.
    idle = _idle(200) if options.only in (None, "pickup") and not options.quick else []
    crowds = _fairness(options.quick) if options.only in (None, "crowd") else {}
    waiting = _waiting(options.quick) if options.only in (None, "idle") else {}
    many = many_clusters.measure(options.clusters) if options.only == "many" else {}
    rate = {name: median(seconds) for name, seconds in rates.items()}
    ratios = {"noop": (_ratio(rates, "noop"), RATIO_GOAL)}
    if not options.quick:
        ratios["held"] = (_ratio(rates, "hold"), HELD_GOAL)
        ratios["one_user"] = (_ratio(rates, "one_user"), ONE_USER_GOAL)
    if HAS_DBOS:
        ratios["stages"] = (_ratio(rates, "stages", "dbos"), STAGES_GOAL)
    p95 = percentile(idle, 0.95) if idle else 0.0
    claims = max((seconds["claim_p99_ms"] for seconds in crowds.values()), default=0.0)
    busy = max((seconds["pickup_while_others_run_p95_ms"] for seconds in crowds.values()), default=0.0)
    return Result(
        name="queue",
        value=rate.get("noop", 0.0),
        unit="jobs/s",
        against=f"procrastinate {version('procrastinate')}",
        ratio=ratios["noop"][0],
        goal=RATIO_GOAL,
        ok=bool(rate and idle and crowds)
        and all(row["meets_goal"] for row in waiting.values())
        and all(ratio >= goal for ratio, goal in ratios.values())
        and p95 <= PICKUP_GOAL
        and busy <= BUSY_PICKUP_GOAL
        and claims <= fairness.CLAIM_GOAL,
        details={
            "ratios": {name: {"ratio": ratio, "goal": goal} for name, (ratio, goal) in ratios.items()},
            "dbos": version("dbos") if HAS_DBOS else "skipped: not installed (requirements/optional.txt)",
            "load_average": list(os.getloadavg()),
            "jobs_per_second": rate,
            "rounds": rates,
            "users": USERS,
            "pickup_p50_ms": percentile(idle, 0.5) if idle else 0.0,
            "pickup_p95_ms": p95,
            "goal_pickup_p95_ms": PICKUP_GOAL,
            "goal_pickup_while_others_run_p95_ms": BUSY_PICKUP_GOAL,
            "pickups": len(idle),
            "goal_claim_p99_ms": fairness.CLAIM_GOAL,
            "queued": crowds,
            "idle": waiting,
            "many": many,
        },
    )


def _rates(options: Namespace) -> dict[str, list[float]]:
    """Alternate the contestants, so that a noisy minute is everybody's."""
    contestants = [each for each in CONTESTANTS if not options.quick or each.name not in ALIKE]
    rates: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    for number in range(1 if options.quick else options.rounds):
        for contestant in contestants:
            count = contestant.count // 40 if options.quick else contestant.count
            rates[contestant.name].append(contestant.round(count))
            print_progress(f"round {number + 1}: {contestant.name} {rates[contestant.name][-1]:.0f} jobs/s")
    return rates


def _ratio(rates: dict[str, list[float]], name: str, baseline: str = "procrastinate") -> float:
    """Return the median of the rounds' ratios: each compares runs of nearly the same time."""
    if not rates:
        return 0.0
    return median(ours / its for ours, its in zip(rates[name], rates[baseline], strict=True))


def _idle(samples: int) -> list[float]:
    noop_jobs.truncate_tables()
    with subprocesses.running_cluster():
        pickup_latency.measure_latencies(5)  # until the workers are up
        latencies = pickup_latency.measure_latencies(samples)
    print_progress(f"pickup p95 {percentile(latencies, 0.95):.1f} ms")
    return latencies


def _waiting(quick: bool) -> dict[str, Any]:
    """Measure clusters of two and four workers that have nothing to do."""
    sizes, seconds = ((2,), 1.0) if quick else ((2, 4), 30.0)
    return {f"{n}_workers": idle_cluster.measure(n, seconds=seconds) for n in sizes}


def _fairness(quick: bool) -> dict[str, Any]:
    sizes = [(2_000, 10)] if quick else [(100_000, 100), (1_000_000, 100)]
    return {str(rows): fairness.measure(rows, samples=samples) for rows, samples in sizes}
