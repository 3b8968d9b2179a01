"""Health checks: liveness (/healthz) and readiness (/readyz)."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import cast

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.files.storage import InvalidStorageError, storages
from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.utils.translation import gettext_lazy as _
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from accessa.server import gunicorn_worker
from accounts.error_codes import UNAVAILABLE, ApiError, ErrorCode
from documents.storage import BUCKETS
from jobs.error_codes import STOPPING

OK = "ok"
NOT_MIGRATED = ErrorCode("NOT_MIGRATED", status=503, detail=_("The database lacks migrations; run manage.py migrate."))
STORAGE_NOT_CONFIGURED = ErrorCode(
    "STORAGE_NOT_CONFIGURED", status=503, detail=_("The file store is not configured; run manage.py doctor.")
)
RETRY_SECONDS = 5


@csrf_exempt  # or another method would be answered with a form's error
@require_safe
def alive(request: HttpRequest) -> JsonResponse:
    """Answer without calling anything: a process must not be restarted for a missing database."""
    return JsonResponse({"status": OK})


@csrf_exempt  # or another method would be answered with a form's error
@require_safe
def ready(request: HttpRequest) -> JsonResponse:
    """Answer each part's state; 503 with the code of the first that failed."""
    parts = {name: OK if check() else "failed" for name, (check, _) in CHECKS.items()}
    for name, state in parts.items():
        if state != OK:
            _, error = CHECKS[name]
            headers = {"Retry-After": str(RETRY_SECONDS)}
            return JsonResponse(error.body | {"parts": parts}, status=error.status, headers=headers)
    return JsonResponse({"status": OK, "parts": parts})


def is_database_reachable() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except (DatabaseError, InterfaceError):
        connection.close()
        return False
    return True


def is_migrated() -> bool:
    """Return the cached result once it is true: migrations are not reverted while the program runs."""
    try:
        return _require_migrated()
    except (DatabaseError, InterfaceError, LookupError):
        return False


@cache
def _require_migrated() -> bool:
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        raise LookupError("There are migrations to apply.")  # an exception is not cached
    return True


def is_storage_configured() -> bool:
    """Check the settings without a request to the store, which may be slow: `manage.py doctor` writes and reads."""
    try:
        if settings.STORAGE != "local":
            has_buckets = bool(settings.S3_RAW_BUCKET and settings.S3_PARSED_BUCKET)
            return all(cast(object, storages[name]) is not None for name in BUCKETS) and has_buckets
        root = Path(settings.STORAGE_ROOT)  # made by the first upload
        existing = next((path for path in (root, *root.parents) if path.exists()), None)
        return existing is not None and existing.is_dir() and os.access(existing, os.W_OK)
    except (ImproperlyConfigured, InvalidStorageError, OSError):
        return False


# part: its check, and the error where it fails
CHECKS: dict[str, tuple[Callable[[], bool], ApiError]] = {
    "process": (
        lambda: not gunicorn_worker.is_stopping(),
        ApiError(STOPPING, "This process is about to end; ask another."),
    ),
    "database": (is_database_reachable, ApiError(UNAVAILABLE)),
    "migrations": (is_migrated, ApiError(NOT_MIGRATED)),
    "storage": (is_storage_configured, ApiError(STORAGE_NOT_CONFIGURED)),
}
