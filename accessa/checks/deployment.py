"""System checks of a deployment (`manage.py check --deploy`): development defaults, and buckets by a probe object."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, cast
from uuid import uuid4

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error
from django.core.files.storage import storages

from accessa.checks import Rule, check_rules, is_local, s3_error_messages
from accessa.checks.connectors import CONNECTOR_DEPLOYMENT_RULES
from accessa.checks.statutes import STATUTE_DEPLOYMENT_RULES
from documents.storage import BUCKETS, Bucket, LocalSignedStorage

EMBEDDED = "accessa.embedded_postgres.backend"
LOCAL_FILES = "documents.storage.LocalSignedStorage"
PROBE_FOLDER = "doctor"  # in each bucket; doctor deletes what a killed probe has left
PRIVATE = "Block all public access to it."

# fmt: off
DEPLOYMENT_RULES = (
    Rule("accessa.E101", lambda s: s.DATABASES["default"]["ENGINE"] == EMBEDDED,
         "The embedded PostgreSQL serves one machine.", "Set DATABASE_URL."),
    Rule("accessa.E102", lambda s: s.STORAGES["raw"]["BACKEND"] == LOCAL_FILES,
         "Files are kept on this machine's disk.", "Set up a bucket."),
    Rule("accessa.E103", lambda s: s.SECRET_KEY_IS_LOCAL,
         "SECRET_KEY is this machine's own development key.", "Set SECRET_KEY."),
    Rule("accessa.E104", lambda s: s.DEBUG, "DEBUG shows settings and rows to strangers.", "Unset DEBUG."),
    Rule("accessa.W107", lambda s: s.TRUSTED_PROXIES < 1 and not is_local(s.PUBLIC_URL),
         "PUBLIC_URL is public and TRUSTED_PROXIES is 0: behind a proxy all clients have its address, and one client"
         " that guesses passwords locks out all.",
         "Set TRUSTED_PROXIES to the number of your own proxies that a request passes, which set X-Forwarded-For."),
    Rule("accessa.W108", lambda s: not s.METRICS_TOKEN and not is_local(s.PUBLIC_URL),
         "PUBLIC_URL is public and METRICS_TOKEN is not set: through a proxy on this host that adds no header of its"
         " own, strangers can read /metrics.",
         "Set METRICS_TOKEN, and give it to Prometheus."),
)
# fmt: on


def check_deployment(*, app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    return list(check_rules((*DEPLOYMENT_RULES, *CONNECTOR_DEPLOYMENT_RULES, *STATUTE_DEPLOYMENT_RULES)))


def check_buckets(*, app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Write, find and delete a small object in each bucket, and request it without a signature."""
    remote = [name for name in BUCKETS if not isinstance(storages[name], LocalSignedStorage)]
    return [message for name in remote for message in _probe(name, cast(Bucket, storages[name]))]


def _probe(name: str, bucket: Bucket) -> Iterator[CheckMessage]:
    probe = f"{PROBE_FOLDER}/{uuid4()}"
    reason = remedy = ""
    try:
        bucket.put(probe, b"probe")
        exists, is_public = bucket.exists(probe), bucket.is_public(probe)
        bucket.delete(probe)
        works = exists and not bucket.exists(probe)
    except OSError as error:
        works = is_public = False
        reason, remedy = s3_error_messages.explain_s3_error(name, error)
        with suppress(OSError):
            bucket.delete(probe)
    if not works:
        yield Error(
            f"The bucket for {name} files cannot be written, read and emptied{reason and f': {reason}'}.",
            hint=remedy or s3_error_messages.RIGHTS,
            id="accessa.E105",
        )
    if is_public:
        yield Error(f"Strangers can read the bucket for {name} files.", hint=PRIVATE, id="accessa.E106")
