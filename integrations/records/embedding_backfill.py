"""Embedding backfill: records that lack a vector of the tenant's model are embedded from their stored text."""

import logging
import time
from collections.abc import Iterator
from hashlib import sha256
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from embeddings.embedders import registry
from integrations.models import ClientIntelligence, ConnectedSource
from integrations.records import record_embedding
from integrations.records.prepared_sql import execute
from integrations.records.record_embedding import Vectors
from integrations.records.text_normalization import RecordText
from jobs.advisory_locks import session_lock
from jobs.cluster import maintenance
from jobs.infrastructure_errors import is_database_unavailable
from jobs.outcomes import Permanent, Retryable, Wait
from jobs.safe_errors import safe_traceback

log = logging.getLogger("accessa.integrations")

SECONDS = 25.0  # of a round: the periodic task starts another
TENANTS = 1_000  # checked by a round, which continues where the last one stopped
BATCHES = 8  # of a tenant, before the next tenant's turn
MOST_REFUSED = 10_000  # remembered, so that texts that no model accepts are not sent again every half minute
NO_TENANT = UUID(int=0)
LOCK_KEY = "records-catching-up"
# With a LIMIT a sequential scan looks cheap, and reads all finished rows again with each batch; a bitmap reads all
# unfinished ones.
PLANNER_SETTINGS = """
    SELECT set_config('enable_seqscan', 'off', true) AS scan, set_config('enable_bitmapscan', 'off', true) AS bitmap"""

# The next tenants by their id, from one to the next through the index, and whether they may have unfinished rows. A
# tenant with another model than EMBEDDER names is always included, unless one deployment embeds all records.
TENANTS_AFTER = """
    WITH RECURSIVE t (user_id) AS (
        {next}
        UNION ALL
        SELECT next.user_id FROM t, LATERAL ({next_after}) next WHERE t.user_id IS NOT NULL),
    tenants AS MATERIALIZED (SELECT user_id FROM t WHERE user_id IS NOT NULL LIMIT %(tenants)s)
    SELECT user_id, {unfinished} OR NOT %(one_model)s AND EXISTS (
        SELECT FROM active_models l WHERE l.user_id = tenants.user_id
        AND l.embed_model || '@' || l.embed_version <> %(model)s) AS may_wait FROM tenants ORDER BY user_id"""
NEXT = """
    (SELECT least(
        (SELECT user_id FROM connected_sources WHERE user_id > {after} ORDER BY user_id LIMIT 1),
        (SELECT user_id FROM client_intelligence WHERE user_id > {after} ORDER BY user_id LIMIT 1)) AS user_id)"""
UNFINISHED = """
    EXISTS (SELECT FROM {table} r WHERE r.user_id = tenants.user_id AND r.embedding_model IS NULL AND r.text <> '')
    OR EXISTS (SELECT FROM {table} r WHERE r.user_id = tenants.user_id AND r.embedding_model < %(model)s)
    OR EXISTS (SELECT FROM {table} r WHERE r.user_id = tenants.user_id AND r.embedding_model > %(model)s)"""
TABLES = ("source_documents", "client_intelligence")

# Three ranges of two indexes; "<> model" would read all of the tenant's rows.
BATCH = """
    SELECT id, text FROM (
        (SELECT r.id, r.text FROM {table} r WHERE r.embedding_model IS NULL AND {condition})
        UNION ALL
        (SELECT r.id, r.text FROM {table} r WHERE r.embedding_model < %(model)s AND {condition})
        UNION ALL
        (SELECT r.id, r.text FROM {table} r WHERE r.embedding_model > %(model)s AND {condition})
    ) own LIMIT %(most)s"""
CONDITION = """
    r.user_id = %(user)s AND r.text <> '' AND r.id <> ALL(%(refused)s::uuid[]) AND NOT EXISTS (
        SELECT FROM connected_sources s WHERE s.id = r.source_id AND s.status = 'disconnected')"""
# A row that a sync has changed meanwhile was embedded by it.
WRITE = """
    UPDATE {table} SET embedding = %(wire)s::vector, embedding_model = %(model)s, embedding_text_sha256 = %(sha)s
    WHERE id = %(id)s AND embedding_model IS DISTINCT FROM %(model)s AND sha256(convert_to(text, 'UTF8')) = %(sha)s
    RETURNING id"""

