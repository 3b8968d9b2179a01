"""The bucket of laws: what lies there is read and written under explicit limits, and fails as a disk would."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

import boto3
from botocore.config import Config
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from documents.storage.s3 import (
    CONNECT_SECONDS,
    LIST_PAGE_SIZE,
    READ_BYTES,
    READ_SECONDS,
    REQUIRED_KEYS,
    OperationNotAllowed,
    map_s3_errors,
)

CONCURRENCY = 16  # connections, and so uploads, together: the 300 objects of a law at 30 ms each take 0.9 s, not 1.7
JSON = "application/json"


class ObjectTooLarge(OSError):
    """The object has more bytes than may be taken."""

    def __init__(self) -> None:
        super().__init__(errno.EFBIG, "The object is too large.")


class BucketMissing(OSError):
    """There is no such bucket. For whoever does not ask which, the store is away."""

    def __init__(self) -> None:
        super().__init__(errno.ENOTCONN, "There is no such bucket.")


@dataclass(frozen=True, slots=True)
class Head:
    """``tags`` is None where the store knows no tags, or does not let us read them."""

    size: int
    etag: str
    tags: dict[str, str] | None


def statutes_bucket() -> str:
    """Return the bucket of the artifacts, and of raw files whose message names none."""
    if not settings.STATUTES_BUCKET:
        raise ImproperlyConfigured("Statutes need STATUTES_BUCKET.")
    name: str = settings.STATUTES_BUCKET
    return name


def raw_buckets() -> set[str]:
    """Return the buckets from which a message may have a law made: what is read there, every tenant may find."""
    return {settings.STATUTES_BUCKET, *settings.STATUTES_RAW_BUCKETS}


def head_object(bucket: str, key: str) -> Head:
    """Raises ``FileNotFoundError``, and ``OSError`` when the store is away: so for a bucket that is not there."""
    try:
        found = _ask("head_object", Bucket=bucket, Key=key)
    except FileNotFoundError:
        _require(bucket)
        raise
    return Head(found["ContentLength"], found["ETag"], object_tags(bucket, key))


def object_tags(bucket: str, key: str) -> dict[str, str] | None:
    """Return an object's tags, which may be told of one that is not given; as ``Head``'s."""
    try:
        found = _ask("get_object_tagging", Bucket=bucket, Key=key)["TagSet"]
    except OperationNotAllowed:  # an S3 without tags, or a key that may not read them; while it is away nobody knows
        return None
    return {tag["Key"]: tag["Value"] for tag in found}


def _require(bucket: str) -> None:
    """Tell a missing object from a missing bucket: HEAD answers both with a bare 404."""
    try:
        _ask("head_bucket", Bucket=bucket)
    except FileNotFoundError:
        raise BucketMissing from None


def is_accessible(bucket: str) -> bool:
    """Tell whether a bucket is there and lets us look. Raises ``OSError`` when the store is away."""
    try:
        _require(bucket)
    except (BucketMissing, OperationNotAllowed):
        return False
    return True


def download_object(bucket: str, key: str, to: Path, *, etag: str | None = None, most: int | None = None) -> int:
    """Write an object into a file and return its size; with ``etag``, only the object that ``head`` has seen.

    Raises ``TooLarge`` past ``most`` or else ``STATUTES_MAX_BYTES``, whatever its size is said to be.
    """
    most = most or settings.STATUTES_MAX_BYTES
    terms = {"IfMatch": etag} if etag else {}
    size = 0
    with closing(_ask("get_object", Bucket=bucket, Key=key, **terms)["Body"]) as body, to.open("wb") as file:
        for piece in _pieces(body):
            size += len(piece)
            if size > most:
                raise ObjectTooLarge
            file.write(piece)
    return size


def read_object(bucket: str, key: str, *, most: int | None = None) -> bytes:
    """Return a small object whole."""
    most = most or settings.STATUTES_MAX_BYTES
    found = bytearray()
    with closing(_ask("get_object", Bucket=bucket, Key=key)["Body"]) as body:
        for piece in _pieces(body):
            found += piece
            if len(found) > most:
                raise ObjectTooLarge
    return bytes(found)


def _pieces(body: Any) -> Iterator[bytes]:
    with map_s3_errors():
        yield from body.iter_chunks(READ_BYTES)


def put_object(bucket: str, key: str, body: bytes | IO[bytes], *, mime: str = JSON) -> None:
    """Write an object at once: whole, or not at all."""
    with _placed():
        _ask("put_object", Bucket=bucket, Key=key, Body=body, ContentType=mime, **_encryption())


def copy_object(bucket: str, key: str, *, to: str, to_bucket: str | None = None) -> None:
    """Copy an object, but not its tags, within the store: whole or not at all. Raises ``FileNotFoundError``."""
    target = {"Bucket": to_bucket or bucket, "Key": to, "TaggingDirective": "REPLACE"}
    _ask("copy_object", CopySource={"Bucket": bucket, "Key": key}, **target, **_encryption())


def delete_object(bucket: str, key: str) -> None:
    """Remove an object, or nothing."""
    with _placed():
        _ask("delete_object", Bucket=bucket, Key=key)


def list_keys(bucket: str, prefix: str) -> Iterator[str]:
    """Yield the keys that begin with ``prefix``, in order."""
    more: dict[str, Any] = {"Prefix": prefix, "MaxKeys": LIST_PAGE_SIZE}
    while True:
        with _placed():
            page = _ask("list_objects_v2", Bucket=bucket, **more)
        yield from (found["Key"] for found in page.get("Contents", []))
        if not page.get("IsTruncated"):
            return
        more["ContinuationToken"] = page["NextContinuationToken"]


class _placed:
    """What is written needs no object, so a 404 is the bucket's: the store's trouble, not a missing file."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, FileNotFoundError):
            raise BucketMissing from None


