"""django-q2's cluster as the worker, with the stop and the watchdog that it lacks."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.db import connections
from django.db.utils import DatabaseError, InterfaceError
from django_q.cluster import Cluster
from django_q.signals import post_spawn

from jobs import tracing
from jobs.cluster import maintenance, registry, shared_memory
from jobs.cluster.heartbeat import HEARTBEAT

log = logging.getLogger("accessa.jobs")
STOPS = {signal.SIGTERM, signal.SIGINT}
PR_SET_PDEATHSIG = 1
PATIENCE = 3.0  # beyond the workers' own grace


class Command(BaseCommand):
    help = "Runs the workers until SIGTERM; out within 30 seconds, whatever they hold."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--until-idle", action="store_true", help="stop when no job is active any more")

    def handle(self, *args: Any, **options: Any) -> None:
        shared_memory.start_cluster()
        pool = start_pool()
        tracing.start_tracers()
        for number in STOPS:
            signal.signal(number, lambda *_: shared_memory.request_stop())
        try:
            watch_pool(pool, until_idle=options["until_idle"])
        except BaseException:
            # Leaving would wait for the pool for ever; a main process that cannot keep must not look alive.
            log.exception("The cluster's main process failed.")
            maintenance.kill_cluster()
        stop_pool(pool)


def watch_pool(pool: Cluster, *, until_idle: bool = False) -> None:
    """Keep the cluster until it is told to stop; return as well when django-q2's own guard is gone."""
    keep = maintenance.MaintenanceLoop()
    while not shared_memory.is_stopping() and pool.sentinel.is_alive():
        keep.tick()
        if until_idle and maintenance.is_idle():
            return
        _nap(maintenance.TICK_SECONDS)


def start_pool() -> Cluster:
    """Fork the cluster. Its processes never see SIGTERM: a signal to the whole group would hang django-q2.

    They inherit a mask with the two signals blocked, whatever handlers django-q2 sets; only this process unblocks
    them. And they die with the process that forked them: orphans would go on working with nobody to stop them.
    """
    kill_children_on_exit()
    post_spawn.connect(_begin_worker, dispatch_uid="jobs.cluster.heartbeat")
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    pool = Cluster()
    connections.close_all()
    pool.start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    return pool


def stop_pool(pool: Cluster) -> None:
    """Let the workers finish or release what they hold, and end what does not end by itself."""
    shared_memory.request_stop()
    threading.Thread(target=_insist, name="insist", daemon=True).start()
    pool.stop()
    with suppress(DatabaseError, InterfaceError):  # unseen for half a minute it counts as gone all the same
        registry.unregister()


def _insist() -> None:
    """End a stop that hangs: quietly once nothing is held any more, at the promised time whatever is.

    django-q2 waits for its pusher, which may wait for room in the queue of workers that had to be ended.
    """
    promised = time.monotonic() + settings.JOBS_STOP_SECONDS
    time.sleep(settings.JOBS_STOP_GRACE_SECONDS + PATIENCE)
    while (holding := maintenance.may_hold_jobs()) and time.monotonic() < promised:
        time.sleep(0.5)
    log.warning("django-q2 did not stop by itself; ending it.")
    maintenance.kill_cluster(None if holding else 0)


def kill_children_on_exit() -> None:
    """Make every process forked from here on die with its parent (Linux; elsewhere the leases run out)."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    parents: dict[str, int] = {}

    def before() -> None:
        parents["pid"] = os.getpid()

    def in_child() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parents["pid"]:
            os.kill(os.getpid(), signal.SIGKILL)

    os.register_at_fork(before=before, after_in_child=in_child)


def _begin_worker(**_: Any) -> None:
    HEARTBEAT.may_kill_process = True
    tracing.start_tracers()


def _nap(seconds: float) -> None:
    """Sleep, but wake for a signal that asks to stop."""
    until = time.monotonic() + seconds
    while not shared_memory.is_stopping() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 0.1))
