"""DDL of partial HNSW indexes: create and drop concurrently with writers, under one build lock."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from secrets import token_hex
from uuid import UUID

from django.db import DatabaseError, InterfaceError, OperationalError, connection
from psycopg.sql import SQL, Composable, Identifier, Literal

from embeddings.models import VectorIndex
from jobs.advisory_locks import try_lock_session, unlock_session

log = logging.getLogger("accessa.embeddings")

# A graph that does not fit is built many times slower: 100,000 passages need about 400 MB. No parallel workers: they
# would take all of it as shared memory at once, of which a container often has 64 MB, and the cores from searches.
SESSION = {"maintenance_work_mem": "512MB", "max_parallel_maintenance_workers": "0", "statement_timeout": "0"}
SHORT = {("text-embedding-3-small", "1"): "te3s_v1"}
TABLES = {VectorIndex.Table.LIVE: "chunks", VectorIndex.Table.SHADOW: "shadow"}
NAME_PATTERN = "^idx_hnsw_(chunks|shadow)_.{7}_[0-9a-f]{32}_[0-9a-f]{6}$"
PAUSE = 0.2

# One for all tenants: two such builds on one table would each wait for the other's snapshot, until PostgreSQL
# ends one as a deadlock. Polled, because a statement that waits for a lock has a snapshot too.
LOCK_KEY = "vector-indexes"


@contextmanager
def index_build_lock(*, wait: bool = True) -> Iterator[bool]:
    """Hold the lock for building and dropping; yield False if another session holds it and ``wait`` is off.

    Raises ``RuntimeError`` in a transaction: the build would wait for its snapshot.
    """
    if connection.in_atomic_block:
        raise RuntimeError("An index cannot be built inside a transaction.")
    while not try_lock_session(LOCK_KEY):
        if not wait:
            yield False
            return
        time.sleep(PAUSE)
    try:
        for name, setting in SESSION.items():
            _run(SQL("SET {} = {}").format(Identifier(name), Literal(setting)))
        yield True
    finally:
        with suppress(DatabaseError, InterfaceError):  # a connection that broke has lost the settings
            for name in SESSION:
                _run(SQL("RESET {}").format(Identifier(name)))
        unlock_session(LOCK_KEY)


def new_index_name(user_id: UUID, model: str, version: str, table: str) -> str:
    """Return an unused name of 63 bytes: table, model, tenant and six random digits."""
    tag = SHORT.get((model, version)) or sha256(f"{model}@{version}".encode()).hexdigest()[:7]
    return f"idx_hnsw_{TABLES[VectorIndex.Table(table)]}_{tag}_{user_id.hex}_{token_hex(3)}"


# Closed in time: vectors written later are not in it, so that a write costs a comparison and no walk through a graph.
CREATE = """
    CREATE INDEX CONCURRENTLY {name} ON {table} USING hnsw ((embedding::halfvec(1536)) halfvec_cosine_ops)
    WHERE user_id = {user} AND embed_model = {model} AND embed_version = {version}
      AND embed_updated_at >= {since} AND embed_updated_at < {upto}"""


def create_index(index: VectorIndex) -> None:
    """Build the index; returns once every transaction sees it. Raises ``DatabaseError`` when it is not valid."""
    _run(
        SQL(CREATE).format(
            name=Identifier(index.name),
            table=Identifier(index.table_name),
            user=Literal(index.user_id),
            model=Literal(index.embed_model),
            version=Literal(index.embed_version),
            since=Literal(index.since),
            upto=Literal(index.upto),
        )
    )
    if not _validity().get(index.name):
        raise OperationalError("The index was built, and is not valid.")


def drop_index(name: str) -> None:
    _run(SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(Identifier(name)))


def _validity() -> dict[str, bool]:
    """Return whether each HNSW index in the database is valid, by its name."""
    sql = """SELECT i.relname, x.indisvalid FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
             WHERE x.indrelid IN ('document_chunks'::regclass, 'shadow_vectors'::regclass) AND i.relname ~ %s"""
    with connection.cursor() as cursor:
        cursor.execute(sql, [NAME_PATTERN])
        return dict(cursor.fetchall())


def drop_leftovers() -> None:
    """Drop what a killed process left unfinished. Call inside ``index_build_lock``.

    A tenant that has lost an index loses its others as well, and gets one over all vectors.
    """
    validity = _validity()
    rows = list(VectorIndex.objects.all())
    lost = {_scope(row) for row in rows if row.built_at and not validity.get(row.name)}
    unusable = {row.name for row in rows if not row.built_at or _scope(row) in lost}
    VectorIndex.objects.filter(pk__in=unusable).delete()
    for name in validity.keys() - ({row.name for row in rows} - unusable):
        log.warning("Vector index %s is a leftover and is removed.", name)
        drop_index(name)


def _scope(row: VectorIndex) -> tuple[object, ...]:
    return row.user_id, row.embed_model, row.embed_version, row.table_name


def _run(statement: Composable) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)
