"""Records embedded again from their stored text: after the tenant's model has changed, or when they have no vector."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from hashlib import sha256
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from embeddings import embedders
from integrations.models import ClientIntelligence, ConnectedSource
from integrations.records import record_embedding
from integrations.records.record_embedding import Vectors
from integrations.records.sql import execute
from integrations.records.text import RecordText
from jobs.advisory_locks import session_lock
from jobs.cluster import background
from jobs.errors import is_database_unavailable, safe_traceback
from jobs.outcomes import Permanent, Retryable, Wait

log = logging.getLogger("accessa.integrations")

CATCHING_UP = "records"
SECONDS = 25.0  # of a round: the next sweep begins another
TENANTS = 1_000  # looked at by a round, which goes on where the last one stopped
BATCHES = 8  # of a tenant, before the next tenant's turn
MOST_REFUSED = 10_000  # remembered, so that what no model takes is not offered to it every half minute
NOBODY = UUID(int=0)

LOCK_KEY = "records-catching-up"
# With a LIMIT a sequential scan looks cheap, and reads again with each batch all that is done already; a bitmap has all
# that is still to do.
PINNED = """
    SELECT set_config('enable_seqscan', 'off', true) AS scan, set_config('enable_bitmapscan', 'off', true) AS bitmap"""

# The next tenants by their id, from one to the next through the index; of them, those that may have something to do.
# Who is found with another model than EMBEDDER names is looked at each time.
LOOK = """
    WITH RECURSIVE t (user_id) AS (
        {next}
        UNION ALL
        SELECT next.user_id FROM t, LATERAL ({next_after}) next WHERE t.user_id IS NOT NULL),
    tenants AS MATERIALIZED (SELECT user_id FROM t WHERE user_id IS NOT NULL LIMIT %(tenants)s)
    SELECT user_id, {waits} OR EXISTS (
        SELECT FROM live_models l WHERE l.user_id = tenants.user_id
        AND l.embed_model || '@' || l.embed_version <> %(model)s) AS may_wait FROM tenants ORDER BY user_id"""
NEXT = """
    (SELECT least(
        (SELECT user_id FROM connected_sources WHERE user_id > {after} ORDER BY user_id LIMIT 1),
        (SELECT user_id FROM client_intelligence WHERE user_id > {after} ORDER BY user_id LIMIT 1)) AS user_id)"""
WAITS = """
    EXISTS (SELECT FROM {table} r WHERE r.user_id = tenants.user_id AND r.embedding_model IS NULL AND r.text <> '')
    OR EXISTS (SELECT FROM {table} r WHERE r.user_id = tenants.user_id AND r.embedding_model < %(model)s)
    OR EXISTS (SELECT FROM {table} r WHERE r.user_id = tenants.user_id AND r.embedding_model > %(model)s)"""
TABLES = ("source_documents", "client_intelligence")

# Three reaches of two indexes; "is another" would read all of the tenant's rows.
LEFT = """
    SELECT id, text FROM (
        (SELECT r.id, r.text FROM {table} r WHERE r.embedding_model IS NULL AND {wanted})
        UNION ALL
        (SELECT r.id, r.text FROM {table} r WHERE r.embedding_model < %(model)s AND {wanted})
        UNION ALL
        (SELECT r.id, r.text FROM {table} r WHERE r.embedding_model > %(model)s AND {wanted})
    ) own LIMIT %(most)s"""
WANTED = """
    r.user_id = %(user)s AND r.text <> '' AND r.id <> ALL(%(refused)s::uuid[]) AND NOT EXISTS (
        SELECT FROM connected_sources s WHERE s.id = r.source_id AND s.status = 'disconnected')"""
# What a sync has changed meanwhile it has embedded as well.
WRITE = """
    UPDATE {table} SET embedding = %(wire)s::vector, embedding_model = %(model)s, embedding_text_sha256 = %(sha)s
    WHERE id = %(id)s AND embedding_model IS DISTINCT FROM %(model)s AND sha256(convert_to(text, 'UTF8')) = %(sha)s
    RETURNING id"""


def start_backfill() -> None:
    """Begin to embed what has no vector of its tenant's model, if there is anything and nobody is at it.

    Aside: it asks a vendor.
    """
    if ConnectedSource.objects.exists() or ClientIntelligence.objects.exists():
        background.start_in_background(
            CATCHING_UP, backfill_embeddings, log=log, broke_off="Records were not embedded again"
        )


def backfill_embeddings(seconds: float = SECONDS) -> int:
    """Work for about so long, one process of all at a time; return how many records were embedded.

    Call outside of a transaction.
    """
    until = time.monotonic() + seconds
    made = 0
    with session_lock(LOCK_KEY) as is_ours:
        waiting = list(_round.tenants()) if is_ours else []
        while waiting and time.monotonic() < until:
            turns = [_turn(user_id, until) for user_id in waiting]
            made += sum(done for done, _ in turns)
            waiting = [user_id for user_id, (_, goes_on) in zip(waiting, turns, strict=True) if goes_on]
    if made:
        log.info("%d records were embedded again.", made)
    return made


def _turn(user_id: UUID, until: float) -> tuple[int, bool]:
    """Embed a few batches of a tenant's; return how many records, and whether there may be more to do now.

    What holds a vendor or a budget up ends the tenant's turns; the next round tries again.
    """
    made = 0
    try:
        for _ in range(BATCHES):
            done = _batch(user_id)
            made += done
            if not done or time.monotonic() >= until:
                return made, False
    except (Wait, Retryable, Permanent):
        return made, False
    except Exception as error:  # one tenant's trouble, logged without values, is not the others'
        if is_database_unavailable(error):
            raise
        log.error("Records of tenant %s: %s", user_id, safe_traceback(error))
        return made, False
    return made, True


def _batch(user_id: UUID) -> int:
    """Embed and store one call's worth; return how many records have their vector, or are known to get none."""
    vectors = record_embedding.of_tenant(user_id)
    for table in TABLES:
        rows = _left(table, user_id, vectors)
        if rows:
            try:
                vectors.reuse(list(rows.values()))
                vectors.buy(list(rows.values()))
            finally:  # what was bought before a vendor failed is kept
                done = _store(table, rows, vectors)
            return done
    return 0


