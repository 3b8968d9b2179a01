"""HNSW indexes: DDL and build lock; built when a tenant outgrows the exact scan, dropped when it shrinks."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import pairwise
from secrets import token_hex
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction
from django.db.models import Count, Max, QuerySet
from django.db.models.functions import Now
from django.utils import timezone
from psycopg.sql import SQL, Composable, Identifier, Literal

from embeddings.embedders.registry import EmbeddingModel
from embeddings.models import VectorIndex
from embeddings.search.vector_search import BEGINNING, LIVE, SHADOW
from jobs.advisory_locks import try_lock_session, unlock_session
from jobs.cluster import maintenance

log = logging.getLogger("accessa.embeddings")

# No parallel workers: they would take all of their memory as shared memory at once, of which a container often has
# 64 MB, and the cores from searches.
SESSION = {"max_parallel_maintenance_workers": "0", "statement_timeout": "0"}
# A graph that does not fit in memory is built many times slower. It takes as much as its passages need, up to a limit.
PASSAGE_BYTES, LEAST_MEMORY_MB = 4_500, 64
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
            for name in ("maintenance_work_mem", *SESSION):
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
    megabytes = LEAST_MEMORY_MB + index.passages * PASSAGE_BYTES // 1_000_000
    _run(SQL("SET maintenance_work_mem = {}").format(Literal(f"{min(megabytes, settings.VECTOR_INDEX_MEMORY_MB)}MB")))
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


MAX_SEGMENTS = 4  # indexes of a tenant while it grows
# And once none was built for so long: each takes about as long to search, whatever its size.
QUIET_SEGMENTS, QUIET_TIME = 2, timedelta(minutes=10)
# Each round looks at so many tenants and indexes; the next round continues after the last tenant.
TENANTS, INDEXES = 1_000, 20
FIRST = UUID(int=0)
END = datetime.max.replace(tzinfo=UTC)
THREAD_NAME = "vector-indexes"


def build_index(user_id: UUID, model: EmbeddingModel, table: str = LIVE) -> None:
    """Build the index that this tenant needs, if any; returns when it is in use.

    Call outside any transaction. Waits while another process builds, unless the tenant is small.
    """
    scope = (user_id, model.model, model.version, table)
    most = settings.SEARCH_EXACT_PASSAGES
    if _count_vectors(*scope, since=BEGINNING, most=most + 1) > most:
        with index_build_lock():
            drop_leftovers()
            _build_if_needed(*scope)


def drop_indexes(user_id: UUID, model: EmbeddingModel, table: str = LIVE) -> None:
    """Drop a tenant's indexes over vectors of a model. Call outside any transaction."""
    rows = _indexes(user_id, model.model, model.version, table)
    if rows.exists():
        with index_build_lock():
            _drop(rows)


def _indexes(user_id: UUID, model: str, version: str, table: str) -> QuerySet[VectorIndex]:
    return VectorIndex.objects.filter(user_id=user_id, embed_model=model, embed_version=version, table_name=table)


def _drop(rows: QuerySet[VectorIndex]) -> None:
    """Delete the rows first, so that search stops using the indexes. ``drop_leftovers`` finishes after a kill."""
    names = list(rows.values_list("name", flat=True))
    VectorIndex.objects.filter(pk__in=names).delete()
    for name in names:
        drop_index(name)


def _build_if_needed(user_id: UUID, model: str, version: str, table: str) -> None:
    segments = list(_indexes(user_id, model, version, table).order_by("upto"))
    since = segments[-1].upto if segments else BEGINNING
    most = settings.SEARCH_EXACT_PASSAGES
    if _count_vectors(user_id, model, version, table, since=since, most=most + 1) <= most:
        if pair := quiet_segments_to_merge(segments):
            _build((user_id, model, version, table), pair[0].since, pair[-1].upto, pair)
        return
    replaced = segments_to_merge(segments, most)
    with connection.cursor() as cursor:
        # The database's clock. A transaction that is still open may commit an older vector later; it enters the index
        # all the same, because it fits the predicate. Only that one commit pays for it.
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
    _build((user_id, model, version, table), replaced[0].since if replaced else since, now, replaced)


