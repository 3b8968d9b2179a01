"""Vector search: a tenant's nearest chunks, by an exact scan while they are few, through HNSW indexes beyond."""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
import orjson
import psycopg
from django.db import connection, transaction
from psycopg.sql import SQL, Composable, Identifier, Literal

from accounts.prepared_statements import prepared_cursor
from embeddings.embedders.registry import EmbeddingModel, Vectors
from embeddings.models import VectorIndex

Condition = tuple[str, dict[str, Any]]  # SQL on a chunk ``c``, with its parameters
LIVE, SHADOW = VectorIndex.Table.LIVE, VectorIndex.Table.SHADOW
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)  # of a tenant's first index: no vector is older

# Candidates of a scan through an index: measured by `benchmarks recall`.
EF_SEARCH, MAX_EF = 80, 1000
SPARE = 20  # more candidates than results, or a quarter more, are ranked again by the full vectors
# With filters: beyond so many tuples the index gives up, and the scan is exact.
MAX_SCAN_TUPLES = 8_000
# Documents with so few chunks are read one by one rather than through the index.
FEW_PASSAGES = 2_000
# A sequential scan reads every tenant (86 ms instead of 1.5, FACTS), a sort of everything skips the index, and neither
# compiling nor waiting for a parallel worker pays for milliseconds.
PLANNER_SETTINGS = {"enable_seqscan": "off", "jit": "off", "max_parallel_workers_per_gather": "0"}
INDEX_SETTINGS = {"enable_sort": "off", "hnsw.iterative_scan": "relaxed_order", "hnsw.max_scan_tuples": MAX_SCAN_TUPLES}
# Of vectors that no index covers, so many with the nearest signs are compared: all, unless an index is built late. Of
# 50,000 texts of the model with the fewest signs, 4,000 have 99.9 % of the ten nearest (integrations.search).
COMPARED = 3_000
# LATERAL: row-level security lets no other subquery be a condition of an index, of which all entries are read then.
HAS_LONG_TAIL = " OR ".join(
    f"""EXISTS (
        SELECT FROM (
            SELECT coalesce(max(x.upto), '-infinity') AS upto FROM vector_indexes x
            WHERE x.user_id = %(user)s AND x.embed_model = %(model)s AND x.embed_version = %(version)s
                AND x.table_name = '{table}' AND x.built_at IS NOT NULL) covered,
            LATERAL (
                SELECT FROM {table} v
                WHERE v.user_id = %(user)s AND v.embed_model = %(model)s AND v.embed_version = %(version)s
                    AND v.embed_updated_at >= covered.upto
                OFFSET %(most)s LIMIT 1) late)"""
    for table in (LIVE.value, SHADOW.value)
)
# One row at least: of a tenant without an index, the others of its columns are null.
BUILT_INDEXES = f"""
    SELECT tail.is_long, x.table_name, x.since, x.upto FROM (SELECT {HAS_LONG_TAIL} AS is_long) tail
    LEFT JOIN vector_indexes x ON x.user_id = %(user)s AND x.embed_model = %(model)s
        AND x.embed_version = %(version)s AND x.built_at IS NOT NULL"""
HAS_FEW_CHUNKS = """
    SELECT count(*) <= %(few)s FROM (
        SELECT FROM document_chunks WHERE document_id = ANY(%(documents)s) AND user_id = %(user)s
        LIMIT %(few)s + 1) c"""


@dataclass(frozen=True, slots=True)
class Scope:
    """The rows that a search covers: a tenant's, of one model, in some documents."""

    user_id: UUID
    live: EmbeddingModel
    document_ids: tuple[UUID, ...] | None = None
    conditions: tuple[Condition, ...] = ()

    @property
    def params(self) -> dict[str, Any]:
        return {"user": self.user_id, "documents": list(self.document_ids or ()), **self.live.params}


@dataclass(frozen=True, slots=True)
class IndexSegment:
    """Vectors of one table that were written in [since, upto), of some chunks or documents; None: without a limit."""

    table: str
    since: datetime | None = None
    upto: datetime | None = None
    indexed: bool = False
    chunk_ids: Sequence[UUID] | None = None
    document_ids: Sequence[UUID] | None = None


@dataclass(frozen=True, slots=True)
class VectorHit:
    """A chunk and its cosine similarity to the query, -1 to 1."""

    chunk_id: UUID
    similarity: float


