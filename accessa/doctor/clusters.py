"""Checks of the workers: alive, and with the same configuration and code."""

import socket
from collections.abc import Iterator

from django.conf import settings

from accessa import config_digest
from accessa.doctor.findings import Finding, error, note, warning
from jobs.cluster import live_clusters

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
