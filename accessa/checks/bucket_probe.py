"""System check of the buckets: write, find and delete a probe object in each; refuse strangers."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, cast
from uuid import uuid4

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error
from django.core.files.storage import storages

from accessa.checks import s3_error_messages
from documents.storage.buckets import BUCKETS, Bucket
from documents.storage.local import LocalSignedStorage

PROBE_FOLDER = "doctor"  # in each bucket; doctor deletes what a killed probe has left
PRIVATE = "Block all public access to it."


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