def nearest_chunks(scope: Scope, vector: Sequence[float] | Vectors, n: int) -> list[VectorHit]:
    """Return the ``n`` chunks nearest to ``vector``, best first; fewer only if there are fewer.

    Call inside ``search_snapshot``, which pins the planner. Where an index yields fewer than ``n``, as with a filter,
    the scan is exact. While an index is built late, the COMPARED with the nearest signs are compared.
    """
    compared = None
    with prepared_cursor() as cursor:
        cursor.execute(BUILT_INDEXES, scope.params | {"most": COMPARED})
        rows = cursor.fetchall()
        if rows[0][0] and not scope.conditions and scope.document_ids is None:
            compared = max(n, COMPARED)
        indexes = [VectorIndex(table_name=table, since=since, upto=upto) for _, table, since, upto in rows if table]
        if indexes and scope.document_ids is not None:
            cursor.execute(HAS_FEW_CHUNKS, scope.params | {"few": FEW_PASSAGES})
            if cursor.fetchone()[0]:
                indexes = []
    segments = index_segments(scope, indexes)
    hits, counts = _run(scope, segments, vector, n, compared)
    if any(segment.indexed and counts[at] < n for at, segment in enumerate(segments)):
        return nearest_chunks_exact(scope, vector, n)
    return hits


def nearest_chunks_exact(scope: Scope, vector: Sequence[float] | Vectors, n: int) -> list[VectorHit]:
    """Return what ``nearest_chunks`` returns, by comparing every vector in the scope."""
    return _run(scope, index_segments(scope, []), vector, n)[0]


def nearest_candidates(
    scope: Scope, vector: Sequence[float] | Vectors, n: int, chunk_ids: Sequence[UUID], document_ids: Sequence[UUID]
) -> tuple[list[VectorHit], int]:
    """Return the ``n`` nearest of these chunks and of those of these documents, and how many of the former there are.

    Chunks that are not in the scope, or that its tenant may not read, are left out.
    """
    segments = []
    for table in [SHADOW, LIVE] if scope.live.shadowed else [LIVE]:
        segments.append(IndexSegment(table, chunk_ids=chunk_ids))
        segments.append(IndexSegment(table, document_ids=document_ids))
    hits, counts = _run(scope, segments, vector, n)
    return hits, sum(counts[at] for at in range(0, len(segments), 2))


def index_segments(scope: Scope, indexes: Iterable[VectorIndex]) -> list[IndexSegment]:
    """Return segments that cover every vector of the scope: one for each index, one for each time range between.

    The statement has one snapshot; the order only decides which segment wins for a chunk that is in two.
    """
    by_time = sorted(indexes, key=lambda index: (index.since, -index.upto.timestamp()))
    segments = []
    for table in [SHADOW, LIVE] if scope.live.shadowed else [LIVE]:
        covered: datetime | None = None
        for index in by_time:
            # Of two that overlap, the one that reaches further back is used.
            if index.table_name != table or (covered and index.since < covered):
                continue
            if index.since > (covered or BEGINNING):
                segments.append(IndexSegment(table, covered, index.since))
            segments.append(IndexSegment(table, index.since, index.upto, indexed=True))
            covered = index.upto
        segments.append(IndexSegment(table, covered))
    return segments


