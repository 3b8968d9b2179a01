"""Check of the file store: write, read, signed download and upload, refusal of forged signatures, delete."""

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast
from uuid import uuid4

from django.conf import settings
from django.core.files.storage import storages

from accessa.checks import s3_error_messages
from accessa.checks.bucket_probe import PRIVATE, PROBE_FOLDER
from accessa.demo.api_client import upload_headers
from accessa.doctor.findings import Finding, error, note, warning
from accessa.doctor.http_probe import NoResponse, Response, send_request
from documents.storage.buckets import MIME, Bucket, make_private_folder
from documents.storage.local import LocalSignedStorage
from documents.storage.s3 import S3Bucket, map_s3_errors

STALE_AFTER = timedelta(minutes=10)
CONTENT = b"%PDF-1.4 written by manage.py doctor"
MIN_FREE_BYTES = 1024**3
FREE_DISK = "Make room on the disk that holds STORAGE_ROOT."


def check_storage(alias: str) -> Iterator[Finding]:
    bucket = cast(Bucket, storages[alias])
    if isinstance(bucket, LocalSignedStorage):
        root = Path(settings.STORAGE_ROOT)
        with suppress(OSError):  # reported by the first write
            make_private_folder(root)
            free = shutil.disk_usage(root).free
            if free < MIN_FREE_BYTES:
                remedy = FREE_DISK
                yield warning(f"{free // 1024**2} MB are free for files.", remedy)
    name = f"{PROBE_FOLDER}/{uuid4()}"
    try:
        yield from _probe(alias, bucket, name)
    finally:
        with suppress(OSError):
            bucket.delete(name)
    yield from _delete_stale_probes(bucket)


def _probe(alias: str, bucket: Bucket, name: str) -> Iterator[Finding]:
    try:
        bucket.put(name, CONTENT)
        if not bucket.exists(name) or bucket.read(name) != CONTENT:
            yield error(f"The bucket for {alias} files does not return the bytes written.", s3_error_messages.RIGHTS)
            return
    except OSError as failure:
        yield _explain_write_failure(alias, bucket, failure)
        return
    if bucket.is_public(name):
        yield error(f"Strangers can read the bucket for {alias} files.", PRIVATE)
    yield from _check_download(alias, bucket.sign_download(name, filename="doctor.pdf"))
    yield from _check_upload(alias, bucket, name)
    bucket.delete(name)
    if bucket.exists(name):
        yield error(f"The bucket for {alias} files keeps deleted objects.", "Let the key do s3:DeleteObject.")


def _explain_write_failure(alias: str, bucket: Bucket, failure: OSError) -> Finding:
    if isinstance(bucket, LocalSignedStorage):
        if failure.errno in (errno.ENOSPC, errno.EDQUOT):
            return error(f"{settings.STORAGE_ROOT} has no room.", FREE_DISK)
        user = os.geteuid()
        return error(
            f"{settings.STORAGE_ROOT} cannot be written by user {user}: {failure.strerror or type(failure).__name__}.",
            f"chown -R {user} that folder, or set STORAGE_ROOT to one that API and workers can write.",
        )
    reason, remedy = s3_error_messages.explain_s3_error(alias, failure)
    return error(f"The bucket for {alias} files cannot be written and read: {reason}.", remedy)


def _check_download(alias: str, url: str) -> Iterator[Finding]:
    """Fetch the object as a tenant would, then with a forged signature, then without any."""
    response = _try_request("GET", url)
    if isinstance(response, str):
        yield error(f"The signed URLs of {alias} files lead nowhere: {response}.", _reach_remedy(url))
        return
    if response.status != 200 or response.body != CONTENT:
        status = f"{response.status} {response.code}".rstrip()
        yield error(f"A signed URL of a {alias} file is answered {status}.", _signature_remedy(url))
    for signature, other in (("an altered signature", forge_signature(url)), ("no signature", url.partition("?")[0])):
        response = _try_request("GET", other)
        if isinstance(response, Response) and response.status == 200:
            yield error(f"A {alias} file is given out with {signature}.", "Make the bucket private; stop until it is.")


def _check_upload(alias: str, bucket: Bucket, name: str) -> Iterator[Finding]:
    """PUT as a tenant would. Our API wants a declared document, and answers 404 once it trusts the signature."""
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    url = bucket.sign_upload(name, length=len(CONTENT), mime=MIME, sha256=sha256)
    headers = upload_headers(url, sha256)
    response, expected = _try_request("PUT", url, headers), (404, "NOT_FOUND") if is_api_url(url) else (200, "")
    if isinstance(response, str):
        yield error(f"The signed upload URLs of {alias} files lead nowhere: {response}.", _reach_remedy(url))
    elif response.status != expected[0] or (expected[1] and response.code != expected[1]):
        status = f"{response.status} {response.code}".rstrip()
        yield error(f"A signed upload of a {alias} file is answered {status}.", _signature_remedy(url))
    response = _try_request("PUT", forge_signature(url), headers)
    if isinstance(response, Response) and (response.status == 200 or response.code == "NOT_FOUND"):
        yield error(f"Uploads of {alias} files are taken with an altered signature.", "Make the bucket private.")


def _try_request(method: str, url: str, headers: dict[str, str] | None = None) -> Response | str:
    try:
        return send_request(method, url, headers=headers, body=CONTENT if method == "PUT" else b"")
    except NoResponse as failure:
        return str(failure)


def is_api_url(url: str) -> bool:
    return url.startswith(f"{settings.PUBLIC_URL}/storage/")


def _reach_remedy(url: str) -> str:
    if is_api_url(url):
        return "Start the API, or correct PUBLIC_URL: the signed URLs lead there."
    return "Correct S3_ENDPOINT_URL, or set S3_PRESIGN=false if tenants cannot reach the store."


def _signature_remedy(url: str) -> str:
    if is_api_url(url):
        return "Give the API the same SECRET_KEY and storage settings; or PUBLIC_URL is another deployment's."
    return "Look at S3_REGION, S3_ADDRESSING_STYLE and S3_SIGN_SHA256, and at the bucket's policy."


def forge_signature(url: str) -> str:
    return re.sub(
        r"((?:X-Amz-Signature|token)=[^&]*)([^&])", lambda match: match[1] + ("1" if match[2] == "0" else "0"), url
    )


def _delete_stale_probes(bucket: Bucket) -> Iterator[Finding]:
    """Delete what a killed doctor has left."""
    try:
        with map_s3_errors():
            if isinstance(bucket, S3Bucket):
                page = bucket.client.list_objects_v2(Bucket=bucket.bucket_name, Prefix=f"{PROBE_FOLDER}/")
                modified = {row["Key"]: row["LastModified"] for row in page.get("Contents", [])}
            elif isinstance(bucket, LocalSignedStorage):
                names = [f"{PROBE_FOLDER}/{name}" for name in bucket.listdir(PROBE_FOLDER)[1]]
                modified = {name: bucket.get_modified_time(name) for name in names}
            for name, modified_at in modified.items():
                if modified_at < datetime.now(UTC) - STALE_AFTER:
                    bucket.delete(name)
                    yield note("Removed what an earlier doctor had left.")
        if isinstance(bucket, LocalSignedStorage):
            Path(bucket.path(PROBE_FOLDER)).rmdir()
    except OSError:
        return
