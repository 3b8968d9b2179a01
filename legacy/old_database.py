"""The old database, read-only: its catalog, and its users, documents and chunks by the mapping."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings
from psycopg.rows import dict_row

from accounts.errors import ApiError
from embeddings.embedders.registry import DIMENSIONS
from legacy.column_mapping import ROLES, OldMapping, TableMapping
from legacy.error_codes import LEGACY_MAPPING_INVALID, LEGACY_NOT_CONFIGURED

READ_ONLY = "-c default_transaction_read_only=on"
COLUMNS = """
    SELECT table_schema || '.' || table_name AS table, column_name AS name, udt_name AS type
    FROM information_schema.columns
    WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, ordinal_position"""
ROWS_PER_READ = 200


@dataclass(frozen=True, slots=True)
class OldDocument:
    old_id: str
    user_id: UUID | None
    filename: str
    path: str
    encrypted: bool | None  # None: the old system does not say
    text: str | None
    row_hash: str


@dataclass(frozen=True, slots=True)
class OldChunk:
    ord: int
    text: str
    page: int | None
    vector: bytes | None  # as pgvector sends it: two half-words, then big-endian floats


class OldCatalog:
    """One snapshot of the old database: what changes while it is read is found by the next run."""

    def __init__(self, connection: psycopg.Connection[dict[str, Any]]) -> None:
        self._connection = connection

    def tables(self) -> dict[str, dict[str, str]]:
        """Return the types of all columns, by table (schema.table) and name."""
        tables: dict[str, dict[str, str]] = {}
        for row in self._connection.execute(COLUMNS):
            tables.setdefault(row["table"], {})[row["name"]] = row["type"]
        return tables

    def count(self, table: str) -> int:
        return int(self._one(f"SELECT count(*) AS value FROM {table}"))

    def sample(self, table: str, column: str) -> Any:
        return self._one(f'SELECT (SELECT "{column}" FROM {table} WHERE "{column}" IS NOT NULL LIMIT 1) AS value')

    def _one(self, sql: str) -> Any:
        row = self._connection.execute(sql).fetchone()
        return row["value"] if row else None

    def require(self, mapping: OldMapping) -> None:
        """Raise ``ApiError("LEGACY_MAPPING_INVALID")`` unless every mapped column is there."""
        tables = self.tables()
        for name, section in mapping.sections.items():
            types = tables.get(section.table, {})
            for role, column in section.columns.items():
                if column and column not in types:
                    detail = f"{name}.{role}: {section.table} has no column {column}."
                    raise ApiError(LEGACY_MAPPING_INVALID, detail)
                if role == "embedding" and types[column] not in ROLES["chunks"]["embedding"].types:
                    raise ApiError(LEGACY_MAPPING_INVALID, f"{name}.{role}: {column} is no column of vectors.")

    def users(self, users: TableMapping) -> Iterator[tuple[UUID | None, str]]:
        """Yield the id, None if it is no UUID, and the e-mail of every old user."""
        rows = self._connection.execute(f"SELECT {_select(users)} FROM {users.table} r ORDER BY 1")
        yield from ((_uuid(row["id"]), row["email"] or "") for row in rows)

    def documents(self, documents: TableMapping) -> Iterator[OldDocument]:
        """Yield every old document, user by user."""
        sql = f'SELECT {_select(documents)}, md5(r::text) AS row_hash FROM {documents.table} r ORDER BY "user_id", "id"'
        with self._connection.cursor(name="legacy_documents") as cursor:
            cursor.itersize = ROWS_PER_READ
            for row in cursor.execute(sql):
                yield OldDocument(
                    old_id=row["id"],
                    user_id=_uuid(row["user_id"]),
                    filename=row["filename"] or "",
                    path=row["path"] or "",
                    encrypted=None if row["encrypted"] is None else row["encrypted"] == "true",
                    text=row["text"],
                    row_hash=row["row_hash"],
                )

    def chunks(self, chunks: TableMapping, old_ids: Sequence[str]) -> dict[str, list[OldChunk]]:
        """Return the chunks of these documents in their order, by the document's old id."""
        page = f'"{chunks["page"]}"' if chunks["page"] else "NULL"
        sql = f"""
            SELECT "{chunks["document_id"]}"::text AS id, "{chunks["ord"]}" AS ord, "{chunks["text"]}" AS text,
                   {page} AS page, vector_send("{chunks["embedding"]}") AS vector
            FROM {chunks.table} WHERE "{chunks["document_id"]}"::text = ANY(%s) ORDER BY 1, 2"""
        by_document: dict[str, list[OldChunk]] = {}
        for row in self._connection.cursor(binary=True).execute(sql, [list(old_ids)]):
            chunk = OldChunk(row["ord"], row["text"] or "", row["page"], row["vector"])
            by_document.setdefault(row["id"], []).append(chunk)
        return by_document

    def nearest(self, mapping: OldMapping, user_id: UUID, vector: str, k: int) -> list[str]:
        """Return the old ids of the documents of a user's ``k`` chunks that are nearest to ``vector``."""
        documents, chunks = mapping.sections["documents"], mapping.sections["chunks"]
        sql = f"""
            SELECT d."{documents["id"]}"::text AS id FROM {chunks.table} c
            JOIN {documents.table} d ON d."{documents["id"]}" = c."{chunks["document_id"]}"
            WHERE d."{documents["user_id"]}"::text = %s AND vector_dims(c."{chunks["embedding"]}") = {DIMENSIONS}
            ORDER BY c."{chunks["embedding"]}" <=> %s::vector LIMIT %s"""
        return [row["id"] for row in self._connection.execute(sql, [str(user_id), vector, k])]


def _select(section: TableMapping) -> str:
    """Return the columns of a section as text, named by their roles; those that are not mapped are null."""
    values = {role: f'r."{column}"::text' if column else "NULL::text" for role, column in section.columns.items()}
    return ", ".join(f'{value} AS "{role}"' for role, value in values.items())


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text or "")
    except ValueError:
        return None


@contextmanager
def open_catalog() -> Iterator[OldCatalog]:
    """Connect to LEGACY_DATABASE_URL for one read-only snapshot. Raises ``ApiError("LEGACY_NOT_CONFIGURED")``."""
    if not settings.LEGACY_DATABASE_URL:
        raise ApiError(LEGACY_NOT_CONFIGURED, "LEGACY_DATABASE_URL is not set.")
    try:
        connection = psycopg.connect(settings.LEGACY_DATABASE_URL, options=READ_ONLY, row_factory=dict_row)
    except psycopg.Error as error:
        raise ApiError(LEGACY_NOT_CONFIGURED, "The old database cannot be reached.") from error
    with connection:
        connection.read_only = True
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        yield OldCatalog(connection)
