"""Who does the work: is somebody there, does the doorbell ring, is it the same configuration, are the clocks right."""

from __future__ import annotations

import importlib
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
from accessa.doctor.http import Silent, ask
from accessa.doctor.runner import Finding, doubtful, not_needed, note, wrong
from documents.storage.s3 import S3Bucket
from jobs.cluster import registry
from jobs.cluster.broker import NotifyBroker
from jobs.errors import safe_error_name
from jobs.models import Cluster

SKEW_SECONDS, TOO_MUCH_SECONDS = 60.0, 240.0  # callbacks are good for 300 s, S3's signatures for 900
SYNCHRONISE = "Let its clock follow a time server (chrony, systemd-timesyncd): signatures name the time."


def alive() -> Iterator[Finding]:
    workers = registry.count_workers()
    if not workers:
        says = "No worker is alive: what is uploaded waits."
        yield wrong(says, "Start one: manage.py qcluster (manage.py serve starts API and workers).")
        return
    clusters = registry.live_clusters().count()
    yield note(f"{workers} in {clusters} cluster{'s' if clusters > 1 else ''}.")


def alike() -> Iterator[Finding]:
    """Compare what each cluster runs with to what this process runs with: digests, which nobody can read."""
    own = config_digest.compute_digests()
    clusters = list(registry.live_clusters().order_by("name"))
    for cluster in clusters:
        differing = sorted(name for name in own if cluster.fingerprint.get(name) != own[name])
        if not cluster.fingerprint:
            yield wrong(f"The workers {cluster.name} are of an older version.", "Restart them with this version.")
        elif config_digest.SECRET_KEY in differing:
            yield wrong(
                f"The workers {cluster.name} have another SECRET_KEY.",
                "Give API, workers and this shell one SECRET_KEY.",
            )
        elif differing == [config_digest.CODE]:
            yield doubtful(f"The workers {cluster.name} run another version of this program.", "Restart them.")
        elif differing:
            yield wrong(
                f"The workers {cluster.name} run with another {', '.join(differing)}.",
                "Give API, workers and this shell the same environment, and restart them.",
            )
    yield from _one_machine(clusters)


def _one_machine(clusters: list[Cluster]) -> Iterator[Finding]:
    if settings.STORAGE != "local":
        return
    hosts = {cluster.name.rpartition(":")[0] for cluster in clusters} | {socket.gethostname()}
    if len(hosts) > 1:
        yield wrong(
            f"Files are kept on one machine's disk, and there are {len(hosts)} machines: {', '.join(sorted(hosts))}.",
            "Set up a bucket (S3_ACCESS_KEY_ID …), or let STORAGE_ROOT be one disk that all of them mount.",
        )


def doorbell() -> Iterator[Finding]:
    """Ring on a channel of doctor's own, and hear it on another session: a pooler in between may lose it."""
    broker = get_broker()
    if not isinstance(broker, NotifyBroker):
        yield from _other_broker(broker)
        return
    channel = f"doctor_{uuid4().hex[:12]}"
    other = connections.create_connection(DEFAULT_DB_ALIAS)
    try:
        other.ensure_connection()
        ears: Any = other.connection
        ears.autocommit = True
        ears.execute(f"LISTEN {channel}")
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, '')", [channel])
        heard = list(ears.notifies(timeout=3.0, stop_after=1))
    finally:
        other.close()
    if not heard:
        yield wrong(
            "A ring over NOTIFY is not heard: workers find new work a second late, and advisory locks do not hold.",
            "Connect the workers past the pooler, or in its session mode.",
        )


def _other_broker(broker: Any) -> Iterator[Finding]:
    kind = type(broker).__name__
    try:
        answers = bool(broker.ping())
    except Exception as error:  # a client of somebody else's: Redis, SQS
        yield wrong(
            f"The doorbell ({kind}) does not answer: {safe_error_name(error)}.",
            "Correct DOORBELL_REDIS_URL or DOORBELL_SQS_REGION.",
        )
        return
    if not answers:
        yield wrong(f"The doorbell ({kind}) does not answer.", "Correct DOORBELL_REDIS_URL or DOORBELL_SQS_REGION.")


def budget() -> Iterator[Finding]:
    """The shared budget in Redis, if it is there."""
    if not settings.VENDOR_BUDGET_REDIS_URL:
        yield not_needed("it is in the database")
        return
    try:
        redis: Any = importlib.import_module("redis")  # of the optional set
        with redis.Redis.from_url(settings.VENDOR_BUDGET_REDIS_URL, socket_timeout=3.0) as client:
            client.ping()
    except Exception as error:
        yield wrong(
            f"The budget's Redis does not answer: {safe_error_name(error)}.",
            "Correct VENDOR_BUDGET_REDIS_URL, or unset it.",
        )


# Clocks


def clocks() -> Iterator[Finding]:
    """Compare this machine's clock with the database's, and all others with this one."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float")
        (there,) = cursor.fetchone()
    here = time.time()
    yield from _skewed("The database's clock", there - here)
    for cluster in registry.live_clusters():
        yield from _skewed(f"The clock of the workers {cluster.name}", there + cluster.clock_ahead - here)
    for who, url in _others():
        try:
            answer = ask("HEAD", url, seconds=3.0)
        except Silent:  # who cannot be reached is told of by another check
            continue
        if answer.clock is not None:
            yield from _skewed(f"The clock of {who}", answer.clock - time.time())


def _others() -> Iterator[tuple[str, str]]:
    yield "the API", f"{settings.PUBLIC_URL}/healthz"
    bucket = storages["raw"]
    if isinstance(bucket, S3Bucket):
        yield "the bucket", bucket.client.meta.endpoint_url
    if settings.PARSER == "llamaparse":
        yield "LlamaParse", settings.LLAMAPARSE_BASE_URL
    if settings.EMBEDDER == "openai":
        yield "OpenAI", settings.OPENAI_BASE_URL


def _skewed(whose: str, seconds: float) -> Iterator[Finding]:
    if abs(seconds) < SKEW_SECONDS:
        return
    says = f"{whose} is {abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} this machine's."
    yield wrong(says, SYNCHRONISE) if abs(seconds) > TOO_MUCH_SECONDS else doubtful(says, SYNCHRONISE)
