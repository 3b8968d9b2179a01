"""Buckets in an S3: AWS's, another's, or Supabase's. Tenants reach them by presigned URLs, or through this project."""

from __future__ import annotations

import base64
import errno
import logging
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any

import boto3
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError, ParamValidationError
from botocore.parsers import ResponseParserError
from django.conf import settings
from django.core.files import File
from django.utils.http import content_disposition_header
from storages.backends.s3 import S3Storage

from documents.storage import SignedUrlMixin
from documents.validation import MIME

log = logging.getLogger("accessa.storage")

READ_BYTES = 256 * 1024
LIST_PAGE_SIZE = 1000  # objects in one answer: S3's most
TYPES = {"raw": MIME, "parsed": "text/markdown; charset=utf-8"}
MISSING = {"404", "NoSuchKey", "NotFound"}
NO_TAGS = "NoSuchTagSet"  # some makers' 404 for an object that is there
# What each answer of an S3 has and a proxy's page of status 200 has not: such a page is no file of a tenant's.
REQUIRED_KEYS = {
    "head_object": "ETag", "get_object": "ETag", "put_object": "ETag", "list_objects_v2": "Name",
    "get_object_tagging": "TagSet",
}  # fmt: skip
DECLINED = {HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED}
PASSING = ("Throttl", "Timeout", "Expired", "Skewed")  # in codes of a 400 or 403 that say nothing of what was asked for
CONNECT_SECONDS, READ_SECONDS = 5, 60


class S3Bucket(SignedUrlMixin, S3Storage):  # type: ignore[misc]
    """A private bucket. Every write is one PutObject: S3 shows the whole object or what was there before."""

    def __init__(self, bucket: str) -> None:
        self.alias = bucket
        # A presigned URL carries its signer's session token; Supabase's is the key to everything.
        self.presigns = settings.S3_PRESIGN and not settings.S3_SESSION_TOKEN
        # Nobody tells us that a presigned upload is done; one that goes through us wakes its job.
        self.poll_seconds = 2.0 if self.presigns else 60.0
        self._clients: dict[int, Any] = {}
        self._seen = False
        super().__init__(
            bucket_name={"raw": settings.S3_RAW_BUCKET, "parsed": settings.S3_PARSED_BUCKET}[bucket],
            access_key=settings.S3_ACCESS_KEY_ID or None,  # none: what AWS gives the machine, such as a role
            secret_key=settings.S3_SECRET_ACCESS_KEY or None,
            security_token=settings.S3_SESSION_TOKEN or None,
            session_profile=None,
            endpoint_url=settings.S3_ENDPOINT_URL,
            region_name=settings.S3_REGION,
            custom_domain=None,  # its URLs are not signed
            client_config=_config(),
        )

    @property
    def client(self) -> Any:
        """One client for all threads of a process; a fork makes its own, for sockets must not be shared."""
        pid = os.getpid()
        if pid not in self._clients:
            self._clients[pid] = self._client(self._create_session(), self.client_config)
        return self._clients[pid]

    def _client(self, session: Any, config: Config) -> Any:
        return session.client("s3", region_name=self.region_name, endpoint_url=self.endpoint_url, config=config)

    def _ask(self, operation: str, **params: Any) -> Any:
        """Call the store; raise ``FileNotFoundError``, or ``OSError`` when it is full or away."""
        with map_s3_errors():
            answer = getattr(self.client, operation)(Bucket=self.bucket_name, **params)
        if operation in REQUIRED_KEYS and REQUIRED_KEYS[operation] not in answer:
            log.warning("The file store's answer is not an S3's.")
            raise _away()
        return answer

    # URLs

    def sign_upload(self, name: str, *, length: int, mime: str, sha256: str) -> str:
        """Return a URL that takes exactly the bytes declared, for ``SIGNED_URL_SECONDS``.

        The client must send each header that it names in ``X-Amz-SignedHeaders``.
        """
        if not self.presigns:
            return super().sign_upload(name, length=length, mime=mime, sha256=sha256)
        terms: dict[str, Any] = {"ContentLength": length, "ContentType": mime.lower(), **_encryption()}
        if settings.S3_SIGN_SHA256:
            terms["ChecksumSHA256"] = base64.b64encode(bytes.fromhex(sha256)).decode()
        return self._presigned("put_object", name, **terms)

    def sign_download(self, name: str, *, filename: str) -> str:
        if not self.presigns:
            return super().sign_download(name, filename=filename)
        return self._presigned(
            "get_object",
            name,
            ResponseContentDisposition=content_disposition_header(as_attachment=True, filename=filename),
            ResponseContentType=TYPES[self.alias],
            ResponseCacheControl="private, no-store",
        )

    def _presigned(self, operation: str, name: str, **terms: Any) -> str:
        params = {"Bucket": self.bucket_name, "Key": name, **terms}
        with map_s3_errors():
            url: str = self.client.generate_presigned_url(
                operation, Params=params, ExpiresIn=settings.SIGNED_URL_SECONDS
            )
        return url

    def url(self, name: str, *args: Any, **kwargs: Any) -> str:
        """Django's own way to a URL; the library's would put a session token into it."""
        return self.sign_download(name, filename=Path(name).name)

    # Writing

    def put(self, name: str, content: bytes) -> None:
        """Write an object at once: whole, or not at all."""
        self._put(name, content)

    def put_file(self, arriving: Path, name: str) -> None:
        """Send a file that has arrived to its place; the caller removes the file."""
        with arriving.open("rb") as file:
            self._put(name, file)

    def _put(self, name: str, body: bytes | IO[bytes]) -> None:
        try:
            self._ask("put_object", Key=name, Body=body, ContentType=TYPES[self.alias], **_encryption())
        except FileNotFoundError:
            raise _away() from None

    def _save(self, name: str, content: File) -> str:  # type: ignore[type-arg]
        self._put(name, content)
        return name

    def delete(self, name: str) -> None:
        """Remove an object, or nothing."""
        with suppress(FileNotFoundError):
            self._ask("delete_object", Key=name)

    # Reading

    def exists(self, name: str) -> bool:
        try:
            self.size(name)
        except FileNotFoundError:
            self._require_bucket()
            return False
        return True

    def size(self, name: str) -> int:
        length: int = self._ask("head_object", Key=name)["ContentLength"]
        return length

    def _require_bucket(self) -> None:
        """Tell a missing object from a missing bucket: HEAD answers both with a bare 404."""
        if self._seen:
            return
        try:
            self._ask("head_bucket")
        except FileNotFoundError:
            log.error("The file store has no bucket for %s files.", self.alias)
            raise _away() from None
        self._seen = True

    def read(self, name: str) -> bytes:
        """Return an object that ``exists``; one that cannot be had all the same is away."""
        with _there(), closing(self._ask("get_object", Key=name)["Body"]) as body, map_s3_errors():
            content: bytes = body.read()
        return content

    @contextmanager
    def local_file(self, name: str) -> Iterator[Path]:
        """Lend an object that ``exists`` as a file on this machine, removed afterwards."""
        with _there():
            file = self._fetched(name)
        with file:
            yield Path(file.name)

    def _open(self, name: str, mode: str = "rb") -> File:  # type: ignore[type-arg]
        return File(self._fetched(name))

    def _fetched(self, name: str) -> IO[bytes]:
        file = NamedTemporaryFile(dir=self.incoming())  # noqa: SIM115 - the caller closes, and so removes it
        try:
            with closing(self._ask("get_object", Key=name)["Body"]) as body, map_s3_errors():
                for piece in body.iter_chunks(READ_BYTES):
                    file.write(piece)
            file.flush()
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file

    def names(self) -> Iterator[str]:
        """Yield every object's name in order, for the audit."""
        more: dict[str, Any] = {"MaxKeys": LIST_PAGE_SIZE}
        while True:
            page = self._ask("list_objects_v2", **more)
            yield from (found["Key"] for found in page.get("Contents", []))
            if not page.get("IsTruncated"):
                return
            more["ContinuationToken"] = page["NextContinuationToken"]

    def is_public(self, name: str) -> bool:
        """Ask for the object without any key."""
        with closing(self._client(boto3.Session(), _config(UNSIGNED))) as stranger:
            try:
                stranger.head_object(Bucket=self.bucket_name, Key=name)
            except ClientError:
                return False
        return True


