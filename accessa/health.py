"""For whoever watches the process: alive says that it answers, ready that it can do its work."""

from __future__ import annotations

from django.db import connection
from django.http import HttpRequest, JsonResponse


def alive(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "ok"})


def ready(request: HttpRequest) -> JsonResponse:
    """Ask the database; it raises when it is away, which is answered 503 like everywhere."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return JsonResponse({"status": "ok"})