def _ask(operation: str, **params: Any) -> Any:
    with map_s3_errors():
        answer = getattr(_client_here(), operation)(**params)
    if operation in REQUIRED_KEYS and REQUIRED_KEYS[operation] not in answer:
        if "Body" in answer:
            answer["Body"].close()
        raise OSError(errno.ENOTCONN, "What answers is no S3.")
    return answer


def _encryption() -> dict[str, str]:
    if not _is_the_documents():
        return {}  # the bucket's own default
    terms = {"ServerSideEncryption": settings.S3_SERVER_SIDE_ENCRYPTION, "SSEKMSKeyId": settings.S3_KMS_KEY_ID}
    return {name: value for name, value in terms.items() if value}


def _is_the_documents() -> bool:
    """Tell whether laws and documents lie in one store, of which one pair of keys is known."""
    return bool(settings.S3_ACCESS_KEY_ID) and settings.STATUTES_S3_ENDPOINT_URL == settings.S3_ENDPOINT_URL


_making = threading.Lock()  # the cache alone lets threads that come together make one each


def _client_here() -> Any:
    keys: tuple[str, ...] = ()  # none: AWS' own chain, such as a role
    if _is_the_documents():
        keys = (settings.S3_ACCESS_KEY_ID, settings.S3_SECRET_ACCESS_KEY, settings.S3_SESSION_TOKEN)
    with _making:
        return _client(settings.STATUTES_S3_ENDPOINT_URL, settings.S3_REGION, keys, os.getpid())


@cache
def _client(endpoint: str | None, region: str, keys: tuple[str, ...], process: int) -> Any:
    """One client for all threads of a process; a fork makes its own, for sockets must not be shared."""
    config = Config(
        signature_version="s3v4",
        s3={"addressing_style": "path" if endpoint else "auto"},
        # The SDK's own checksums are trailers that many S3 of other makers refuse.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        max_pool_connections=CONCURRENCY + 2,
        retries={"mode": "standard", "total_max_attempts": 2},  # the job is what tries again
    )
    access, secret, token = keys or ("", "", "")
    session = boto3.Session(access or None, secret or None, token or None)
    return session.client("s3", endpoint_url=endpoint, region_name=region, config=config)
