"""Status of vendors and connected systems: what they answered in each hour of the last three days, and now."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection

from jobs.error_codes import PAUSED_BY_STAFF
from jobs.models import Pause
from metrics import event_counts, gauges
from metrics.models import Resolution
from metrics.rollup_queries import Period
from vendors.models import Breaker

HOUR = timedelta(hours=1)
HISTORY = Period("3d", "3 days", timedelta(days=3), Resolution.HOUR, HOUR, Resolution.HOUR)
AWAY_SHARE = 0.5  # of an hour's calls that failed
SLOW_FACTOR, SLOW_SECONDS, SLOW_CALLS = 3.0, 1.0, 5  # times the mean of all hours, and no less

# A vendor's fault, not a refused request: no response, a timeout, 429 and all from 500 on.
CALLS = """
SELECT labels[1], date_bin('1 hour', starts_at, '2000-01-01 00:00Z'), sum(count),
       coalesce(sum(count) FILTER (WHERE labels[3] <> ALL(%(good)s) AND labels[3] !~ '^4(?!29|08)'), 0), sum(total)
FROM metric_rollups WHERE metric = %(metric)s AND resolution = '1h' AND starts_at >= %(since)s
GROUP BY 1, 2"""
SOURCES = {"vendor": ["ok"], event_counts.SYNC: ["completed", "CANCELLED"]}


@dataclass(frozen=True, slots=True)
class Hour:
    """One hour of a service. ``state``: up, slow, away, or quiet without calls."""

    at: datetime
    state: str
    calls: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Trouble:
    """Hours in a row in which a service was slow or away. ``until`` is None while it lasts."""

    state: str
    since: datetime
    until: datetime | None
    calls: int
    failed: int


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    hours: Sequence[Hour]
    breaker: str = ""  # open or half-open: no calls are let through
    opened_at: datetime | None = None
    paused: str = ""  # the reason

    @property
    def state(self) -> str:
        """The state now: of the breaker, or of the last hour with calls."""
        if self.breaker or self.paused:
            return "paused" if not self.breaker else "away"
        return next((hour.state for hour in reversed(self.hours) if hour.calls), "quiet")

    @property
    def begun_at(self) -> datetime | None:
        """When its state began; None before the history."""
        if self.opened_at:
            return self.opened_at
        since = None
        for hour in reversed([hour for hour in self.hours if hour.calls]):
            if hour.state != self.state:
                return since
            since = hour.at
        return None

    @property
    def troubles(self) -> list[Trouble]:
        """Return the hours that were slow or away, the newest first; quiet hours between belong to them."""
        return list(_troubles(self.hours))[::-1]


def _troubles(hours: Sequence[Hour]) -> Iterator[Trouble]:
    run: list[Hour] = []
    for hour in (hour for hour in hours if hour.calls):
        if run and hour.state != run[0].state:
            if run[0].state != "up":
                yield _trouble(run, hour.at)
            run = []
        run.append(hour)
    if run and run[0].state != "up":
        yield _trouble(run, None)


def _trouble(run: Sequence[Hour], until: datetime | None) -> Trouble:
    return Trouble(run[0].state, run[0].at, until, sum(hour.calls for hour in run), sum(hour.failed for hour in run))


def vendors(now: datetime) -> list[Service]:
    opened: dict[str, Breaker] = {}
    for row in Breaker.objects.exclude(state="closed").order_by("opened_at"):
        opened.setdefault(row.key.partition(":")[0], row)
    paused = {labels[0]: labels[1] for labels, _ in gauges.vendor_pauses()}
    paused |= dict.fromkeys(_paused_by_staff(), str(PAUSED_BY_STAFF))
    known = {state.vendor for state in gauges.breaker_states()} | paused.keys()
    return [
        Service(
            name,
            hours,
            breaker=opened[name].state if name in opened else "",
            opened_at=opened[name].opened_at if name in opened else None,
            paused=paused.get(name, ""),
        )
        for name, hours in _histories("vendor", now, known).items()
    ]


def _paused_by_staff() -> list[str]:
    return list(Pause.objects.filter(kind=Pause.Kind.VENDOR).values_list("subject", flat=True))


def connected_systems(now: datetime) -> list[Service]:
    return [Service(name, hours) for name, hours in _histories(event_counts.SYNC, now, ()).items()]


def _histories(metric: str, now: datetime, known: Sequence[str] | set[str]) -> dict[str, list[Hour]]:
    """Return each service's hours, the oldest first."""
    with connection.cursor() as cursor:
        cursor.execute(CALLS, {"metric": metric, "since": HISTORY.start(now), "good": SOURCES[metric]})
        rows = [
            (name, at, int(calls), int(failed), float(total)) for name, at, calls, failed, total in cursor.fetchall()
        ]
    histories = {}
    for name in sorted({*known, *(row[0] for row in rows)}):
        of_service = {row[1]: row[2:] for row in rows if row[0] == name}
        calls, seconds = (sum(row[index] for row in of_service.values()) for index in (0, 2))
        mean = seconds / calls if calls else 0.0
        histories[name] = [_hour(at, *of_service.get(at, (0, 0, 0.0)), mean) for at in HISTORY.points(now)]
    return histories


def _hour(at: datetime, calls: int, failed: int, seconds: float, mean: float) -> Hour:
    if not calls:
        return Hour(at, "quiet")
    is_slow = calls >= SLOW_CALLS and seconds / calls > max(SLOW_SECONDS, SLOW_FACTOR * mean)
    state = "away" if failed / calls >= AWAY_SHARE else "slow" if is_slow else "up"
    return Hour(at, state, calls, failed)
