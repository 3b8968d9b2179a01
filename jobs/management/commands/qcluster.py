"""Run django-q2's cluster with a maintenance loop, a graceful stop within 30 seconds, and a hang watchdog."""

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
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandParser
from django.db import connections
from django.db.utils import DatabaseError, InterfaceError
from django.utils.module_loading import import_string
from django_q.cluster import Cluster
from django_q.signals import post_spawn

from jobs import telemetry
from jobs.cluster import live_clusters, maintenance, shared_state
from jobs.cluster.heartbeat import HEARTBEAT
from jobs.side_queues import side_queues

log = logging.getLogger("accessa.jobs")
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}
PR_SET_PDEATHSIG = 1
EXTRA_GRACE_SECONDS = 3.0  # beyond the workers' own grace


class Command(BaseCommand):
    help = "Runs the workers until SIGTERM; out within 30 seconds, whatever they hold."
    requires_system_checks = ("accessa",)  # of the settings; others load the pages, a quarter of the start

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--until-idle", action="store_true", help="stop when no job is active any more")

    def handle(self, *args: Any, **options: Any) -> None:
        if settings.DATABASE_TRANSACTION_POOLING:
            raise ImproperlyConfigured("Workers LISTEN: DATABASE_TRANSACTION_POOLING is for the API's processes only.")
        shared_state.start_cluster()
        pool = start_pool()
        telemetry.start_tracers()
        for number in STOP_SIGNALS:
            signal.signal(number, lambda *_: shared_state.request_stop())
        try:
            watch_pool(pool, until_idle=options["until_idle"])
        except BaseException:
            # Exiting would wait for the pool for ever, and the process would look alive without maintenance.
            log.exception("The cluster's main process failed.")
            maintenance.kill_cluster()
        stop_pool(pool)


def watch_pool(pool: Cluster, *, until_idle: bool = False) -> None:
    """Run the maintenance loop until a stop is requested or django-q2's sentinel is gone."""
    loop = maintenance.MaintenanceLoop()
    while not shared_state.is_stopping() and pool.sentinel.is_alive():
        pause = loop.tick()
        if until_idle and maintenance.is_idle():
            return
        until = time.monotonic() + pause  # a signal that requests a stop ends the pause
        while not shared_state.is_stopping() and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))


def start_pool() -> Cluster:
    """Fork the cluster. Its processes never receive SIGTERM: a signal to the whole group would hang django-q2.

    They inherit a mask with the two signals blocked, whatever handlers django-q2 sets; only this process unblocks
    them. They die with the process that forked them, or orphans would continue to work.
    """
    kill_children_on_exit()
    post_spawn.connect(_begin_worker, dispatch_uid="jobs.cluster.heartbeat")
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    pool = Cluster()
    import_string(settings.JOBS_PIPELINES)  # once, not in each worker
    list(side_queues())
    connections.close_all()
    pool.start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    return pool


def stop_pool(pool: Cluster) -> None:
    shared_state.request_stop()
    threading.Thread(target=_enforce_stop, name="enforce-stop", daemon=True).start()
    pool.stop()
    with suppress(DatabaseError, InterfaceError):  # the row expires within half a minute anyway
        live_clusters.unregister()


def _enforce_stop() -> None:
    """End a stop that hangs: with exit code 0 once no job is held, and at the promised time in any case.

    django-q2 waits for its pusher, which may wait for room in the queue of workers that had to be killed.
    """
    promised = time.monotonic() + settings.JOBS_STOP_SECONDS
    time.sleep(settings.JOBS_STOP_GRACE_SECONDS + EXTRA_GRACE_SECONDS)
    while (holding := maintenance.may_hold_jobs()) and time.monotonic() < promised:
        time.sleep(0.5)
    log.warning("django-q2 did not stop by itself; ending it.")
    maintenance.kill_cluster(None if holding else 0)


def kill_children_on_exit() -> None:
    """Make every process forked from here on die with its parent (Linux; elsewhere the leases expire)."""
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
    telemetry.start_tracers()
