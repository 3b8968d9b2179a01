"""What the planner believes about a table: tests of plans must not depend on what autovacuum has seen."""

from __future__ import annotations

from django.db import connection

NEVER_SEEN = (0, -1)
# A vacuum leaves every page visible to all, however many the tests before have left behind.
KNOWN = """
    SELECT pg_restore_relation_stats(
        'schemaname', 'public', 'relname', %(table)s::text, 'relpages', %(pages)s::int, 'reltuples', %(rows)s::real,
        'relallvisible', CASE WHEN %(rows)s < 0 THEN 0
            ELSE greatest(%(pages)s, pg_relation_size(%(table)s::regclass) / 8192) END::int)"""
# What an autoanalyze in the middle of another test has noted of the values.
FORGET = """
    SELECT pg_clear_attribute_stats('public', relname, attname, false)
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.oid = %s::regclass AND attnum > 0 AND NOT attisdropped"""


def believe(table: str, *, pages: int = NEVER_SEEN[0], rows: int = NEVER_SEEN[1]) -> None:
    """Let the planner take ``table`` for one that was vacuumed with so many pages and rows; by default never."""
    with connection.cursor() as cursor:
        cursor.execute(KNOWN, {"table": table, "pages": pages, "rows": rows})
        cursor.execute(FORGET, [f'"{table}"'])
