"""Check of the clocks: database, workers, API, bucket and vendors, against this machine."""

import time
from collections.abc import Iterator

from django.conf import settings
from django.core.files.storage import storages
from django.db import connection

from accessa.doctor.findings import Finding, error, warning
from accessa.doctor.http_probe import NoResponse, send_request
from documents.storage.s3 import S3Bucket
from jobs.cluster import live_clusters

SKEW_SECONDS, MAX_SKEW_SECONDS = 60.0, 240.0  # callbacks are valid for 300 s, S3's signatures for 900


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
