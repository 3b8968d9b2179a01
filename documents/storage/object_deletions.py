"""What deleted documents leave behind, in the store and at the parsing vendor's, until it is surely gone."""

from __future__ import annotations

from uuid import UUID

from django.db import connection

SCHEDULE = """
    INSERT INTO object_removals (removal_id, document_id, path, drop_after)
    VALUES (gen_random_uuid(), %s, %s, clock_timestamp() + make_interval(secs => %s))
    ON CONFLICT (path) DO UPDATE SET drop_after = excluded.drop_after"""


def schedule_deletion(document_id: UUID, path: str, *, seconds: float) -> None:
    """Write down, in the caller's transaction, that ``path`` is to go, and that after ``seconds`` it has gone."""
    with connection.cursor() as cursor:
        cursor.execute(SCHEDULE, [document_id, path, seconds])
