"""For whoever watches the process: alive says that it answers, ready that it can do its work."""

from __future__ import annotations

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

from accessa.server import worker_state
from accounts.errors import UNAVAILABLE, ApiError, ErrorCode
from documents.storage import BUCKETS
from jobs.error_codes import STOPPING

OK = "ok"
NOT_MIGRATED = ErrorCode("NOT_MIGRATED", status=503, detail=_("The database lacks migrations; run manage.py migrate."))
STORAGE_NOT_CONFIGURED = ErrorCode(
    "STORAGE_NOT_CONFIGURED", status=503, detail=_("The file store is not configured; run manage.py doctor.")
)
ERRORS = {
    "process": ApiError(STOPPING, "This process is about to end; ask another."),
    "database": ApiError(UNAVAILABLE),
    "migrations": ApiError(NOT_MIGRATED),
    "storage": ApiError(STORAGE_NOT_CONFIGURED),
}
RETRY_SECONDS = 5


@csrf_exempt  # or another method would be told of a form
@require_safe
def alive(request: HttpRequest) -> JsonResponse:
    """Asks nothing of anybody: a process that answers this must not be ended for what others lack."""
    return JsonResponse({"status": OK})


@csrf_exempt  # or another method would be told of a form
@require_safe
def ready(request: HttpRequest) -> JsonResponse:
    """Say of each part whether it is there; 503 with the first one's code when one is not."""
    parts = {name: OK if check() else "failed" for name, check in CHECKS.items()}
    missing = next((name for name, state in parts.items() if state != OK), None)
    if missing is None:
        return JsonResponse({"status": OK, "parts": parts})
    error = ERRORS[missing]
    headers = {"Retry-After": str(RETRY_SECONDS)}
    return JsonResponse(error.body | {"parts": parts}, status=error.status, headers=headers)


def _stays() -> bool:
    return not worker_state.is_stopping()


def _reachable() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except (DatabaseError, InterfaceError):
        connection.close()
        return False
    return True


def _migrated() -> bool:
    """Remembered once true: nobody takes migrations back while it runs."""
    try:
        return _all_migrated()
    except (DatabaseError, InterfaceError, LookupError):
        return False


@cache
def _all_migrated() -> bool:
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        raise LookupError("There are migrations to apply.")  # not remembered
    return True


def _stored() -> bool:
    """Without asking the store itself, which may be slow: `manage.py doctor` writes and reads."""
    try:
        if settings.STORAGE == "local":
            return _writable(Path(settings.STORAGE_ROOT))
        return all(cast(object, storages[name]) is not None for name in BUCKETS) and _has_bucket_names()
    except (ImproperlyConfigured, InvalidStorageError, OSError):
        return False


def _has_bucket_names() -> bool:
    return bool(settings.S3_RAW_BUCKET and settings.S3_PARSED_BUCKET)


def _writable(folder: Path) -> bool:
    """Tell whether files can be put there: the folder itself, made by the first upload, or where it would be made."""
    there = next((path for path in (folder, *folder.parents) if path.exists()), None)
    return there is not None and there.is_dir() and os.access(there, os.W_OK)


CHECKS: dict[str, Callable[[], bool]] = {
    "process": _stays,
    "database": _reachable,
    "migrations": _migrated,
    "storage": _stored,
}