def _build(scope: tuple[UUID, str, str, str], since: datetime, upto: datetime, replaced: list[VectorIndex]) -> None:
    """Build an index over the scope's vectors of [since, upto), then drop those that it replaces."""
    user_id, model, version, table = scope
    index = VectorIndex(
        name=new_index_name(user_id, model, version, table),
        user_id=user_id,
        table_name=table,
        embed_model=model,
        embed_version=version,
        since=since,
        upto=upto,
        passages=_count_vectors(*scope, since=since, upto=upto),
    )
    index.save(force_insert=True)
    try:
        create_index(index)
    except DatabaseError:
        with suppress(DatabaseError, InterfaceError):  # otherwise the next round drops it
            _drop(VectorIndex.objects.filter(pk=index.name))
        raise
    with transaction.atomic():
        VectorIndex.objects.filter(pk=index.name).update(built_at=Now())
        VectorIndex.objects.filter(pk__in=[old.name for old in replaced]).delete()
    log.info("Vector index %s covers %d passages.", index.name, index.passages)
    for old in replaced:
        drop_index(old.name)


def segments_to_merge(segments: list[VectorIndex], new_passages: int) -> list[VectorIndex]:
    """Return the newest segments that a new one of ``new_passages`` replaces, the oldest of them first.

    None while there is room for one more. Otherwise as far back as no segment is more than twice the size of what
    follows it: a segment is rebuilt only once there is about as much to add, or a tenant that grows fast would be
    rebuilt for ever.
    """
    if len(segments) < MAX_SEGMENTS:
        return []
    first = len(segments) - 1
    total = new_passages + segments[first].passages
    while first and segments[first - 1].passages <= 2 * total:
        first -= 1
        total += segments[first].passages
    return segments[first:]


def quiet_segments_to_merge(segments: list[VectorIndex]) -> list[VectorIndex]:
    """Return the two neighbours with the fewest passages, of more than QUIET_SEGMENTS of a tenant that grows no more.

    Each merge begins another QUIET_TIME: a tenant that grows slowly is rebuilt no more often.
    """
    newest = max((segment.built_at for segment in segments if segment.built_at), default=None)
    if len(segments) <= QUIET_SEGMENTS or newest is None or newest > timezone.now() - QUIET_TIME:
        return []
    pair = min(pairwise(segments), key=lambda pair: pair[0].passages + pair[1].passages)
    return [*pair]


def _count_vectors(
    user_id: UUID,
    model: str,
    version: str,
    table: str,
    *,
    since: datetime,
    upto: datetime = END,
    most: int | None = None,
) -> int:
    sql = f"""SELECT count(*) FROM (
                  SELECT FROM {VectorIndex.Table(table)} WHERE user_id = %s AND embed_model = %s AND embed_version = %s
                    AND embed_updated_at >= %s AND embed_updated_at < %s LIMIT %s) counted"""
    with connection.cursor() as cursor:
        cursor.execute(sql, [user_id, model, version, since, upto, most])
        return int(cursor.fetchone()[0])


def start_maintenance() -> None:
    """Start a round of ``maintain_indexes`` in a background thread: a build takes minutes."""
    maintenance.start_in_background(
        THREAD_NAME, maintain_indexes, log=log, broke_off="The maintenance of vector indexes failed"
    )


def maintain_indexes() -> None:
    """Drop leftovers, build for tenants that have grown, drop for those that have shrunk; one process at a time.

    Between two builds, which take minutes, the lock is free for a moment: a campaign may wait for it.
    """
    with index_build_lock(wait=False) as is_locked:
        if not is_locked:
            return
        drop_leftovers()
    for scope in [*_round.outgrown(), *_quiet_scopes()]:
        with index_build_lock():
            _build_if_needed(*scope)
        time.sleep(2 * PAUSE)  # longer than another process pauses between two tries for the lock
    few = settings.SEARCH_EXACT_PASSAGES // 2  # half of what an exact scan is for, so that no index flaps
    scopes = VectorIndex.objects.values_list("user_id", "embed_model", "embed_version", "table_name")
    for scope in list(scopes.distinct().order_by("?")[:INDEXES]):
        if _count_vectors(*scope, since=BEGINNING, most=few + 1) <= few:
            with index_build_lock():
                _drop(_indexes(*scope))


