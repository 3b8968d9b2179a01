"""Which clusters of workers are up: each says so every few seconds, by the database's clock."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import DateTimeField, ExpressionWrapper, QuerySet, Sum, Value
from django.db.models.functions import Now
from django.utils.module_loading import import_string

from jobs.cluster import shared_memory
from jobs.models import Cluster

HEARTBEAT_SECONDS = 5.0
ALIVE_SECONDS = 30

# A cluster may come back under the name of one before it: in a container every main process has the same number.
UPSERT_CLUSTER = """
WITH old AS (
    SELECT name FROM clusters WHERE seen_at < clock_timestamp() - interval '1 hour' AND name <> %(name)s
    FOR UPDATE SKIP LOCKED
), swept AS (DELETE FROM clusters USING old WHERE clusters.name = old.name)
INSERT INTO clusters (name, workers, started_at, seen_at, clock_ahead, fingerprint)
VALUES (%(name)s, %(workers)s, clock_timestamp(), clock_timestamp(),
        %(clock)s - extract(epoch FROM clock_timestamp())::float, %(fingerprint)s::jsonb)
ON CONFLICT (name) DO UPDATE SET
    workers = excluded.workers, seen_at = excluded.seen_at, clock_ahead = excluded.clock_ahead,
    fingerprint = excluded.fingerprint,
    started_at = CASE WHEN %(first)s THEN excluded.started_at ELSE clusters.started_at END
"""
_begun: set[str] = set()


def record_heartbeat() -> None:
    """Write that this cluster is up, and forget those that have not been seen for an hour."""
    name = shared_memory.cluster_name()
    values = {
        "name": name,
        "workers": settings.WORKERS,
        "clock": time.time(),
        "fingerprint": json.dumps(_fingerprint()),
        "first": name not in _begun,
    }
    with connection.cursor() as cursor:
        cursor.execute(UPSERT_CLUSTER, values)
    _begun.add(name)


def unregister() -> None:
    """Take this cluster from the list: it stops."""
    Cluster.objects.filter(pk=shared_memory.cluster_name()).delete()


def live_clusters() -> QuerySet[Cluster]:
    """Return the clusters that were seen within 30 seconds, by the database's clock."""
    return Cluster.objects.filter(seen_at__gte=_ago(ALIVE_SECONDS))


def count_workers() -> int:
    """Return how many workers there are, over all clusters that are alive."""
    return int(live_clusters().aggregate(workers=Sum("workers"))["workers"] or 0)


def _ago(seconds: int) -> Any:
    return ExpressionWrapper(Now() - Value(timedelta(seconds=seconds)), output_field=DateTimeField())


def _fingerprint() -> dict[str, str]:
    """Return what ``settings.JOBS_FINGERPRINT``, a function, says of this process's configuration."""
    if not settings.JOBS_FINGERPRINT:
        return {}
    tell: Callable[[], dict[str, str]] = import_string(settings.JOBS_FINGERPRINT)
    return tell()
