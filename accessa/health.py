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
from accounts.common_error_codes import UNAVAILABLE
from accounts.errors import ApiError, ErrorCode
from documents.error_codes import INSUFFICIENT_STORAGE
from documents.storage.buckets import BUCKETS
from jobs.error_codes import STOPPING

OK = "ok"
NOT_MIGRATED = ErrorCode("NOT_MIGRATED", status=503, detail=_("The database lacks migrations; run manage.py migrate."))
STORAGE_NOT_CONFIGURED = ErrorCode(
    "STORAGE_NOT_CONFIGURED", status=503, detail=_("The file store is not configured; run manage.py doctor.")
)
RETRY_SECONDS = 5
MIN_FREE_FILES = 4  # of MAX_FILE_BYTES: with less room on the disk, uploads are about to fail


@csrf_exempt  # or another method would be answered with a form's error
@require_safe
def alive(request: HttpRequest) -> JsonResponse:
    """Answer without calling anything: a process must not be restarted for a missing database."""
    return JsonResponse({"status": OK})


@csrf_exempt  # or another method would be answered with a form's error
@require_safe
def ready(request: HttpRequest) -> JsonResponse:
    """Answer each part's state; 503, or 507 for a full disk, with the code of the first that failed."""
    errors = {name: check() for name, check in CHECKS.items()}
    parts = {name: "failed" if error else OK for name, error in errors.items()}
    for error in errors.values():
        if error:
            headers = {"Retry-After": str(RETRY_SECONDS)}
            return JsonResponse(error.body | {"parts": parts}, status=error.status, headers=headers)
    return JsonResponse({"status": OK, "parts": parts})


def find_process_error() -> ApiError | None:
    return ApiError(STOPPING, "This process is about to end; ask another.") if gunicorn_worker.is_stopping() else None


def find_database_error() -> ApiError | None:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except (DatabaseError, InterfaceError):
        connection.close()
        return ApiError(UNAVAILABLE)
    return None


def find_migration_error() -> ApiError | None:
    """Cache that all are applied: migrations are not reverted while the program runs."""
    try:
        _require_migrated()
    except (DatabaseError, InterfaceError, LookupError):
        return ApiError(NOT_MIGRATED)
    return None


@cache
def _require_migrated() -> None:
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        raise LookupError("There are migrations to apply.")  # an exception is not cached


def find_storage_error() -> ApiError | None:
    """Check the settings and the disk, without a request to the store, which may be slow.

    `manage.py doctor` writes and reads. With S3 the disk has files in transit.
    """
    try:
        if settings.STORAGE != "local" and not (settings.S3_RAW_BUCKET and settings.S3_PARSED_BUCKET):
            return ApiError(STORAGE_NOT_CONFIGURED)
        for name in BUCKETS:
            cast(object, storages[name])  # raises if it is not configured
        root = Path(settings.STORAGE_ROOT)  # made by the first upload
        existing = next((path for path in (root, *root.parents) if path.exists()), None)
        if existing is None or not existing.is_dir() or not os.access(existing, os.W_OK):
            return ApiError(STORAGE_NOT_CONFIGURED)
        disk = os.statvfs(existing)
    except (ImproperlyConfigured, InvalidStorageError, OSError):
        return ApiError(STORAGE_NOT_CONFIGURED)
    has_room = disk.f_bavail * disk.f_frsize >= MIN_FREE_FILES * settings.MAX_FILE_BYTES
    return None if has_room else ApiError(INSUFFICIENT_STORAGE, "The disk of STORAGE_ROOT has no room; free some.")


CHECKS: dict[str, Callable[[], ApiError | None]] = {
    "process": find_process_error,
    "database": find_database_error,
    "migrations": find_migration_error,
    "storage": find_storage_error,
}
ERROR_CODES = (STOPPING, UNAVAILABLE, NOT_MIGRATED, STORAGE_NOT_CONFIGURED, INSUFFICIENT_STORAGE)
