"""One at a time per document, across processes and tables."""

from __future__ import annotations

from uuid import UUID

from django.db import connection


def lock(document_id: UUID, what: str = "files") -> None:
    """Hold one of the document's advisory locks until the present transaction ends.

    "files" is taken before a job's row is locked, "vectors" after: were they one lock, a deletion and a worker could
    wait for each other.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"{what}:{document_id}"])
