"""Which tenants have a vector index of their own: made when they outgrow the exact scan, removed when they shrink."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from embeddings.indexes import hnsw_ddl
from embeddings.models import VectorIndex
from embeddings.search.vector_sql import BEGINNING, LIVE, SHADOW
from jobs.cluster import background

log = logging.getLogger("accessa.embeddings")

MOST_SEGMENTS = 4
# A sweep looks at so many tenants, and goes on where the last one stopped.
TENANTS, INDEXES = 1_000, 20
NOBODY = UUID(int=0)
TENDING = "vector-indexes"


def build_index(user_id: UUID, model: str, version: str, table: str = LIVE) -> None:
    """Build what this tenant needs to be searched through indexes, if it needs anything; returns when that is in use.

    Call outside any transaction. Waits while another process builds.
    """
    with hnsw_ddl.index_build_lock():
        hnsw_ddl.drop_leftovers()
        _seal(user_id, model, version, table)


def drop_indexes(user_id: UUID, model: str, version: str, table: str = LIVE) -> None:
    """Remove a tenant's indexes over vectors of a model. Call outside any transaction."""
    with hnsw_ddl.index_build_lock():
        _drop(_of(user_id, model, version, table))


def _of(user_id: UUID, model: str, version: str, table: str) -> QuerySet[VectorIndex]:
    return VectorIndex.objects.filter(user_id=user_id, embed_model=model, embed_version=version, table_name=table)


def _drop(rows: QuerySet[VectorIndex]) -> None:
    """First out of use, then out of the database: killed in between, the next one at it removes what is left."""
    names = list(rows.values_list("name", flat=True))
    VectorIndex.objects.filter(pk__in=names).delete()
    for name in names:
        hnsw_ddl.drop_index(name)


def _seal(user_id: UUID, model: str, version: str, table: str) -> None:
    sealed = list(_of(user_id, model, version, table).order_by("upto"))
    since = sealed[-1].upto if sealed else BEGINNING
    most = settings.SEARCH_EXACT_PASSAGES
    if _count(user_id, model, version, table, since=since, most=most + 1) <= most:
        return
    replaced = segments_to_merge(sealed, most)
    index = VectorIndex(
        name=hnsw_ddl.new_index_name(user_id, model, version, table),
        user_id=user_id,
        table_name=table,
        embed_model=model,
        embed_version=version,
        since=replaced[0].since if replaced else since,
        upto=_clock(),
    )
    index.passages = _count(user_id, model, version, table, since=index.since)
    index.save(force_insert=True)
    _build(index, replaced)


def segments_to_merge(sealed: list[VectorIndex], grown: int) -> list[VectorIndex]:
    """Return the newest segments that a new one of ``grown`` passages takes in, the oldest of them first.

    None while there is room for one more. Then as far back as none is more than twice what came after it: a segment
    is built again only once there is about as much to add, or a tenant that grows fast would be built for ever.
    """
    if len(sealed) < MOST_SEGMENTS:
        return []
    first = len(sealed) - 1
    together = grown + sealed[first].passages
    while first and sealed[first - 1].passages <= 2 * together:
        first -= 1
        together += sealed[first].passages
    return sealed[first:]


def _build(index: VectorIndex, replaced: list[VectorIndex]) -> None:
    """Build it, and put it to use in the place of those that it replaces."""
    try:
        hnsw_ddl.create_index(index)
    except DatabaseError:
        with suppress(DatabaseError, InterfaceError):  # whoever is next at it clears up
            _drop(VectorIndex.objects.filter(pk=index.name))
        raise
    with transaction.atomic():
        VectorIndex.objects.filter(pk=index.name).update(built_at=Now())
        VectorIndex.objects.filter(pk__in=[old.name for old in replaced]).delete()
    log.info("Vector index %s covers %d passages.", index.name, index.passages)
    for old in replaced:
        hnsw_ddl.drop_index(old.name)


