"""Failover of PostgreSQL: nothing acknowledged or settled is lost, and the API is back within 15 s of a promotion."""

from argparse import ArgumentParser, Namespace
from dataclasses import asdict

from accessa.embedded_postgres.server import EmbeddedServer
from benchmarks.report import Result, print_progress
from testing.chaos import failover

SUMMARY = __doc__ or ""
MOST_SECONDS = 3600.0
GOAL_SECONDS = 15.0


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--failovers", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vendors", action="store_true", help="by LlamaParse's and OpenAI's fakes")


def measure(options: Namespace) -> Result:
    folder = EmbeddedServer().data.parent / "failover"
    print_progress(f"Killing the primary {options.failovers} times …")
    report = failover.trial(
        folder, failovers=options.failovers, seed=options.seed, seconds=MOST_SECONDS, vendors=options.vendors
    )
    longest = max(report.back_seconds)
    return Result(
        name="hosts",
        value=longest,
        unit="s from a promotion to the API's first good answer, the longest",
        against="the same documents undisturbed",
        ratio=1.0 if report.verdict and not report.verdict.lost else 0.0,
        goal=GOAL_SECONDS,
        ok=report.ok and longest <= GOAL_SECONDS,
        details={
            "failovers": report.failovers,
            "documents": report.documents,
            "back_seconds": report.back_seconds,
            "lost_purchases": report.lost_purchases,
            "answers": dict(report.answers),
            "verdict": asdict(report.verdict) if report.verdict else None,
        },
    )
