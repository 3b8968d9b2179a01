"""Whether a vendor is well: one circuit breaker for all processes, kept in a row.

pybreaker decides; it is told of outcomes after the fact, because its ``call`` would hold a lock across the network.
"""

from __future__ import annotations

import logging
import threading
from datetime import datetime

import pybreaker
from django.conf import settings
from django.db import connection, transaction

from vendors.models import Breaker
from vendors.vendor import Vendor

log = logging.getLogger("accessa.vendors")

CLOSED, OPEN, HALF_OPEN = pybreaker.STATE_CLOSED, pybreaker.STATE_OPEN, pybreaker.STATE_HALF_OPEN

CREATE = "INSERT INTO vendor_breakers (key) VALUES (%s) ON CONFLICT DO NOTHING"
LOCK = "SELECT key, state, faults, successes, opened_at, probe_until FROM vendor_breakers WHERE key = %s FOR UPDATE"
SAVE = """
UPDATE vendor_breakers SET state = %(state)s, faults = %(faults)s, successes = %(successes)s, probe_until = NULL,
    opened_at = CASE WHEN %(opened)s THEN clock_timestamp() ELSE opened_at END
WHERE key = %(key)s
"""
UNWELL = "SELECT 1 FROM vendor_breakers WHERE key = %s AND (state <> 'closed' OR faults > 0)"
# NULL: closed. Otherwise in how many seconds somebody may probe; while somebody does, ask again after one pause.
WAIT = """
CASE b.state
    WHEN 'open' THEN extract(epoch FROM b.opened_at - clock_timestamp()) + %(breaker_seconds)s
    WHEN 'half-open' THEN
        least(coalesce(extract(epoch FROM b.probe_until - clock_timestamp()), 0), %(breaker_seconds)s)
END
"""
PROBE = """
UPDATE vendor_breakers SET state = 'half-open', probe_until = clock_timestamp() + make_interval(secs => %(lease)s)
WHERE key = %(key)s AND (
    (state = 'open' AND opened_at + make_interval(secs => %(breaker_seconds)s) <= clock_timestamp())
    OR (state = 'half-open' AND (probe_until IS NULL OR probe_until <= clock_timestamp())))
"""
RELEASE = "UPDATE vendor_breakers SET probe_until = NULL WHERE key = %s AND state = 'half-open'"


class _Probing(threading.local):
    """The vendor keys that this thread asks whether they are back. What other calls bring late decides nothing."""

    def __init__(self) -> None:
        self.keys: set[str] = set()


_probing = _Probing()


class _Fault(Exception):
    """Stands for a vendor's fault towards the library."""


class HeldRow(pybreaker.CircuitBreakerStorage):
    """The library's state, in a row that the present transaction has locked; times are the database's."""

    def __init__(self, row: Breaker) -> None:
        super().__init__("postgresql")
        self.row = row
        self.opened = False

    @property
    def state(self) -> str:
        return self.row.state

    @state.setter
    def state(self, state: str) -> None:
        self.row.state = state

    def increment_counter(self) -> None:
        self.row.faults += 1

    def reset_counter(self) -> None:
        self.row.faults = 0

    def increment_success_counter(self) -> None:
        self.row.successes += 1

    def reset_success_counter(self) -> None:
        self.row.successes = 0

    @property
    def counter(self) -> int:
        return self.row.faults

    @property
    def success_counter(self) -> int:
        return self.row.successes

    @property
    def opened_at(self) -> datetime | None:
        return self.row.opened_at

    @opened_at.setter
    def opened_at(self, datetime: datetime) -> None:
        self.opened = True  # whatever this process takes for the time

    def save(self) -> None:
        row = self.row
        with connection.cursor() as cursor:
            cursor.execute(
                SAVE,
                {
                    "key": row.key,
                    "state": row.state,
                    "faults": row.faults,
                    "successes": row.successes,
                    "opened": self.opened,
                },
            )


class _Log(pybreaker.CircuitBreakerListener):
    def state_change(
        self,
        cb: pybreaker.CircuitBreaker,
        old_state: pybreaker.CircuitBreakerState | None,
        new_state: pybreaker.CircuitBreakerState,
    ) -> None:
        if new_state.name == OPEN:
            log.warning("Vendor %s is away: calls wait %g s for a probe.", cb.name, cb.reset_timeout)
        else:
            log.info("Vendor %s is back.", cb.name)


def params() -> dict[str, float]:
    """Return what ``WAIT`` and ``PROBE`` need."""
    return {"breaker_seconds": settings.VENDOR_BREAKER_SECONDS, "lease": settings.VENDOR_TIMEOUT_SECONDS + 10}


def start_probe(vendor: Vendor) -> bool:
    """Become the one who asks whether the vendor is back; False when somebody else is, or it is too early."""
    with connection.cursor() as cursor:
        cursor.execute(PROBE, {"key": vendor.circuit, **params()})
        if cursor.rowcount:
            _probing.keys.add(vendor.circuit)
        return bool(cursor.rowcount)


def discard_probe(vendor: Vendor) -> None:
    """Drop a probe of this thread that never came to an end: the breaker has closed since."""
    _probing.keys.discard(vendor.circuit)


def release_probe(vendor: Vendor) -> None:
    """Let another probe: this one ended without an answer of the vendor, by a fault of ours."""
    if vendor.circuit in _probing.keys:
        _probing.keys.discard(vendor.circuit)
        with connection.cursor() as cursor:
            cursor.execute(RELEASE, [vendor.circuit])


def record_success(vendor: Vendor) -> None:
    """Record that the vendor answered; one statement while it is well."""
    if vendor.circuit not in _probing.keys:
        with connection.cursor() as cursor:
            cursor.execute(UNWELL, [vendor.circuit])
            if cursor.fetchone() is None:
                return
    _report(vendor, fault=False)


def record_failure(vendor: Vendor) -> bool:
    """Record a fault of the vendor; return whether calls are held back now."""
    return _report(vendor, fault=True) != CLOSED


def _report(vendor: Vendor, *, fault: bool) -> str:
    probing = vendor.circuit in _probing.keys
    _probing.keys.discard(vendor.circuit)
    with transaction.atomic():
        row = _locked(vendor.circuit)
        if row.state == OPEN or (row.state == HALF_OPEN and not probing):
            return row.state  # of a call from before it opened
        storage = HeldRow(row)
        _decide(vendor, storage, fault=fault)
        storage.save()
    return HALF_OPEN if probing and fault else row.state


def _decide(vendor: Vendor, storage: HeldRow, *, fault: bool) -> None:
    def outcome() -> None:
        if fault:
            raise _Fault

    breaker = pybreaker.CircuitBreaker(
        fail_max=max(2, settings.VENDOR_BREAKER_FAULTS + 1 - vendor.circuits),
        reset_timeout=settings.VENDOR_BREAKER_SECONDS,
        state_storage=storage,
        listeners=[_Log()],
        name=vendor.name,
        throw_new_error_on_trip=False,
    )
    try:
        breaker.call(outcome)
    except _Fault:
        return


def _locked(key: str) -> Breaker:
    found = list(Breaker.objects.raw(LOCK, [key]))
    if not found:
        with connection.cursor() as cursor:
            cursor.execute(CREATE, [key])
        found = list(Breaker.objects.raw(LOCK, [key]))
    return found[0]
