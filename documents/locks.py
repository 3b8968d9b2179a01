"""One at a time per document, across processes and tables."""

from __future__ import annotations

from uuid import UUID

from django.db import connection


def lock(document_id: UUID) -> None:
    """Hold the document's advisory lock until the present transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [str(document_id)])
