"""Circuit breaker of each vendor key, shared by all processes through one row: closed, open, half-open.

| state     | a failure                      | a success                   | a call                                  |
|-----------|--------------------------------|-----------------------------|-----------------------------------------|
| closed    | counted; opens at the limit    | starts the count again      | passes                                  |
| open      | late: ignored                  | late: ignored               | waits; one probes when the pause is over |
| half-open | of the probe: opens it again   | of the probe: closes it     | waits for the probe                     |
"""

import logging
import threading

from django.conf import settings
from django.db import connection

from vendors.vendor_account import Vendor

log = logging.getLogger("accessa.vendors")

# The first failure of a key makes its row. The limit is 2 at least, so one failure opens nothing.
FAILURE = """
INSERT INTO vendor_breakers AS b (key, faults) VALUES (%(key)s, 1)
ON CONFLICT (key) DO UPDATE SET
    faults = b.faults + 1,
    probe_until = NULL,
    state = CASE WHEN b.state = 'half-open' OR b.faults + 1 >= %(limit)s THEN 'open' ELSE 'closed' END,
    opened_at = CASE WHEN b.state = 'half-open' OR b.faults + 1 >= %(limit)s THEN clock_timestamp() ELSE b.opened_at END
WHERE b.state = 'closed' OR (b.state = 'half-open' AND %(probing)s)
RETURNING state
"""
# Changes no row while the vendor is well.
SUCCESS = """
UPDATE vendor_breakers SET state = 'closed', faults = 0, probe_until = NULL
WHERE key = %(key)s AND ((state = 'closed' AND faults > 0) OR (state = 'half-open' AND %(probing)s))
"""
# NULL: closed. Otherwise the seconds until a probe may start; while one runs, the pause before the next look.
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


class _Probes(threading.local):
    """The breaker keys that this thread probes. Late reports of other threads' calls decide nothing."""

    def __init__(self) -> None:
        self.keys: set[str] = set()


_probes = _Probes()


def params() -> dict[str, float]:
    return {"breaker_seconds": settings.VENDOR_BREAKER_SECONDS, "lease": settings.VENDOR_TIMEOUT_SECONDS + 10}


def start_probe(vendor: Vendor) -> bool:
    """Let this thread's next call be the probe; return False when another is under way, or it is too early."""
    with connection.cursor() as cursor:
        cursor.execute(PROBE, {"key": vendor.circuit, **params()})
        if cursor.rowcount:
            _probes.keys.add(vendor.circuit)
        return bool(cursor.rowcount)


def discard_probe(vendor: Vendor) -> bool:
    """Forget a probe of this thread; return whether there was one."""
    was_probing = vendor.circuit in _probes.keys
    _probes.keys.discard(vendor.circuit)
    return was_probing


def release_probe(vendor: Vendor) -> None:
    """Let another thread probe: this one's probe ended without a response, by a bug of ours."""
    if discard_probe(vendor):
        with connection.cursor() as cursor:
            cursor.execute(RELEASE, [vendor.circuit])


def record_success(vendor: Vendor) -> None:
    """Record a response of the vendor; writes nothing while the breaker is closed and has counted no failure."""
    probing = discard_probe(vendor)
    with connection.cursor() as cursor:
        cursor.execute(SUCCESS, {"key": vendor.circuit, "probing": probing})
        if probing and cursor.rowcount:
            log.info("Vendor %s is back.", vendor.name)


def record_failure(vendor: Vendor) -> bool:
    """Record a failure of the vendor; return whether calls are held back now."""
    probing = discard_probe(vendor)
    limit = max(2, settings.VENDOR_BREAKER_FAULTS + 1 - vendor.circuits)
    with connection.cursor() as cursor:
        cursor.execute(FAILURE, {"key": vendor.circuit, "limit": limit, "probing": probing})
        row = cursor.fetchone()  # None: a late report of a call from before the breaker opened
    if row == ("open",):
        log.warning("Vendor %s is away: calls wait %g s for a probe.", vendor.name, settings.VENDOR_BREAKER_SECONDS)
    return probing or row != ("closed",)