def _left(table: str, user_id: UUID, vectors: Vectors) -> dict[UUID, RecordText]:
    values = {"user": user_id, "model": vectors.model, "most": vectors.most, "refused": list(_refused)}
    with transaction.atomic():
        execute(PINNED, {})
        rows = execute(LEFT.format(table=table, wanted=WANTED), values)
    return {row.id: RecordText(row.text, sha256(row.text.encode()).digest()) for row in rows}


def _store(table: str, rows: dict[UUID, RecordText], vectors: Vectors) -> int:
    """Store each vector by itself: in one transaction the rows' locks would be taken in another order than syncs do."""
    done = 0
    for record_id, text in rows.items():
        wire = vectors.found.get(text.sha)
        if wire is not None:
            values = {"wire": wire, "model": vectors.model, "sha": text.sha, "id": record_id}
            done += len(execute(WRITE.format(table=table), values))
        elif text.sha in vectors.refused:
            _refused.add(record_id)
            done += 1
    if len(_refused) > MOST_REFUSED:
        _refused.clear()
    return done


_refused: set[UUID] = set()


class TenantCursor:
    """Goes through all tenants, some of them each time."""

    def __init__(self) -> None:
        self._after = NOBODY

    def tenants(self) -> Iterator[UUID]:
        """Yield those that may have something to do."""
        chosen = embedders.get_embedder(settings.EMBEDDER)
        sql = LOOK.format(
            next=NEXT.format(after="%(after)s"),
            next_after=NEXT.format(after="t.user_id"),
            waits=" OR ".join(WAITS.format(table=table) for table in TABLES),
        )
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(PINNED)
            cursor.execute(sql, {"after": self._after, "tenants": TENANTS, "model": f"{chosen.model}@{chosen.version}"})
            looked = cursor.fetchall()
        self._after = looked[-1][0] if len(looked) == TENANTS else NOBODY
        yield from (user_id for user_id, may_wait in looked if may_wait)


_round = TenantCursor()
