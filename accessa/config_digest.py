"""What a process runs with, told so that another can compare it and nobody can read it."""

from __future__ import annotations

import hashlib
import hmac
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from django.conf import settings

# What the API and all workers must have in common. Names of settings: doctor names what differs.
SHARED = (
    "STORAGE", "STORAGE_ROOT", "S3_ENDPOINT_URL", "S3_REGION", "S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY",
    "S3_RAW_BUCKET", "S3_PARSED_BUCKET", "S3_SERVER_SIDE_ENCRYPTION", "S3_KMS_KEY_ID",
    "PARSER", "LLAMAPARSE_API_KEY", "LLAMAPARSE_BASE_URL", "LLAMAPARSE_TIER", "LLAMAPARSE_VERSION",
    "LLAMAPARSE_WEBHOOK_SECRETS", "LLAMAPARSE_CALLBACK_URL",
    "EMBEDDER", "OPENAI_API_KEY", "OPENAI_BASE_URL", "BOOTS_BRAIN_URL", "BRAIN_API_SECRET",
    "CHUNKER", "JOBS_PIPELINES", "JOBS_ACTIVE_PER_USER", "STATUTES_AT_ONCE", "JOBS_MAX_RETRIES",
    "JOBS_LEASE_SECONDS",
    "TENANT_DAILY_CENTS", "MAX_PAGES", "MAX_FILE_BYTES", "PUBLIC_URL",
    "STATUTES_BUCKET", "STATUTES_S3_ENDPOINT_URL", "STATUTES_EMBEDDER", "STATUTES_MAX_BYTES", "STATUTES_LAMBDA",
    "STATUTES_RAW_BUCKETS", "SQS_QUEUE_URL", "TITAN_MODEL", "TITAN_REGION", "TITAN_ENDPOINT_URL",
    "CONNECTORS", "INTEGRATIONS_USE_FIXTURES", "INTEGRATIONS_VAULT_KEYS",
)  # fmt: skip
SECRET_KEY, CODE, FILES = "SECRET_KEY", "the program's code", "the disk of STORAGE_ROOT"
STRETCHES = 200_000  # guessing SECRET_KEY by its digest takes a tenth of a second a guess


def compute_digests() -> dict[str, str]:
    """Return a digest by name. All are keyed with ``SECRET_KEY``: with another key every one of them differs."""
    key = _key(settings.SECRET_KEY)
    told = {name: _value(getattr(settings, name)) for name in SHARED}
    told |= {SECRET_KEY: "", CODE: _code(), FILES: _disk()}
    return {name: _digest(key, f"{name}={value}") for name, value in told.items()}


def _value(value: Any) -> str:
    return repr([str(each) for each in value]) if isinstance(value, (list, tuple)) else str(value or "")


@cache
def _key(secret: str) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", secret.encode(), b"accessa.fingerprint", STRETCHES)


def _digest(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()[:24]


@cache
def _code() -> str:
    """Return a digest of the program as it was when this process began."""
    digest = hashlib.sha256()
    for app in settings.INSTALLED_APPS:
        for path in sorted(Path(settings.BASE_DIR, app).rglob("*.py")):
            if "tests" not in path.parts:
                with suppress(OSError):  # removed meanwhile
                    digest.update(path.read_bytes())
    return digest.hexdigest()


def _disk() -> str:
    """Return which disk and folder the local files are in: two containers may call two disks by one name.

    Only for one machine, as such storage is; and empty where the bytes are in a bucket.
    """
    if settings.STORAGE != "local":
        return ""
    root = Path(settings.STORAGE_ROOT)
    try:
        root.mkdir(parents=True, exist_ok=True)  # as the first upload would: before it, nothing could be compared
        found = root.stat()
    except OSError:
        return "none"
    return f"{found.st_dev}:{found.st_ino}"
