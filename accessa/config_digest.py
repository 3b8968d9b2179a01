"""Keyed digests of a process's configuration and code, to compare API and workers without revealing settings."""

import hashlib
import hmac
from contextlib import suppress
from functools import cache
from pathlib import Path

from django.conf import settings

from documents.storage.buckets import make_private_folder

# Settings that the API and all workers must share; doctor names those that differ.
SHARED = (
    "STORAGE", "STORAGE_ROOT", "S3_ENDPOINT_URL", "S3_REGION", "S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY",
    "S3_RAW_BUCKET", "S3_PARSED_BUCKET", "S3_ENCRYPTION", "S3_KMS_KEY_ID",
    "PARSER", "LLAMAPARSE_API_KEY", "LLAMAPARSE_BASE_URL", "LLAMAPARSE_TIER", "LLAMAPARSE_VERSION",
    "LLAMAPARSE_WEBHOOK_SECRETS", "LLAMAPARSE_CALLBACK_URL",
    "EMBEDDER", "SENTENCE_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "BOOTS_BRAIN_URL", "BRAIN_API_SECRET",
    "CHUNKER", "JOBS_PIPELINES", "JOBS_ACTIVE_PER_USER", "STATUTES_AT_ONCE", "JOBS_MAX_RETRIES",
    "JOBS_LEASE_SECONDS",
    "TENANT_DAILY_CENTS", "MAX_PAGES", "MAX_FILE_BYTES", "PUBLIC_URL",
    "STATUTES_BUCKET", "STATUTES_S3_ENDPOINT_URL", "STATUTES_EMBEDDER", "STATUTES_MAX_BYTES", "STATUTES_LAMBDA",
    "STATUTES_RAW_BUCKETS", "SQS_QUEUE_URL", "TITAN_MODEL", "TITAN_REGION", "TITAN_ENDPOINT_URL",
    "CONNECTORS", "INTEGRATIONS_USE_FIXTURES", "INTEGRATIONS_VAULT_KEYS",
)  # fmt: skip
SECRET_KEY, CODE, FILES = "SECRET_KEY", "the program's code", "the disk of STORAGE_ROOT"
ITERATIONS = 200_000  # guessing SECRET_KEY by its digest takes a tenth of a second a guess


def compute_digests() -> dict[str, str]:
    """Return a digest by name. All are keyed with ``SECRET_KEY``: with another key every one of them differs."""
    key = _derive_key(settings.SECRET_KEY)
    texts = {SECRET_KEY: "", CODE: _code_digest(), FILES: _disk_id()}
    for name in SHARED:
        setting = getattr(settings, name)
        is_list = isinstance(setting, (list, tuple))
        texts[name] = repr([str(each) for each in setting]) if is_list else str(setting or "")
    return {
        name: hmac.new(key, f"{name}={text}".encode(), hashlib.sha256).hexdigest()[:24] for name, text in texts.items()
    }


@cache
def _derive_key(secret: str) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", secret.encode(), b"accessa.fingerprint", ITERATIONS)


@cache
def _code_digest() -> str:
    digest = hashlib.sha256()
    for app in settings.INSTALLED_APPS:
        for path in sorted(Path(settings.BASE_DIR, app).rglob("*.py")):
            if "tests" not in path.parts:
                with suppress(OSError):  # removed meanwhile
                    digest.update(path.read_bytes())
    return digest.hexdigest()


def _disk_id() -> str:
    """Return the device and inode of STORAGE_ROOT: containers may have different disks under one name.

    Valid on one machine, as local storage is; empty where files are in a bucket.
    """
    if settings.STORAGE != "local":
        return ""
    root = Path(settings.STORAGE_ROOT)
    try:
        make_private_folder(root)  # as the first upload would
        stat = root.stat()
    except OSError:
        return "none"
    return f"{stat.st_dev}:{stat.st_ino}"