_refused: set[UUID] = set()


def start_backfill() -> None:
    """Start a round in the background, as it calls a vendor, unless there are no records."""
    if ConnectedSource.objects.exists() or ClientIntelligence.objects.exists():
        maintenance.start_in_background(
            "records", backfill_embeddings, log=log, broke_off="Records were not embedded again"
        )


def backfill_embeddings(seconds: float = SECONDS) -> int:
    """Embed for about ``seconds``, in one process at a time; return how many records. Call it in no transaction."""
    until = time.monotonic() + seconds
    count = 0
    with session_lock(LOCK_KEY) as is_locked:
        waiting = list(_tenants.read_next()) if is_locked else []
        while waiting and time.monotonic() < until:
            turns = [_run_turn(user_id, until) for user_id in waiting]
            count += sum(embedded for embedded, _ in turns)
            waiting = [user_id for user_id, (_, has_more) in zip(waiting, turns, strict=True) if has_more]
    if count:
        log.info("%d records were embedded again.", count)
    return count


def _run_turn(user_id: UUID, until: float) -> tuple[int, bool]:
    """Embed a few batches of a tenant's records; return how many records, and whether there may be more to do now.

    A vendor or a budget that has to be waited for ends the tenant's turns; the next round tries again.
    """
    count = 0
    try:
        for _ in range(BATCHES):
            done = _embed_batch(user_id)
            count += done
            if not done or time.monotonic() >= until:
                return count, False
    except (Wait, Retryable, Permanent):
        return count, False
    except Exception as error:  # of this tenant only; logged without values
        if is_database_unavailable(error):
            raise
        log.error("Records of tenant %s: %s", user_id, safe_traceback(error))
        return count, False
    return count, True


def _embed_batch(user_id: UUID) -> int:
    """Embed and store one call's texts; return how many records have their vector, or are known to get none."""
    vectors = record_embedding.tenant_vectors(user_id)
    for table in TABLES:
        params = {"user": user_id, "model": vectors.model, "most": vectors.batch_size, "refused": list(_refused)}
        with transaction.atomic():
            execute(PLANNER_SETTINGS, {})
            rows = execute(BATCH.format(table=table, condition=CONDITION), params)
        texts = {row.id: RecordText(row.text, sha256(row.text.encode()).digest()) for row in rows}
        if texts:
            try:
                vectors.reuse(list(texts.values()))
                vectors.buy(list(texts.values()))
            finally:  # vectors bought before a vendor failed are kept
                count = _store(table, texts, vectors)
            return count
    return 0


def _store(table: str, texts: dict[UUID, RecordText], vectors: Vectors) -> int:
    """Store each vector by itself: one transaction would lock the rows in another order than syncs do."""
    count = 0
    for record_id, text in texts.items():
        vector = vectors.found.get(text.sha)
        if vector is not None:
            params = {"wire": vector, "model": vectors.model, "sha": text.sha, "id": record_id}
            count += len(execute(WRITE.format(table=table), params))
        elif text.sha in vectors.refused:
            _refused.add(record_id)
            count += 1
    if len(_refused) > MOST_REFUSED:
        _refused.clear()
    return count


class TenantCursor:
    """Iterates over all tenants, ``TENANTS`` of them at a time."""

    def __init__(self) -> None:
        self._after = NO_TENANT

    def read_next(self) -> Iterator[UUID]:
        """Yield those of the next tenants that may have unfinished records."""
        brain = record_embedding.brain_model()
        default = brain or registry.get_embedder(settings.EMBEDDER)
        sql = TENANTS_AFTER.format(
            next=NEXT.format(after="%(after)s"),
            next_after=NEXT.format(after="t.user_id"),
            unfinished=" OR ".join(UNFINISHED.format(table=table) for table in TABLES),
        )
        model = f"{default.model}@{default.version}"
        params: dict[str, Any] = {
            "after": self._after,
            "tenants": TENANTS,
            "model": model,
            "one_model": brain is not None,
        }
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(PLANNER_SETTINGS)
            cursor.execute(sql, params)
            rows = cursor.fetchall()
        self._after = rows[-1][0] if len(rows) == TENANTS else NO_TENANT
        yield from (user_id for user_id, may_wait in rows if may_wait)


_tenants = TenantCursor()