def _clock() -> datetime:
    """The database's, at which the index ends.

    A transaction that is still open may commit an older vector later. It is found all the same: what fits the
    predicate enters the index whenever it is written. Only that one commit pays for it.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


def _count(user_id: UUID, model: str, version: str, table: str, *, since: datetime, most: int | None = None) -> int:
    """Count the vectors written from ``since`` on, up to ``most``."""
    sql = f"""SELECT count(*) FROM (
                  SELECT FROM {VectorIndex.Table(table)} WHERE user_id = %s AND embed_model = %s AND embed_version = %s
                    AND embed_updated_at >= %s LIMIT %s) counted"""
    with connection.cursor() as cursor:
        cursor.execute(sql, [user_id, model, version, since, most])
        counted: int = cursor.fetchone()[0]
    return counted


def start_maintenance() -> None:
    """Begin to look after the indexes, if nobody is at it.

    Aside: a build takes minutes.
    """
    background.start_in_background(
        TENDING, maintain_indexes, log=log, broke_off="The vector indexes were not looked after"
    )


def maintain_indexes() -> None:
    """Clear up, seal what has grown, drop what has shrunk; nothing while another process does.

    A build takes minutes, and a campaign may wait to seal: after each the right to build is free for a moment.
    """
    with hnsw_ddl.index_build_lock(wait=False) as is_ours:
        if not is_ours:
            return
        hnsw_ddl.drop_leftovers()
    for scope in _round.outgrown():
        with hnsw_ddl.index_build_lock():
            _seal(*scope)
        time.sleep(2 * hnsw_ddl.PAUSE)  # longer than who waits for the right pauses between two tries
    for rows in _shrunk():
        with hnsw_ddl.index_build_lock():
            _drop(rows)


def _shrunk() -> Iterator[QuerySet[VectorIndex]]:
    """Indexes of tenants that have become much smaller, some of them each time. Half, so that none comes and goes."""
    few = settings.SEARCH_EXACT_PASSAGES // 2
    whose = VectorIndex.objects.values_list("user_id", "embed_model", "embed_version", "table_name")
    for scope in list(whose.distinct().order_by("?")[:INDEXES]):
        if _count(*scope, since=BEGINNING, most=few + 1) <= few:
            yield _of(*scope)


# Which of some tenants have more vectors than their indexes cover and an exact scan is for. Counting stops there.
OUTGROWN = """
    SELECT l.user_id, l.embed_model, l.embed_version,
        ARRAY(SELECT table_name FROM (VALUES {tables}) t (table_name, outgrown) WHERE outgrown)
    FROM (SELECT * FROM live_models WHERE user_id > %(after)s ORDER BY user_id LIMIT %(tenants)s) l
    ORDER BY l.user_id"""
OF_TABLE = """('{table}', {only} EXISTS (
        SELECT FROM {table} v WHERE v.user_id = l.user_id AND v.embed_model = l.embed_model
            AND v.embed_version = l.embed_version AND v.embed_updated_at >= coalesce((
                SELECT max(x.upto) FROM vector_indexes x WHERE x.user_id = l.user_id AND x.table_name = '{table}'
                    AND x.embed_model = l.embed_model AND x.embed_version = l.embed_version), '-infinity')
        OFFSET %(most)s))"""
LOOK = OUTGROWN.format(
    tables=", ".join([OF_TABLE.format(table=LIVE, only=""), OF_TABLE.format(table=SHADOW, only="l.shadowed AND")])
)


class Round:
    """Looks at all tenants, some of them each time."""

    def __init__(self) -> None:
        self._after = NOBODY

    def outgrown(self) -> list[tuple[UUID, str, str, str]]:
        values = {"after": self._after, "tenants": TENANTS, "most": settings.SEARCH_EXACT_PASSAGES}
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT set_config('enable_seqscan', 'off', true)")
            cursor.execute(LOOK, values)
            looked = cursor.fetchall()
        self._after = looked[-1][0] if len(looked) == TENANTS else NOBODY
        return [(*whose, table) for *whose, tables in looked for table in tables]


_round = Round()
