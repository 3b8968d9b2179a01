"""Planner statistics set by hand, so that tests of query plans do not depend on autovacuum."""

from django.db import connection

NEVER_VACUUMED = (0, -1)
# A vacuum leaves every page visible to all, however many the tests before have left behind.
RESTORE_STATISTICS = """
    SELECT pg_restore_relation_stats(
        'schemaname', 'public', 'relname', %(table)s::text, 'relpages', %(pages)s::int, 'reltuples', %(rows)s::real,
        'relallvisible', CASE WHEN %(rows)s < 0 THEN 0
            ELSE greatest(%(pages)s, pg_relation_size(%(table)s::regclass) / 8192) END::int)"""
# What an autoanalyze in the middle of another test has noted of the values.
CLEAR_STATISTICS = """
    SELECT pg_clear_attribute_stats('public', relname, attname, false)
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.oid = %s::regclass AND attnum > 0 AND NOT attisdropped"""


def set_table_statistics(table: str, *, pages: int = NEVER_VACUUMED[0], rows: int = NEVER_VACUUMED[1]) -> None:
    """Let the planner take ``table`` for one that was vacuumed with so many pages and rows; by default never."""
    with connection.cursor() as cursor:
        cursor.execute(RESTORE_STATISTICS, {"table": table, "pages": pages, "rows": rows})
        cursor.execute(CLEAR_STATISTICS, [f'"{table}"'])
