"""What the planner believes about a table: tests of plans must not depend on what autovacuum has seen."""

from __future__ import annotations

from django.db import connection

NEVER_SEEN = (0, -1)
KNOWN = """
    SELECT pg_restore_relation_stats('schemaname', 'public', 'relname', %s::text,
                                     'relpages', %s::int, 'reltuples', %s::real)"""


def believe(table: str, *, pages: int = NEVER_SEEN[0], rows: int = NEVER_SEEN[1]) -> None:
    """Let the planner take ``table`` for one that was vacuumed with so many pages and rows; by default never."""
    with connection.cursor() as cursor:
        cursor.execute(KNOWN, [table, pages, rows])