def _run(
    scope: Scope, segments: list[IndexSegment], vector: Sequence[float] | Vectors, n: int, compared: int | None = None
) -> tuple[list[VectorHit], Counter[int]]:
    """Return the hits, and how many rows each segment yielded."""
    if n < 1 or scope.document_ids == ():
        return [], Counter()
    candidates = n + max(SPARE, n // 4)
    planner: dict[str, Any] = {}
    if any(segment.indexed for segment in segments):
        planner = INDEX_SETTINGS | {"hnsw.ef_search": min(MAX_EF, max(EF_SEARCH, candidates))}
    read = ", ".join(f"current_setting('{name}', true)" for name in planner)
    write = ", ".join(f"set_config('{name}', %s, true)" for name in planner)
    # Set back, not rolled back to a savepoint: after that psycopg forgets all statements that it has prepared.
    with transaction.atomic(savepoint=False), connection.cursor() as before, connection.cursor() as cursor:
        if planner:
            before.execute(f"SELECT {read}, {write}", [str(setting) for setting in planner.values()])
        cursor.execute(compose_sql(scope, segments, vector, n=n, candidates=candidates, compared=compared))
        rows: list[tuple[int, UUID, float]] = cursor.fetchall()
        if planner:
            cursor.execute(f"SELECT {write}", before.fetchone()[: len(planner)])
    # A chunk that moved meanwhile is in two segments: the later one has its present vector.
    distances = {chunk_id: distance for _, chunk_id, distance in rows}
    ranked = heapq.nsmallest(n, distances.items(), key=lambda pair: (pair[1], pair[0]))
    hits = [VectorHit(chunk_id, 1.0 - distance) for chunk_id, distance in ranked]
    return hits, Counter(segment for segment, *_ in rows)


# Literals, not parameters: the planner must prove that a segment lies within its index, and a parameter of a prepared
# statement proves nothing.
STATEMENT = "WITH q AS MATERIALIZED (SELECT {vector}::vector(1536) AS v) {segments}"
SEGMENT = """(SELECT {at} AS segment, {t}.chunk_id, {t}.embedding <=> (SELECT v FROM q) AS distance
          FROM {source} WHERE {conditions} ORDER BY {order} LIMIT {most})"""
# The signs are read from an index alone: 24 ms for 75,000 vectors, which take 290 to be compared. The chunks are an
# array, so that a planner that underestimates them reads each row once at most.
BY_SIGNS = """{t}.chunk_id = ANY(ARRAY(
    SELECT {t}.chunk_id FROM {source} WHERE {conditions}
    ORDER BY {t}.embedding_signs <~> (SELECT binary_quantize(v)::bit(1536) FROM q) LIMIT {compared}))
    AND {conditions}"""
BY_DISTANCE = "distance, {t}.chunk_id"
BY_INDEX = "{t}.embedding::halfvec(1536) <=> (SELECT v FROM q)::halfvec(1536)"


def compose_sql(
    scope: Scope,
    segments: Sequence[IndexSegment],
    vector: Sequence[float] | Vectors,
    *,
    n: int,
    candidates: int,
    compared: int | None = None,
) -> Composable:
    """Return the statement: rows of segment, chunk, distance; ``candidates`` of an indexed segment, ``n`` of others.

    Of those others, only the ``compared`` with the nearest signs are compared; None: all.
    """
    connection.ensure_connection()
    composed = []
    for at, segment in enumerate(segments):
        is_shadow = segment.table == SHADOW
        table = Identifier("s" if is_shadow else "c")
        source = "shadow_vectors s" if is_shadow else "document_chunks c"
        if is_shadow and scope.conditions:
            source += " JOIN document_chunks c ON c.chunk_id = s.chunk_id"
        conditions = SQL(" AND ").join(_conditions(scope, segment, table))
        if compared and not segment.indexed:
            conditions = SQL(BY_SIGNS).format(
                t=table,
                source=SQL(source),
                conditions=conditions,
                compared=Literal(compared),
            )
        sql = SQL(SEGMENT).format(
            at=Literal(at),
            t=table,
            source=SQL(source),
            conditions=conditions,
            order=SQL(BY_INDEX if segment.indexed else BY_DISTANCE).format(t=table),
            most=Literal(candidates if segment.indexed else max(n, len(segment.chunk_ids or ()))),
        )
        composed.append(sql)
    digits = orjson.dumps(np.asarray(vector, "f4"), option=orjson.OPT_SERIALIZE_NUMPY).decode()
    return SQL(STATEMENT).format(vector=Literal(digits), segments=SQL(" UNION ALL ").join(composed))


def _conditions(scope: Scope, segment: IndexSegment, table: Identifier) -> Iterator[Composable]:
    documents = None if scope.document_ids is None else list(scope.document_ids)
    for sql, literal in (
        ("{t}.user_id = {literal}", scope.user_id),
        ("{t}.embed_model = {literal}", scope.live.model),
        ("{t}.embed_version = {literal}", scope.live.version),
        ("{t}.embed_updated_at >= {literal}", segment.since),
        ("{t}.embed_updated_at < {literal}", segment.upto),
        ("{t}.document_id = ANY({literal})", documents),
        ("{t}.document_id = ANY({literal})", segment.document_ids),
        ("{t}.chunk_id = ANY({literal})", segment.chunk_ids),
    ):
        if literal is not None:
            yield SQL(sql).format(t=table, literal=Literal(literal))
    for condition, params in scope.conditions:
        # Filled in by the client, or SQL() would take what is in the parameters for its own placeholders.
        filled = psycopg.ClientCursor(connection.connection).mogrify(condition, params)
        yield SQL("({condition})").format(condition=SQL(filled))
