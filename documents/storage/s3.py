"""S3 buckets: AWS, Supabase or another maker. Tenants use presigned URLs, or this project's own signed URLs."""

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

from documents.storage.buckets import MIME, Bucket

log = logging.getLogger("accessa.storage")

READ_BYTES = 256 * 1024
LIST_PAGE_SIZE = 1000  # S3's maximum
TYPES = {"raw": MIME, "parsed": "text/markdown; charset=utf-8"}
MISSING = {"404", "NoSuchKey", "NotFound"}
NO_TAGS = "NoSuchTagSet"  # some makers' 404 for an object that is there
# A key of each S3 response. A proxy's page of status 200 lacks it: such a page is no file of a tenant.
REQUIRED_KEYS = {
    "head_object": "ETag", "get_object": "ETag", "put_object": "ETag", "list_objects_v2": "Name",
    "get_object_tagging": "TagSet",
}  # fmt: skip
NOT_ALLOWED = {HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED}
# In error codes of a 400 or 403 that do not concern the operation.
TRANSIENT = ("Throttl", "Timeout", "Expired", "Skewed")
CONNECT_SECONDS, READ_SECONDS = 5, 60


class S3Bucket(Bucket):
    """A private bucket. Every write is one PutObject: S3 shows the whole new object or the old one."""

    def __init__(self, bucket: str) -> None:
        self.alias = bucket
        self.bucket_name: str = {"raw": settings.S3_RAW_BUCKET, "parsed": settings.S3_PARSED_BUCKET}[bucket]
        # A presigned URL carries its signer's session token; Supabase's is the key to everything.
        self.presigns = settings.S3_PRESIGN and not settings.S3_SESSION_TOKEN
        # No one notifies us that a presigned upload is complete; an upload through this project wakes its job.
        self.poll_seconds = 2.0 if self.presigns else 60.0
        self._clients: dict[int, Any] = {}
        self._bucket_exists = False

    @property
    def client(self) -> Any:
        """One client for all threads of a process; a fork makes its own, for sockets must not be shared."""
        pid = os.getpid()
        if pid not in self._clients:
            self._clients[pid] = _make_client(self._create_session(), client_config())
        return self._clients[pid]

    def _create_session(self) -> boto3.Session:
        return boto3.Session(
            settings.S3_ACCESS_KEY_ID or None,  # none: the machine's own credentials, such as a role
            settings.S3_SECRET_ACCESS_KEY or None,
            settings.S3_SESSION_TOKEN or None,
        )

    def _call(self, operation: str, **params: Any) -> Any:
        """Call the store; raise ``FileNotFoundError``, or ``OSError`` when it is full or unavailable."""
        with map_s3_errors():
            response = getattr(self.client, operation)(Bucket=self.bucket_name, **params)
        if operation in REQUIRED_KEYS and REQUIRED_KEYS[operation] not in response:
            log.warning("The file store's answer is not an S3's.")
            raise _unavailable()
        return response

    # URLs

    def sign_upload(self, name: str, *, length: int, mime: str, sha256: str) -> str:
        """Sign as ``Bucket`` does; the client must send each header named in ``X-Amz-SignedHeaders``."""
        if not self.presigns:
            return super().sign_upload(name, length=length, mime=mime, sha256=sha256)
        terms: dict[str, Any] = {"ContentLength": length, "ContentType": mime.lower(), **encryption_params()}
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
            return str(self.client.generate_presigned_url(operation, params, settings.SIGNED_URL_SECONDS))

    # Writing

    def put(self, name: str, content: bytes | IO[bytes]) -> None:
        with _existing():
            self._call("put_object", Key=name, Body=content, ContentType=TYPES[self.alias], **encryption_params())

    def put_file(self, file: Path, name: str) -> None:
        with file.open("rb") as content:
            self.put(name, content)

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._call("delete_object", Key=name)

    # Reading

    def exists(self, name: str) -> bool:
        try:
            self.size(name)
        except FileNotFoundError:
            self._require_bucket()
            return False
        return True

    def size(self, name: str) -> int:
        return int(self._call("head_object", Key=name)["ContentLength"])

    def _require_bucket(self) -> None:
        """Raise unless the bucket exists: HEAD returns a bare 404 for a missing object and for a missing bucket."""
        if self._bucket_exists:
            return
        try:
            self._call("head_bucket")
        except FileNotFoundError:
            log.error("The file store has no bucket for %s files.", self.alias)
            raise _unavailable() from None
        self._bucket_exists = True

    def read(self, name: str) -> bytes:
        """Return an object that ``exists``; a 404 now means that the store is unavailable."""
        with _existing(), closing(self._call("get_object", Key=name)["Body"]) as body, map_s3_errors():
            return bytes(body.read())

    @contextmanager
    def local_file(self, name: str) -> Iterator[Path]:
        """Yield the path of a local copy of an object that ``exists``, removed afterwards."""
        with _existing():
            file = self._download(name)
        with file:
            yield Path(file.name)

    def open(self, name: str, mode: str = "rb") -> File:  # type: ignore[type-arg]
        return File(self._download(name))

    def _download(self, name: str) -> IO[bytes]:
        file = NamedTemporaryFile(dir=self.incoming())  # noqa: SIM115 - closed, and so removed, by the caller
        try:
            with closing(self._call("get_object", Key=name)["Body"]) as body, map_s3_errors():
                for piece in body.iter_chunks(READ_BYTES):
                    file.write(piece)
            file.flush()
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file

    def names(self) -> Iterator[str]:
        """Yield every object's name in order, for the integrity check."""
        params: dict[str, Any] = {"MaxKeys": LIST_PAGE_SIZE}
        while True:
            page = self._call("list_objects_v2", **params)
            yield from (entry["Key"] for entry in page.get("Contents", []))
            if not page.get("IsTruncated"):
                return
            params["ContinuationToken"] = page["NextContinuationToken"]

    def is_public(self, name: str) -> bool:
        """Request the object without credentials."""
        with closing(_make_client(boto3.Session(), client_config(UNSIGNED))) as anonymous:
            try:
                anonymous.head_object(Bucket=self.bucket_name, Key=name)
            except ClientError:
                return False
        return True


