"""The statement behind `nearest`: one arm for each index, one for each range of time that no index covers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
from django.db import connection
from psycopg.sql import SQL, Composable, Identifier, Literal

from embeddings.active_model import EmbeddingModel
from embeddings.embedders import Vectors
from embeddings.models import VectorIndex

LIVE, SHADOW = VectorIndex.Table.LIVE, VectorIndex.Table.SHADOW
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)  # of the first index of a tenant: no vector is older
# Documents with so few passages are read one by one rather than looked for through the index.
FEW_PASSAGES = 2_000


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose passages, of which model, in which documents. ``conditions``: SQL on ``c``, a passage, with its values."""

    user_id: UUID
    live: EmbeddingModel
    document_ids: tuple[UUID, ...] | None = None
    conditions: tuple[tuple[str, dict[str, Any]], ...] = ()


@dataclass(frozen=True, slots=True)
class IndexSegment:
    """Vectors of one table that were written in [since, upto); without limits where these are None."""

    table: str
    since: datetime | None = None
    upto: datetime | None = None
    indexed: bool = False


def index_segments(scope: Scope, indexes: Iterable[VectorIndex]) -> list[IndexSegment]:
    """Return arms that meet every vector of the scope.

    The statement has one snapshot, so their order decides nothing but who wins in case of a repeated passage.
    """
    own = list(indexes)
    tables = [SHADOW, LIVE] if scope.live.shadowed else [LIVE]
    return [arm for table in tables for arm in _of_table(table, [index for index in own if index.table_name == table])]


def _of_table(table: str, indexes: list[VectorIndex]) -> Iterator[IndexSegment]:
    covered: datetime | None = None
    for index in sorted(indexes, key=lambda index: (index.since, -index.upto.timestamp())):
        if covered and index.since < covered:  # of two that overlap, the one that reaches further back
            continue
        if index.since > (covered or BEGINNING):
            yield IndexSegment(table, covered, index.since)
        yield IndexSegment(table, index.since, index.upto, indexed=True)
        covered = index.upto
    yield IndexSegment(table, covered)


def is_small(scope: Scope) -> bool:
    """Tell whether the scope names documents that have few passages together."""
    if scope.document_ids is None:
        return False
    sql = """SELECT count(*) <= %(few)s FROM (
                 SELECT FROM document_chunks WHERE document_id = ANY(%(ids)s) AND user_id = %(user)s
                 LIMIT %(few)s + 1) c"""
    with connection.cursor() as cursor:
        cursor.execute(sql, {"few": FEW_PASSAGES, "ids": list(scope.document_ids), "user": scope.user_id})
        return bool(cursor.fetchone()[0])


# Values are written into the statement as literals: the planner must prove that an arm is within its index, and a
# parameter of a prepared statement proves nothing.
STATEMENT = "WITH q AS MATERIALIZED (SELECT {vector}::vector(1536) AS v) {arms}"
ARM = """(SELECT {at} AS arm, {t}.chunk_id, {t}.embedding <=> (SELECT v FROM q) AS distance
          FROM {source} WHERE {conditions} ORDER BY {order} LIMIT {most})"""
BY_DISTANCE = "distance, {t}.chunk_id"
BY_INDEX = "{t}.embedding::halfvec(1536) <=> (SELECT v FROM q)::halfvec(1536)"


def compose(
    scope: Scope, parts: Sequence[IndexSegment], vector: Sequence[float] | Vectors, *, n: int, candidates: int
) -> Composable:
    """Return the statement: rows of arm, passage and distance. An index arm yields ``candidates``, any other ``n``."""
    connection.ensure_connection()
    composed = [_arm(scope, at, arm, candidates if arm.indexed else n) for at, arm in enumerate(parts)]
    digits = "[" + ",".join([f"{number:.9g}" for number in map(float, vector)]) + "]"
    return SQL(STATEMENT).format(vector=Literal(digits), arms=SQL(" UNION ALL ").join(composed))


def _arm(scope: Scope, at: int, arm: IndexSegment, most: int) -> Composable:
    shadow = arm.table == SHADOW
    table = Identifier("s" if shadow else "c")
    source = "shadow_vectors s" if shadow else "document_chunks c"
    if shadow and scope.conditions:
        source += " JOIN document_chunks c ON c.chunk_id = s.chunk_id"
    return SQL(ARM).format(
        at=Literal(at),
        t=table,
        source=SQL(source),
        conditions=SQL(" AND ").join(_conditions(scope, arm, table)),
        order=SQL(BY_INDEX if arm.indexed else BY_DISTANCE).format(t=table),
        most=Literal(most),
    )


def _conditions(scope: Scope, arm: IndexSegment, table: Identifier) -> Iterator[Composable]:
    yield SQL("{t}.user_id = {value}").format(t=table, value=Literal(scope.user_id))
    yield SQL("{t}.embed_model = {value}").format(t=table, value=Literal(scope.live.model))
    yield SQL("{t}.embed_version = {value}").format(t=table, value=Literal(scope.live.version))
    if arm.since is not None:
        yield SQL("{t}.embed_updated_at >= {value}").format(t=table, value=Literal(arm.since))
    if arm.upto is not None:
        yield SQL("{t}.embed_updated_at < {value}").format(t=table, value=Literal(arm.upto))
    if scope.document_ids is not None:
        yield SQL("{t}.document_id = ANY({value})").format(t=table, value=Literal(list(scope.document_ids)))
    for condition, values in scope.conditions:
        yield SQL("({condition})").format(condition=SQL(_filled(condition, values)))


def _filled(condition: str, values: dict[str, Any]) -> str:
    """The condition with its values as literals; SQL() must not take what is in them for its own placeholders."""
    return psycopg.ClientCursor(connection.connection).mogrify(condition, values)
