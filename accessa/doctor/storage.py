"""The files: written, found, fetched by the URLs that tenants get, refused to everybody else, and removed."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from django.conf import settings
from django.core.files.storage import storages

from accessa.checks import FOLDER, PRIVATE, s3_errors
from accessa.demo.client import upload_headers
from accessa.doctor.http import Said, Silent, ask
from accessa.doctor.runner import Finding, doubtful, note, wrong
from documents.storage import Bucket, LocalSignedStorage
from documents.storage.s3 import map_s3_errors
from documents.validation import MIME

LEFT_AFTER = timedelta(minutes=10)
CONTENT = b"%PDF-1.4 written by manage.py doctor"
LEAST_FREE = 1024**3
REACH = "Start the API, or correct PUBLIC_URL: the signed URLs lead there."
REACH_S3 = "Correct S3_ENDPOINT_URL, or set S3_PRESIGN=false if tenants cannot reach the store."


def examined(alias: str) -> Iterator[Finding]:
    """Do to one bucket what the pipeline and its tenants do."""
    bucket = cast(Bucket, storages[alias])
    if isinstance(bucket, LocalSignedStorage):
        yield from _disk()
    name = f"{FOLDER}/{uuid4()}"
    try:
        yield from _kept(alias, bucket, name)
    finally:
        with suppress(OSError):
            bucket.delete(name)
    yield from _tidied(bucket)


def _kept(alias: str, bucket: Bucket, name: str) -> Iterator[Finding]:
    try:
        bucket.put(name, CONTENT)
        if not bucket.exists(name) or bucket.read(name) != CONTENT:
            yield wrong(f"The bucket for {alias} files does not give back what was written.", s3_errors.RIGHTS)
            return
    except OSError as error:
        yield _refused(alias, bucket, error)
        return
    if bucket.is_public(name):
        yield wrong(f"Strangers can read the bucket for {alias} files.", PRIVATE)
    yield from _fetched(alias, bucket, name)
    yield from _uploaded(alias, bucket, name)
    bucket.delete(name)
    if bucket.exists(name):
        yield wrong(f"The bucket for {alias} files keeps what was deleted.", "Let the key do s3:DeleteObject.")


def _refused(alias: str, bucket: Bucket, error: OSError) -> Finding:
    if isinstance(bucket, LocalSignedStorage):
        user = os.geteuid()
        return wrong(
            f"{settings.STORAGE_ROOT} cannot be written by user {user}: {error.strerror or type(error).__name__}.",
            f"chown -R {user} that folder, or set STORAGE_ROOT to one that API and workers can write.",
        )
    why, remedy = s3_errors.explain_s3_error(alias, error)
    return wrong(f"The bucket for {alias} files cannot be written and read: {why}.", remedy)


def _fetched(alias: str, bucket: Bucket, name: str) -> Iterator[Finding]:
    """Fetch the object as a tenant would, then with an altered signature, then without any."""
    url = bucket.sign_download(name, filename="doctor.pdf")
    answer = _asked("GET", url)
    if isinstance(answer, str):
        yield wrong(f"The signed URLs of {alias} files lead nowhere: {answer}.", _reach(url))
        return
    if answer.status != 200 or answer.body != CONTENT:
        yield wrong(
            f"A signed URL of a {alias} file is answered {answer.status} {answer.code}".rstrip() + ".", _why(url)
        )
    for what, other in (("an altered signature", altered(url)), ("no signature", url.partition("?")[0])):
        found = _asked("GET", other)
        if isinstance(found, Said) and found.status == 200:
            yield wrong(f"A {alias} file is given out with {what}.", "Make the bucket private; stop until it is.")


def _uploaded(alias: str, bucket: Bucket, name: str) -> Iterator[Finding]:
    """PUT as a tenant would. Our own address wants a declared document, and says 404 once it trusts the signature."""
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    url = bucket.sign_upload(name, length=len(CONTENT), mime=MIME, sha256=sha256)
    headers = upload_headers(url, sha256)
    good, expected = _asked("PUT", url, headers), (404, "NOT_FOUND") if is_ours(url) else (200, "")
    if isinstance(good, str):
        yield wrong(f"The signed upload URLs of {alias} files lead nowhere: {good}.", _reach(url))
    elif good.status != expected[0] or (expected[1] and good.code != expected[1]):
        yield wrong(
            f"A signed upload of a {alias} file is answered {good.status} {good.code}".rstrip() + ".", _why(url)
        )
    bad = _asked("PUT", altered(url), headers)
    if isinstance(bad, Said) and (bad.status == 200 or bad.code == "NOT_FOUND"):
        yield wrong(f"Uploads of {alias} files are taken with an altered signature.", "Make the bucket private.")


def _asked(method: str, url: str, headers: dict[str, str] | None = None) -> Said | str:
    try:
        return ask(method, url, headers=headers, body=CONTENT if method == "PUT" else b"")
    except Silent as silent:
        return str(silent)


def is_ours(url: str) -> bool:
    return url.startswith(f"{settings.PUBLIC_URL}/storage/")


def _reach(url: str) -> str:
    return REACH if is_ours(url) else REACH_S3


def _why(url: str) -> str:
    if is_ours(url):
        return "Give the API the same SECRET_KEY and storage settings; or PUBLIC_URL is another deployment's."
    return "Look at S3_REGION, S3_ADDRESSING_STYLE and S3_SIGN_SHA256, and at the bucket's policy."


def altered(url: str) -> str:
    """Return the URL with another signature of the same form."""

    def other(found: re.Match[str]) -> str:
        last = "1" if found[0].endswith("0") else "0"
        return found[0][:-1] + last

    return re.sub(r"(?:X-Amz-Signature|token)=[^&]+", other, url)


def _disk() -> Iterator[Finding]:
    root = Path(settings.STORAGE_ROOT)
    try:
        root.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(root).free
    except OSError:  # told of by the first write
        return
    if free < LEAST_FREE:
        yield doubtful(f"{free // 1024**2} MB are free for files.", "Make room on the disk that holds STORAGE_ROOT.")


def _tidied(bucket: Any) -> Iterator[Finding]:
    """Remove what a doctor that was killed has left, and the folder."""
    before = datetime.now(UTC) - LEFT_AFTER
    try:
        with map_s3_errors():
            left = [f"{FOLDER}/{name}" for name in bucket.listdir(FOLDER)[1] if name]
            for name in left:
                if bucket.get_modified_time(name) < before:
                    bucket.delete(name)
                    yield note("Removed what an earlier doctor had left.")
        if isinstance(bucket, LocalSignedStorage):
            Path(bucket.path(FOLDER)).rmdir()
    except OSError:
        return
