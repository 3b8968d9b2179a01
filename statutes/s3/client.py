"""S3 client for statutes: reads and writes with explicit limits, and errors as ``OSError``."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

import boto3
from botocore.config import Config
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from documents.storage import s3

CONCURRENCY = 16  # connections, and so uploads: the 300 objects of a law at 30 ms each take 0.9 s, not 1.7
JSON = "application/json"


class ObjectTooLarge(OSError):
    """The object has more bytes than may be read."""

    def __init__(self) -> None:
        super().__init__(errno.EFBIG, "The object is too large.")


class BucketMissing(OSError):
    """The bucket does not exist: to callers that do not handle it, the store is away."""

    def __init__(self) -> None:
        super().__init__(errno.ENOTCONN, "There is no such bucket.")


@dataclass(frozen=True, slots=True)
class Head:
    """``tags`` is None where the store has no tags, or does not let us read them."""

    size: int
    etag: str
    tags: dict[str, str] | None


def statutes_bucket() -> str:
    """Return the bucket of the artifacts, and of raw files whose message names none."""
    if not settings.STATUTES_BUCKET:
        raise ImproperlyConfigured("Statutes need STATUTES_BUCKET.")
    return str(settings.STATUTES_BUCKET)


def raw_buckets() -> set[str]:
    """Return the buckets that a message may name: every tenant can search what is read from them."""
    return {settings.STATUTES_BUCKET, *settings.STATUTES_RAW_BUCKETS}


def head_object(bucket: str, key: str) -> Head:
    """Return an object's head. Raises ``FileNotFoundError``, and ``OSError`` when the store or the bucket is away."""
    try:
        head = _call("head_object", Bucket=bucket, Key=key)
    except FileNotFoundError:
        _require_bucket(bucket)
        raise
    return Head(head["ContentLength"], head["ETag"], object_tags(bucket, key))


def object_tags(bucket: str, key: str) -> dict[str, str] | None:
    """Return an object's tags as in ``Head``; they may be readable where the object is not."""
    try:
        tags = _call("get_object_tagging", Bucket=bucket, Key=key)["TagSet"]
    except s3.OperationNotAllowed:  # an S3 without tags, or credentials that may not read them
        return None
    return {tag["Key"]: tag["Value"] for tag in tags}


def _require_bucket(bucket: str) -> None:
    """Raise ``BucketMissing`` for a missing bucket, which HEAD of an object answers with the same bare 404."""
    with _bucket_errors():
        _call("head_bucket", Bucket=bucket)


def is_accessible(bucket: str) -> bool:
    """Tell whether a bucket exists and is readable. Raises ``OSError`` when the store is away."""
    try:
        _require_bucket(bucket)
    except (BucketMissing, s3.OperationNotAllowed):
        return False
    return True


def download_object(bucket: str, key: str, to: Path, *, etag: str | None = None, most: int | None = None) -> int:
    """Write an object into a file and return its size; with ``etag``, only the object that ``head_object`` has seen.

    Raises ``ObjectTooLarge`` past ``most`` or else ``STATUTES_MAX_BYTES``, whatever its head says.
    """
    with to.open("wb") as file:
        return sum(file.write(piece) for piece in _pieces(bucket, key, most, {"IfMatch": etag} if etag else {}))


def read_object(bucket: str, key: str, *, most: int | None = None) -> bytes:
    return b"".join(_pieces(bucket, key, most, {}))


def _pieces(bucket: str, key: str, most: int | None, conditions: dict[str, Any]) -> Iterator[bytes]:
    left = most or settings.STATUTES_MAX_BYTES
    with closing(_call("get_object", Bucket=bucket, Key=key, **conditions)["Body"]) as body, s3.map_s3_errors():
        for piece in body.iter_chunks(s3.READ_BYTES):
            left -= len(piece)
            if left < 0:
                raise ObjectTooLarge
            yield piece


def put_object(bucket: str, key: str, body: bytes | IO[bytes], *, mime: str = JSON) -> None:
    """Write an object atomically."""
    encryption = s3.encryption_params() if _shares_documents_store() else {}  # else the bucket's own default
    with _bucket_errors():
        _call("put_object", Bucket=bucket, Key=key, Body=body, ContentType=mime, **encryption)


def copy_object(bucket: str, key: str, *, to: str, to_bucket: str | None = None) -> None:
    """Copy an object without its tags within the store, atomically. Raises ``FileNotFoundError``."""
    target = {"Bucket": to_bucket or bucket, "Key": to, "TaggingDirective": "REPLACE"}
    encryption = s3.encryption_params() if _shares_documents_store() else {}
    _call("copy_object", CopySource={"Bucket": bucket, "Key": key}, **target, **encryption)


def delete_object(bucket: str, key: str) -> None:
    with _bucket_errors():
        _call("delete_object", Bucket=bucket, Key=key)


def list_keys(bucket: str, prefix: str) -> Iterator[str]:
    params: dict[str, Any] = {"Prefix": prefix, "MaxKeys": s3.LIST_PAGE_SIZE}
    while True:
        with _bucket_errors():
            page = _call("list_objects_v2", Bucket=bucket, **params)
        yield from (entry["Key"] for entry in page.get("Contents", []))
        if not page.get("IsTruncated"):
            return
        params["ContinuationToken"] = page["NextContinuationToken"]


@contextmanager
def _bucket_errors() -> Iterator[None]:
    """Map the 404 of an operation that needs no object to ``BucketMissing``."""
    try:
        yield
    except FileNotFoundError:
        raise BucketMissing from None


def _call(operation: str, **params: Any) -> Any:
    credentials: tuple[str, ...] = ()  # AWS' own chain, such as a role
    if _shares_documents_store():
        credentials = (settings.S3_ACCESS_KEY_ID, settings.S3_SECRET_ACCESS_KEY, settings.S3_SESSION_TOKEN)
    with _client_lock:
        client = _client(settings.STATUTES_S3_ENDPOINT_URL, settings.S3_REGION, credentials, os.getpid())
    with s3.map_s3_errors():
        response = getattr(client, operation)(**params)
    if operation in s3.REQUIRED_KEYS and s3.REQUIRED_KEYS[operation] not in response:
        if "Body" in response:
            response["Body"].close()
        raise OSError(errno.ENOTCONN, "What answers is no S3.")
    return response


def _shares_documents_store() -> bool:
    return bool(settings.S3_ACCESS_KEY_ID) and settings.STATUTES_S3_ENDPOINT_URL == settings.S3_ENDPOINT_URL


_client_lock = threading.Lock()  # with the cache alone, concurrent threads make one client each


@cache
def _client(endpoint: str | None, region: str, credentials: tuple[str, ...], process: int) -> Any:
    """Return one client for all threads of a process; a fork makes its own, because sockets must not be shared."""
    style = {"addressing_style": "path" if endpoint else "auto"}
    config = s3.client_config().merge(Config(s3=style, max_pool_connections=CONCURRENCY + 2))
    access, secret, token = credentials or ("", "", "")
    session = boto3.Session(access or None, secret or None, token or None)
    return session.client("s3", endpoint_url=endpoint, region_name=region, config=config)
