"""Kill loop: the same documents processed undisturbed and under SIGKILL must leave the same rows and purchases."""

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from uuid import uuid4

from django.db import connections

from accessa.embedded_postgres.server import EmbeddedServer
from benchmarks.report import Result, print_progress
from testing.chaos import connectors, kill_loop, queues, search_engine, statute_samples, statutes, verdict, world
from testing.ports import free_port

SUMMARY = __doc__ or ""
MOST_SECONDS = 3600.0
STATUTES = 50


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=40, help="how many processes to kill, at the least")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--connectors", action="store_true", help="of a sync of 2,000 records instead")
    parser.add_argument("--statutes", action="store_true", help=f"of {STATUTES} statutes from a queue instead")
    parser.add_argument("--engine", action="store_true", help="of the search engine and its feed instead")
    parser.add_argument("--vendors", action="store_true", help="by LlamaParse's and OpenAI's fakes")
    parser.add_argument("--sentences", action="store_true", help="with the sentence vectors of minilm, compared too")


def measure(options: Namespace) -> Result:
    if options.statutes:
        return _statutes(options)
    if options.engine:
        return _search_engine(options)
    return _sync(options) if options.connectors else _documents(options)


def _statutes(options: Namespace) -> Result:
    server, laws = EmbeddedServer(), list(statute_samples.statutes(STATUTES, seed=options.seed))
    params, folder = server.params(), server.data.parent / "chaos"
    connections.close_all()  # a database that is in use cannot be copied
    rounds = max(1, options.kills // 60)
    extra = max(0, options.kills - rounds * len(statutes.POINTS))
    print_progress(f"Killing {rounds} times at each of {len(statutes.POINTS)} points and {extra} times at random …")
    folder.mkdir()
    calm, broken = statutes.trial(
        params, folder, laws, rounds=rounds, extra=extra, seed=options.seed, seconds=MOST_SECONDS
    )
    differences = broken.differences(calm)
    missed = [point for point in statutes.POINTS if broken.points[point] < rounds]
    same = sum(content == calm.artifacts.get(key) for key, content in broken.artifacts.items())
    return Result(
        name="chaos",
        value=broken.kills,
        unit="kills",
        against="the same statutes undisturbed",
        ratio=same / max(1, len(calm.artifacts)),
        goal="equal artifacts and rows, nothing left in the queues, no more bought than what the deaths cut off",
        ok=not differences and not missed and not calm.bought_again and broken.kills >= options.kills,
        details={
            "statutes": len(laws),
            "artifacts": len(calm.artifacts),
            "passages": calm.rows.total(),
            "differences": differences[:20],
            "points": dict(sorted(broken.points.items())),
            "missed_points": missed,
            "random": broken.at_random,
            "connections_cut": broken.cuts,
            "bought": broken.bought,
            "bought_again_after_crash": broken.bought_again,
            "bought_again_bound": broken.bound,
            "seconds": broken.seconds,
            "seconds_undisturbed": calm.seconds,
        },
    )


def _search_engine(options: Namespace) -> Result:
    folder = EmbeddedServer().data.parent / "chaos"
    print_progress(f"Killing {options.kills} times: senders at {len(search_engine.POINTS)} points, workers, Milvus …")
    done = search_engine.trial(folder, port=free_port(), kills=options.kills, seed=options.seed)
    found = done.verification
    return Result(
        name="chaos",
        value=done.kills.total(),
        unit="kills",
        against="the answers of PostgreSQL alone, after each kill",
        ratio=1 - done.different / max(1, done.searches),
        goal="equal answers, and an engine that has what the rows hold",
        ok=not done.different and found.is_clean and not done.missed and done.kills.total() >= options.kills,
        details={
            "points": dict(done.kills),
            "missed": dict(done.missed),
            "changes": done.changes,
            "searches": done.searches,
            "different": done.different,
            "while_the_engine_was_away": done.away,
            "seconds_to_converge": done.seconds_to_converge,
            "entries": found.entries,
            "missing": found.missing.total(),
            "stale": found.stale.total(),
            "orphans": found.orphans,
        },
    )


def _sync(options: Namespace) -> Result:
    params, folder = EmbeddedServer().params(), EmbeddedServer().data.parent / "chaos"
    rounds = max(1, options.kills // 20)
    extra = max(0, options.kills - rounds * len(connectors.POINTS))
    print_progress(f"Killing {rounds} times at each of {len(connectors.POINTS)} points and {extra} times at random …")
    with connectors.create_queued_sync(uuid4(), contacts=1000, companies=500, deals=500) as environment:
        connections.close_all()  # a database that is in use cannot be copied
        calm = connectors.run(params, folder, "calm", environment, seconds=MOST_SECONDS)
        broken = connectors.run(
            params, folder, "broken", environment, rounds=rounds, extra=extra, seed=options.seed, seconds=MOST_SECONDS
        )
    same = broken.documents == calm.documents and broken.clients == calm.clients
    bound = calm.bought + broken.kills * connectors.BATCH
    return Result(
        name="chaos",
        value=broken.kills,
        unit="kills",
        against="the same sync undisturbed",
        ratio=(broken.documents & calm.documents).total() / max(1, calm.documents.total()),
        goal="equal rows, no more bought than the calls that a death cut off",
        ok=same and broken.status == calm.status == {"completed": 1} and broken.bought <= bound,
        details={
            "records": calm.documents.total(),
            "clients": calm.clients.total(),
            "points": dict(broken.points),
            "bought": broken.bought,
            "bought_undisturbed": calm.bought,
            "seconds": broken.seconds,
            "seconds_undisturbed": calm.seconds,
        },
    )


def _documents(options: Namespace) -> Result:
    server = EmbeddedServer()
    connections.close_all()  # a database that is in use cannot be copied
    points = world.POINTS + queues.POINTS + world.VENDOR_POINTS * options.vendors
    rounds = max(1, options.kills // 100)
    extra = max(12, options.kills - rounds * len(points))
    print_progress(f"Killing {rounds} times at each of {len(points)} points and {extra} times at random …")
    broken, calm = kill_loop.trial(
        server.params(),
        server.data.parent / "chaos",
        rounds=rounds,
        extra=extra,
        seed=options.seed,
        seconds=MOST_SECONDS,
        vendors=options.vendors,
        has_queues=True,
        sentence_model="minilm" if options.sentences else "none",
    )
    outcome = verdict.verdict(broken, calm)
    return Result(
        name="chaos",
        value=outcome.kills,
        unit="kills",
        against="the same documents undisturbed",
        ratio=(broken.rows & calm.rows).total() / max(1, calm.rows.total()),
        goal="equal rows, nothing paid twice",
        ok=outcome.ok and outcome.prompt and outcome.kills >= options.kills,
        details={
            **{name: value for name, value in asdict(outcome).items() if name != "kills"},
            "prompt": outcome.prompt,
            "random": dict(broken.kills),
            "documents": broken.taken,
            "chunks": calm.rows.total(),
            "chunks_with_sentence_vectors": sum(times for row, times in calm.rows.items() if row[-1]),
            "bought": broken.bought,
            "seconds": broken.seconds,
            "seconds_undisturbed": calm.seconds,
        },
    )
