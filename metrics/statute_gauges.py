"""The statute worker: its consumers, and how far the laws are. The queue's own depth is CloudWatch's to tell."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.db import connection

from statutes.consumer.status import ALIVE
from statutes.models import Consumer

OUTCOMES = ("received", "ended", "failed")
LAWS = "SELECT status, count(*) FROM laws GROUP BY 1"
VERSIONS = "SELECT status, count(*) FROM law_versions GROUP BY 1"
# By the index on the status: however many versions there are, few are on their way. Not since when they are there: one
# that is done again may be years old.
STILL = """
SELECT coalesce(extract(epoch FROM clock_timestamp() - min(updated_at)), 0)::float8
FROM law_versions WHERE status IN ('processing', 'normalized')"""
HEARD = "SELECT extract(epoch FROM clock_timestamp() - max(seen_at))::float8 FROM sqs_consumers"


class ConsumerMessages(NamedTuple):
    """What became of a consumer's messages since it began."""

    consumer: str
    outcome: str
    messages: int


def statute_consumers() -> dict[str, int]:
    """Return how many consumers are alive, by their state; those with none are there too."""
    found = dict.fromkeys(Consumer.State.values, 0)
    for state in Consumer.objects.filter(ALIVE).values_list("state", flat=True):
        found[state] += 1
    return found


def live_statute_consumers() -> int:
    return sum(statute_consumers().values())


def statute_messages() -> list[ConsumerMessages]:
    """Return the counts of each consumer of the last hour: each begins at 0, as a process' own counters do."""
    rows = Consumer.objects.order_by("name").values_list("name", *OUTCOMES)
    return [ConsumerMessages(name, *pair) for name, *counts in rows for pair in zip(OUTCOMES, counts, strict=True)]


def consumer_silence() -> float | None:
    """Return for how many seconds no consumer has been heard; None if there is none that is known."""
    found = _one(HEARD)
    return None if found is None else float(found)


def statute_stall() -> float:
    """Return for how many seconds the version on its way has stood still that has moved least lately."""
    return float(_one(STILL))


def collect_statute_gauges() -> dict[str, Any]:
    """Return what is counted row by row, as JSON takes it: aside only."""
    with connection.cursor() as cursor:
        cursor.execute(LAWS)
        laws = dict(cursor.fetchall())
        cursor.execute(VERSIONS)
        return {"laws": laws, "versions": dict(cursor.fetchall())}


def _one(sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]