def _quiet_scopes() -> list[tuple[UUID, str, str, str]]:
    """Return tenants whose segments ``quiet_segments_to_merge`` may merge."""
    scopes = VectorIndex.objects.values_list("user_id", "embed_model", "embed_version", "table_name")
    many = scopes.annotate(segments=Count("pk"), newest=Max("built_at")).filter(segments__gt=QUIET_SEGMENTS)
    return [scope[:4] for scope in many.filter(newest__lt=timezone.now() - QUIET_TIME)[:INDEXES]]


# Tenants with more vectors behind their indexes than an exact scan is for. Counting stops there.
OUTGROWN = """
    SELECT l.user_id, l.embed_model, l.embed_version,
        ARRAY(SELECT table_name FROM (VALUES {tables}) t (table_name, outgrown) WHERE outgrown)
    FROM (SELECT * FROM active_models WHERE user_id > %(after)s ORDER BY user_id LIMIT %(tenants)s) l
    ORDER BY l.user_id"""
OUTGROWN_TABLE = """('{table}', {only} EXISTS (
        SELECT FROM {table} v WHERE v.user_id = l.user_id AND v.embed_model = l.embed_model
            AND v.embed_version = l.embed_version AND v.embed_updated_at >= coalesce((
                SELECT max(x.upto) FROM vector_indexes x WHERE x.user_id = l.user_id AND x.table_name = '{table}'
                    AND x.embed_model = l.embed_model AND x.embed_version = l.embed_version), '-infinity')
        OFFSET %(most)s))"""
SELECT_OUTGROWN = OUTGROWN.format(
    tables=", ".join(
        [OUTGROWN_TABLE.format(table=LIVE, only=""), OUTGROWN_TABLE.format(table=SHADOW, only="l.shadowed AND")]
    )
)

# Of tenants whose merged words say that they are large: counting the vectors of all others would take too long.
LONGEST_TAIL = """
    SELECT coalesce(max((
        SELECT count(*) FROM document_chunks v WHERE v.user_id = l.user_id AND v.embed_model = l.embed_model
            AND v.embed_version = l.embed_version AND v.embed_updated_at >= coalesce((
                SELECT max(x.upto) FROM vector_indexes x
                WHERE x.user_id = l.user_id AND x.table_name = 'document_chunks' AND x.built_at IS NOT NULL
                    AND x.embed_model = l.embed_model AND x.embed_version = l.embed_version), '-infinity'))), 0)
    FROM active_models l
    WHERE l.user_id IN (SELECT user_id FROM posting_segments GROUP BY user_id HAVING sum(slots) > %s)"""


def longest_tail() -> int:
    """Return how many passages of a tenant no vector index covers, of the large tenant with the most."""
    with connection.cursor() as cursor:
        cursor.execute(LONGEST_TAIL, [settings.SEARCH_EXACT_PASSAGES])
        return int(cursor.fetchone()[0])


class Round:
    """Cursor over all tenants, some of them each time."""

    def __init__(self) -> None:
        self._after = FIRST

    def outgrown(self) -> list[tuple[UUID, str, str, str]]:
        params = {"after": self._after, "tenants": TENANTS, "most": settings.SEARCH_EXACT_PASSAGES}
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT set_config('enable_seqscan', 'off', true)")
            cursor.execute(SELECT_OUTGROWN, params)
            rows = cursor.fetchall()
        self._after = rows[-1][0] if len(rows) == TENANTS else FIRST
        return [(*scope, table) for *scope, tables in rows for table in tables]


_round = Round()