def _make_client(session: boto3.Session, config: Config) -> Any:
    return session.client("s3", region_name=settings.S3_REGION, endpoint_url=settings.S3_ENDPOINT_URL, config=config)


def client_config(signature: Any = "s3v4") -> Config:
    return Config(
        signature_version=signature,
        s3={"addressing_style": settings.S3_ADDRESSING_STYLE},
        # The SDK's checksum trailers are refused by many other makers' S3.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": 2},  # the job retries
    )


def encryption_params() -> dict[str, str]:
    if settings.S3_ENCRYPTION == "bucket-default":
        return {}
    terms = {"ServerSideEncryption": settings.S3_ENCRYPTION, "SSEKMSKeyId": settings.S3_KMS_KEY_ID}
    return {name: term for name, term in terms.items() if term}


@contextmanager
def _existing() -> Iterator[None]:
    """Map the 404 of an object that exists, or of a bucket, to an unavailable store, not to a deleted document."""
    try:
        yield
    except FileNotFoundError:
        raise _unavailable() from None


class OperationNotAllowed(OSError):
    """The store answers but does not allow this operation; other callers see an unavailable store."""

    def __init__(self) -> None:
        super().__init__(errno.ENOTCONN, "The file store does not allow it.")


@contextmanager
def map_s3_errors() -> Iterator[None]:
    """Map the SDK's errors, whose messages contain object names, to ``OSError``: missing, full or unavailable."""
    try:
        yield
    except ClientError as error:
        raise _map_response(error.response) from None
    except ParamValidationError:
        raise  # a defect of ours
    except (HTTPClientError, ConnectionError, ResponseParserError) as error:
        log.warning("The file store is away: %s", type(error).__name__)
        raise _unavailable() from None
    except BotoCoreError as error:
        log.error("The file store cannot be asked: %s", type(error).__name__)
        raise _unavailable() from None


def _map_response(response: Any) -> OSError:
    status: int = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = str(response.get("Error", {}).get("Code", ""))
    if status == HTTPStatus.NOT_FOUND and code in MISSING:
        return FileNotFoundError(errno.ENOENT, "There is no such object.")
    if status == HTTPStatus.INSUFFICIENT_STORAGE or "Quota" in code or "StorageFull" in code:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    is_ours = status < HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.TOO_MANY_REQUESTS
    loggable = code if code.isalnum() and len(code) < 60 else "?"
    log.log(logging.ERROR if is_ours else logging.WARNING, "The file store answers %s %s.", status, loggable)
    is_transient = any(word in code for word in TRANSIENT)
    return OperationNotAllowed() if (status in NOT_ALLOWED and not is_transient) or code == NO_TAGS else _unavailable()


def _unavailable() -> OSError:
    # Not ETIMEDOUT: that is a TimeoutError, which the upload view takes for its client's.
    return OSError(errno.ENOTCONN, "The file store cannot be reached.")