def _config(signature: Any = "s3v4") -> Config:
    return Config(
        signature_version=signature,
        s3={"addressing_style": settings.S3_ADDRESSING_STYLE},
        # The SDK's own checksums are trailers that many S3 of other makers refuse.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": 2},  # the job is what tries again
    )


def _encryption() -> dict[str, str]:
    terms = {"ServerSideEncryption": settings.S3_SERVER_SIDE_ENCRYPTION, "SSEKMSKeyId": settings.S3_KMS_KEY_ID}
    return {name: value for name, value in terms.items() if value}


@contextmanager
def _there() -> Iterator[None]:
    """Take a 404 for what was found a moment ago as the store's trouble, not as the end of a document."""
    try:
        yield
    except FileNotFoundError:
        raise _away() from None


class OperationNotAllowed(OSError):
    """The store answers, but not this question: for whoever does not ask why, it is away."""

    def __init__(self) -> None:
        super().__init__(errno.ENOTCONN, "The file store does not allow it.")


@contextmanager
def map_s3_errors() -> Iterator[None]:
    """Turn the SDK's errors, whose messages name objects, into a disk's: missing, full or away."""
    try:
        yield
    except ClientError as error:
        raise _refused(error.response) from None
    except ParamValidationError:
        raise  # a defect of ours
    except (HTTPClientError, ConnectionError, ResponseParserError) as error:
        log.warning("The file store is away: %s", type(error).__name__)
        raise _away() from None
    except BotoCoreError as error:
        log.error("The file store cannot be asked: %s", type(error).__name__)
        raise _away() from None


def _refused(response: Any) -> OSError:
    status: int = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = str(response.get("Error", {}).get("Code", ""))
    if status == HTTPStatus.NOT_FOUND and code in MISSING:
        return FileNotFoundError(errno.ENOENT, "There is no such object.")
    if status == HTTPStatus.INSUFFICIENT_STORAGE or "Quota" in code or "StorageFull" in code:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    ours = status < HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.TOO_MANY_REQUESTS
    log.log(logging.ERROR if ours else logging.WARNING, "The file store answers %s %s.", status, _word(code))
    declined = (status in DECLINED and not any(word in code for word in PASSING)) or code == NO_TAGS
    return OperationNotAllowed() if declined else _away()


def _word(code: str) -> str:
    return code if code.isalnum() and len(code) < 60 else "?"


def _away() -> OSError:
    # Not ETIMEDOUT: that is a TimeoutError, which an upload takes for its client's.
    return OSError(errno.ENOTCONN, "The file store cannot be reached.")
