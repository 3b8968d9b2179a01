"""Registry of live clusters: each upserts a row every few seconds, by the database's clock."""

import json
import time
from collections.abc import Callable
from datetime import timedelta

from django.conf import settings
from django.db import connection
from django.db.models import DateTimeField, ExpressionWrapper, QuerySet, Sum, Value
from django.db.models.functions import Now
from django.utils.module_loading import import_string

from jobs.cluster import shared_state
from jobs.models import Cluster

HEARTBEAT_SECONDS = 5.0
ALIVE_SECONDS = 30

# A new cluster may have the name of an old one: in a container every main process has the same pid.
UPSERT_CLUSTER = """
WITH old AS (
    SELECT name FROM clusters WHERE seen_at < clock_timestamp() - interval '1 hour' AND name <> %(name)s
    FOR UPDATE SKIP LOCKED
), deleted AS (DELETE FROM clusters USING old WHERE clusters.name = old.name)
INSERT INTO clusters (name, workers, started_at, seen_at, clock_ahead, fingerprint)
VALUES (%(name)s, %(workers)s, clock_timestamp(), clock_timestamp(),
        %(clock)s - extract(epoch FROM clock_timestamp())::float, %(fingerprint)s::jsonb)
ON CONFLICT (name) DO UPDATE SET
    workers = excluded.workers, seen_at = excluded.seen_at, clock_ahead = excluded.clock_ahead,
    fingerprint = excluded.fingerprint,
    started_at = CASE WHEN %(is_new)s THEN excluded.started_at ELSE clusters.started_at END
"""
_registered: set[str] = set()


def record_heartbeat() -> None:
    """Record that this cluster is alive; delete clusters that have not been seen for an hour."""
    name, fingerprint = shared_state.cluster_name(), {}
    if settings.JOBS_FINGERPRINT:
        get_fingerprint: Callable[[], dict[str, str]] = import_string(settings.JOBS_FINGERPRINT)
        fingerprint = get_fingerprint()
    params = {
        "name": name,
        "workers": settings.WORKERS,
        "clock": time.time(),
        "fingerprint": json.dumps(fingerprint),
        "is_new": name not in _registered,
    }
    with connection.cursor() as cursor:
        cursor.execute(UPSERT_CLUSTER, params)
    _registered.add(name)


def unregister() -> None:
    Cluster.objects.filter(pk=shared_state.cluster_name()).delete()


def live_clusters() -> QuerySet[Cluster]:
    since = ExpressionWrapper(Now() - Value(timedelta(seconds=ALIVE_SECONDS)), output_field=DateTimeField())
    return Cluster.objects.filter(seen_at__gte=since)


def count_workers() -> int:
    return int(live_clusters().aggregate(workers=Sum("workers"))["workers"] or 0)
