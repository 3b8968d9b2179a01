"""Rebuilding and verification of the search engine: all that the rows hold is sent again, or compared with it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from django.db import connection, transaction

from embeddings.embedders.registry import EmbeddingModel
from embeddings.search_engine.entries import SHA, load_engine, read_entries
from outbox import search_feed

TENANTS = "SELECT DISTINCT user_id FROM documents ORDER BY user_id"
SELECT_SHAS = f"""
    SELECT c.chunk_id, c.embed_model, c.embed_version, c.document_id, {SHA.format(vector="c")}
    FROM document_chunks c WHERE c.user_id = %(user)s AND c.embedding IS NOT NULL
    UNION ALL
    SELECT c.chunk_id, s.embed_model, s.embed_version, c.document_id, {SHA.format(vector="s")}
    FROM shadow_vectors s JOIN document_chunks c USING (chunk_id) WHERE s.user_id = %(user)s"""
NO_DOCUMENT = UUID(int=0)


@dataclass
class Verification:
    """Entries of the engine and of the rows: ``missing`` and ``stale`` ones by document, ``orphans`` of no tenant.

    One that was changed counts as both. Documents with a change that is not sent yet are left out.
    """

    entries: int = 0
    missing: Counter[UUID] = field(default_factory=Counter)
    stale: Counter[UUID] = field(default_factory=Counter)
    orphans: int = 0

    @property
    def is_clean(self) -> bool:
        return not (self.missing or self.stale or self.orphans)


def rebuild(user_id: UUID | None = None) -> int:
    """Let all documents be sent again, of a tenant or of all; return how many. Raises ``EngineUnavailable``.

    Searches that begin later miss nothing meanwhile: before the engine lacks an entry, a message names its document, or
    the engine has no collection and is not asked.
    """
    engine = load_engine()
    if user_id is not None:
        version, _ = read_entries(NO_DOCUMENT)
        count = search_feed.enqueue_all(user_id)
        engine.delete_tenant(user_id, before=version)
        return count
    engine.drop_collection()
    with transaction.atomic():
        count = search_feed.enqueue_all(None)
    engine.create_collection()
    return count


def verify(user_id: UUID | None = None) -> Verification:
    """Compare the engine with the rows, of a tenant or of all. Raises ``EngineUnavailable``."""
    found, of_tenants = Verification(), 0
    for tenant in [user_id] if user_id else _tenants():
        missing, stale, entries = _compare(tenant)
        of_tenants += entries
        if missing or stale:  # again: a document may have been sent while entries and rows were read
            pending = set(search_feed.pending_documents(tenant))
            missing_now, stale_now, _ = _compare(tenant)
            found.missing += _of_documents((missing & missing_now), pending)
            found.stale += _of_documents((stale & stale_now), pending)
    found.entries = of_tenants
    if user_id is None:
        found.orphans = max(0, load_engine().count_entries() - of_tenants)
    return found


Row = tuple[str, tuple[UUID, str]]  # id of the entry, its document and sha


def _compare(user_id: UUID) -> tuple[set[Row], set[Row], int]:
    """Return what of the rows the engine has not, what it has that they have not, and how many entries it has."""
    engine = load_engine()
    stored = set(engine.list_entries(user_id).items())
    with connection.cursor() as cursor:
        cursor.execute(SELECT_SHAS, {"user": user_id})
        rows = {
            (engine.entry_id(chunk_id, EmbeddingModel(name, version)), (document_id, sha))
            for chunk_id, name, version, document_id, sha in cursor.fetchall()
        }
    return rows - stored, stored - rows, len(stored)


def _of_documents(rows: Iterable[Row], pending: set[UUID]) -> Counter[UUID]:
    return Counter(document_id for _, (document_id, _) in rows if document_id not in pending)


def _tenants() -> list[UUID]:
    with connection.cursor() as cursor:
        cursor.execute(TENANTS)
        return [user_id for (user_id,) in cursor.fetchall()]
