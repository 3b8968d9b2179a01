"""Many hosts: faults of a host among five, or a failover of PostgreSQL; nothing acknowledged or bought is lost."""

import subprocess
from argparse import ArgumentParser, Namespace
from collections import Counter
from dataclasses import asdict

from django.db import connections

from accessa.embedded_postgres.server import EmbeddedServer
from benchmarks.report import Result, print_progress
from benchmarks.subprocesses import ROOT
from testing.chaos import failover, hosts
from testing.chaos.world import LEASE

SUMMARY = __doc__ or ""
MOST_SECONDS = 3600.0
GOAL_SECONDS = 15.0


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--documents", type=int, default=2_000, help="on five hosts, while each fault happens once")
    parser.add_argument("--release", help="upgrade the hosts one by one from this commit instead")
    parser.add_argument("--failovers", type=int, default=0, help="kill the primary so many times instead")
    parser.add_argument(
        "--lost", type=int, default=0, help="fail over to an asynchronous standby without so many documents"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vendors", action="store_true", help="failovers by LlamaParse's and OpenAI's fakes")


def measure(options: Namespace) -> Result:
    if options.lost:
        return _lose(options)
    if options.release:
        return _upgrade(options)
    return _fail_over(options) if options.failovers else _hosts(options)


def _upgrade(options: Namespace) -> Result:
    server = EmbeddedServer()
    connections.close_all()  # a database that is in use cannot be copied
    folder, tree = server.data.parent / "hosts", server.data.parent / "release"
    folder.mkdir(exist_ok=True)
    tree.mkdir()
    archive = subprocess.run(["git", "archive", options.release], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", tree], input=archive.stdout, check=True)
    report = hosts.upgrade(
        server.params(), folder, tree, documents=options.documents, seed=options.seed, seconds=MOST_SECONDS
    )
    return Result(
        name="hosts",
        value=report.refused + sum(times for answer, times in report.answers.items() if answer != "200"),
        unit="failed requests of a member while hosts are upgraded",
        against=f"the same documents undisturbed; upgraded from {options.release}",
        ratio=1.0 if not report.verdict.lost else 0.0,
        goal=0,
        ok=report.ok,
        details=asdict(report),
    )


def _lose(options: Namespace) -> Result:
    report = failover.lose_commits(
        EmbeddedServer().data.parent / "losses", documents=options.lost, seed=options.seed, seconds=MOST_SECONDS
    )
    lost = report.lost_documents | report.undone_deletions
    return Result(
        name="hosts",
        value=len(report.named),
        unit="lost documents and returned ones that the audit names",
        against="those that a failover to an asynchronous standby lost",
        ratio=len(report.named & lost) / max(1, len(lost)),
        goal=1.0,
        ok=report.ok,
        details={
            "lost_documents": len(report.lost_documents),
            "undone_deletions": len(report.undone_deletions),
            "findings": Counter(finding.partition(" ")[0] for finding in report.findings),
            "examples": report.findings[:4],
            "findings_before": report.before,
        },
    )


def _hosts(options: Namespace) -> Result:
    if reason := hosts.missing_programs():
        raise SystemExit(reason)
    server = EmbeddedServer()
    connections.close_all()  # a database that is in use cannot be copied
    folder = server.data.parent / "hosts"
    folder.mkdir(exist_ok=True)
    print_progress(f"{options.documents} documents on five hosts, {len(hosts.FAULTS)} faults …")
    report = hosts.trial(server.params(), folder, documents=options.documents, seed=options.seed, seconds=MOST_SECONDS)
    for each in report.faults:
        resumed = f"{each.held} jobs held, resumed after {each.resumed_seconds:.1f} s"
        print_progress(f"{each.fault:30} {each.host:6} {resumed}, {each.done_meanwhile} documents done meanwhile")
    return Result(
        name="hosts",
        value=max(each.resumed_seconds for each in report.faults),
        unit="s until each job of the host had moved on, the longest",
        against="the same documents undisturbed on one host",
        ratio=1.0 if report.verdict and not report.verdict.lost else 0.0,
        goal=2 * LEASE,
        ok=report.ok,
        details={**asdict(report), "lease_seconds": LEASE},
    )


def _fail_over(options: Namespace) -> Result:
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
