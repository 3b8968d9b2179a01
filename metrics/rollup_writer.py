"""Writer of metric rollups: samples added up over 5 minutes, an hour, a day and for ever; deletion of expired rows."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import chain

from django.db import connection

from metrics.distributions import MetricSample, merge
from metrics.models import MetricRollup, Resolution

WIDTHS = {
    Resolution.MINUTES: timedelta(minutes=5),
    Resolution.HOUR: timedelta(hours=1),
    Resolution.DAY: timedelta(days=1),
}
RETENTION = {
    Resolution.MINUTES: timedelta(days=2),
    Resolution.HOUR: timedelta(days=90),
    Resolution.DAY: timedelta(days=800),
}
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)

ROWS_OF_A_STATEMENT = 500
ADD = """
INSERT INTO metric_rollups AS r (metric, resolution, starts_at, labels, count, total, peak, histogram)
VALUES {rows}
ON CONFLICT (metric, resolution, starts_at, labels) DO UPDATE SET
    count = r.count + excluded.count, total = r.total + excluded.total, peak = greatest(r.peak, excluded.peak),
    histogram = CASE WHEN cardinality(r.histogram) = 0 THEN excluded.histogram
        WHEN cardinality(excluded.histogram) = 0 THEN r.histogram
        ELSE ARRAY(SELECT a + b FROM unnest(r.histogram, excluded.histogram) WITH ORDINALITY AS u (a, b, n) ORDER BY n)
        END
"""


def add_samples(samples: Iterable[MetricSample], *, now: datetime) -> None:
    """Add samples to the rollups, in the caller's transaction. Calls with the same samples count them twice."""
    merged: dict[tuple[str, Resolution, datetime, tuple[str, ...]], MetricSample] = {}
    for sample in samples:
        for resolution in Resolution:
            if resolution != Resolution.EVER and sample.at < now - RETENTION[resolution]:
                continue  # it comes late, and would be deleted at once
            starts_at = EPOCH
            if resolution != Resolution.EVER:
                starts_at = sample.at - (sample.at - EPOCH) % WIDTHS[resolution]
            key = (sample.metric, resolution, starts_at, sample.labels)
            merged[key] = merge(merged[key], sample) if key in merged else sample
    rows = [
        (metric, resolution.value, starts_at, list(labels), row.count, row.total, row.peak, list(row.histogram))
        for (metric, resolution, starts_at, labels), row in sorted(merged.items(), key=lambda pair: pair[0])
    ]
    if rows:
        with connection.cursor() as cursor:
            for at in range(0, len(rows), ROWS_OF_A_STATEMENT):
                batch = rows[at : at + ROWS_OF_A_STATEMENT]
                sql = ADD.format(rows=", ".join(["(%s, %s, %s, %s, %s, %s, %s, %s)"] * len(batch)))
                cursor.execute(sql, list(chain.from_iterable(batch)))


def delete_expired(now: datetime) -> None:
    for resolution, retention in RETENTION.items():
        MetricRollup.objects.filter(resolution=resolution, starts_at__lt=now - retention).delete()
