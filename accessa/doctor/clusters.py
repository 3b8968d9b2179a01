"""Checks of the workers: alive, same configuration, broker, Redis, clocks."""

import socket
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.core.files.storage import storages
from django.db import DEFAULT_DB_ALIAS, connection, connections
from django_q.brokers import get_broker

from accessa import config_digest
from accessa.doctor.http_probe import NoResponse, send_request
from accessa.doctor.runner import Finding, error, note, warning
from documents.storage.s3 import S3Bucket
from jobs.cluster import live_clusters
from jobs.cluster.broker import NotifyBroker
from jobs.safe_errors import safe_error_name

SKEW_SECONDS, MAX_SKEW_SECONDS = 60.0, 240.0  # callbacks are valid for 300 s, S3's signatures for 900
SAME_ENVIRONMENT = "Give API, workers and this shell the same environment, and restart them."


def check_workers() -> Iterator[Finding]:
    workers = live_clusters.count_workers()
    if not workers:
        message = "No worker is alive: uploads wait."
        yield error(message, "Start one: manage.py qcluster (manage.py serve starts API and workers).")
        return
    clusters = live_clusters.live_clusters().count()
    yield note(f"{workers} in {clusters} cluster{'s' if clusters > 1 else ''}.")


def check_configuration() -> Iterator[Finding]:
    own = config_digest.compute_digests()
    clusters = list(live_clusters.live_clusters().order_by("name"))
    for cluster in clusters:
        differing = sorted(name for name in own if cluster.fingerprint.get(name) != own[name])
        workers = f"The workers {cluster.name}"
        if not cluster.fingerprint:
            yield error(f"{workers} are of an older version.", "Restart them with this version.")
        elif config_digest.SECRET_KEY in differing:
            yield error(f"{workers} have another SECRET_KEY.", "Give API, workers and this shell one SECRET_KEY.")
        elif differing == [config_digest.CODE]:
            yield warning(f"{workers} run another version of this program.", "Restart them.")
        elif differing:
            yield error(f"{workers} run with another {', '.join(differing)}.", SAME_ENVIRONMENT)
    hosts = {cluster.name.rpartition(":")[0] for cluster in clusters} | {socket.gethostname()}
    if settings.STORAGE == "local" and len(hosts) > 1:
        yield error(
            f"Files are kept on one machine's disk, and there are {len(hosts)} machines: {', '.join(sorted(hosts))}.",
            "Set up a bucket (S3_ACCESS_KEY_ID …), or let STORAGE_ROOT be one disk that all of them mount.",
        )


def check_broker() -> Iterator[Finding]:
    """Notify a channel of doctor's own and listen on another session: a connection pooler may lose it."""
    broker = get_broker()
    if not isinstance(broker, NotifyBroker):
        try:
            reason = "" if broker.ping() else "."
        except Exception as failure:  # of another library's client: Redis, SQS
            reason = f": {safe_error_name(failure)}."
        if reason:
            remedy = "Correct BROKER_REDIS_URL or BROKER_SQS_REGION."
            yield error(f"The broker ({type(broker).__name__}) does not answer{reason}", remedy)
        return
    channel = f"doctor_{uuid4().hex[:12]}"
    listener = connections.create_connection(DEFAULT_DB_ALIAS)
    try:
        listener.ensure_connection()
        session: Any = listener.connection
        session.autocommit = True
        session.execute(f"LISTEN {channel}")
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, '')", [channel])
        notifications = list(session.notifies(timeout=3.0, stop_after=1))
    finally:
        listener.close()
    if not notifications:
        yield error(
            "A NOTIFY is lost: workers find new work a second late, and advisory locks do not hold.",
            "Connect the workers past the pooler, or in its session mode.",
        )


def check_clocks() -> Iterator[Finding]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float")
        (database_time,) = cursor.fetchone()
    ahead = database_time - time.time()
    yield from _check_skew("The database's clock", ahead)
    for cluster in live_clusters.live_clusters():
        yield from _check_skew(f"The clock of the workers {cluster.name}", ahead + cluster.clock_ahead)
    bucket = storages["raw"]
    servers = {"the API": f"{settings.PUBLIC_URL}/healthz"}
    if isinstance(bucket, S3Bucket):
        servers["the bucket"] = bucket.client.meta.endpoint_url
    if settings.PARSER == "llamaparse":
        servers["LlamaParse"] = settings.LLAMAPARSE_BASE_URL
    if settings.EMBEDDER == "openai":
        servers["OpenAI"] = settings.OPENAI_BASE_URL
    for server, url in servers.items():
        try:
            response = send_request("HEAD", url, timeout=3.0)
        except NoResponse:  # reported by another check
            continue
        if response.timestamp is not None:
            yield from _check_skew(f"The clock of {server}", response.timestamp - time.time())


def _check_skew(clock: str, seconds: float) -> Iterator[Finding]:
    if abs(seconds) >= SKEW_SECONDS:
        message = f"{clock} is {abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} this machine's."
        remedy = "Let its clock follow a time server (chrony, systemd-timesyncd): signatures contain the time."
        yield error(message, remedy) if abs(seconds) > MAX_SKEW_SECONDS else warning(message, remedy)
