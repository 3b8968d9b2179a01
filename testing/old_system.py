"""A made old system: a schema of documents, chunks and users in a database of its own, and a folder as the bucket.

Every defect that the import knows is there once: see ``DEFECTS``.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid5

import django
import psycopg
from cryptography.fernet import Fernet
from django.conf import settings

from embeddings.embedders import registry
from embeddings.embedders.registry import Embedder
from testing.pdfs import text_pdf

NAMESPACE = UUID("0d5b6a60-3f5c-4d4e-8f8e-9f2f6a0c1b11")
KEY = b"ol8mYlOkG1tYxgGnhJkJ4V5F6f0lq2mXv0Q1rX2v8hE="
SCHEMA = """
    CREATE SCHEMA documents;
    CREATE TABLE documents.users (id uuid PRIMARY KEY, email text);
    CREATE TABLE documents.documents (
        id uuid PRIMARY KEY, user_id uuid, original_filename text, storage_path text, encrypted boolean,
        parsed_text text, updated_at timestamptz DEFAULT now());
    CREATE TABLE documents.document_chunks (
        id bigserial PRIMARY KEY, document_id uuid, chunk_index int, content text, embedding vector, page int);
    CREATE INDEX ON documents.document_chunks (document_id);
"""
# What is wrong with the last documents, and the code of each.
DEFECTS = {
    "missing": "FILE_MISSING",
    "garbled": "FILE_NOT_DECRYPTED",
    "image": "NOT_A_PDF",
    "empty": "EMPTY_FILE",
    "stranger": "UNKNOWN_USER",
    "gap": "CHUNK_GAP",
    "narrow": "VECTOR_UNUSABLE",
    "foreign": "VECTOR_DISAGREES",
    "twin": None,  # the same bytes as the user's first document
}
REFUSED_WHEN_REINGESTED = ("missing", "garbled", "image", "empty", "stranger")


def decrypt(content: bytes) -> bytes:
    """Decrypt as the old ``storage_service`` is taken to do; LEGACY_DECRYPT names it."""
    return Fernet(KEY).decrypt(content)


@dataclass(frozen=True)
class OldSystem:
    conninfo: str
    bucket: Path
    users: list[UUID]
    ids: dict[str, UUID] = field(default_factory=dict)  # of the documents, by number or defect

    def execute(self, sql: str, params: Sequence[object] = ()) -> None:
        with psycopg.connect(self.conninfo) as connection:
            connection.execute(sql, params)


@contextmanager
def old_database(server: dict[str, str], name: str) -> Iterator[str]:
    """Create a database beside that of ``server`` for the block; yield its connection string."""
    with psycopg.connect(**server, autocommit=True) as connection:  # type: ignore[arg-type]
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield psycopg.conninfo.make_conninfo(**{**server, "dbname": name})
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def fill_old_system(
    conninfo: str,
    bucket: Path,
    embedder: Embedder,
    *,
    documents: int,
    users: int,
    chunks: int = 3,
    defects: bool = True,
) -> OldSystem:
    """Write ``documents`` sound documents of ``users``, every third encrypted, and one for each defect."""
    people = [uuid5(NAMESPACE, f"user {n}") for n in range(users)]
    system = OldSystem(conninfo, bucket, people)
    with psycopg.connect(conninfo) as connection:
        connection.execute(SCHEMA)
        with connection.cursor() as cursor:
            rows = [(user, f"old{n}@example.org") for n, user in enumerate(people)]
            cursor.executemany("INSERT INTO documents.users VALUES (%s, %s)", rows)
        for number in range(documents):
            _add(connection, system, embedder, str(number), people[number % users], chunks, encrypt=number % 3 == 0)
        for defect in DEFECTS if defects else ():
            _add(connection, system, embedder, defect, people[0], chunks, encrypt=False)
            _spoil(connection, system, defect)
    return system


def page_texts(name: str, chunks: int) -> list[str]:
    line = "The plan {} pays {} percent of treatment {} after the deductible."
    return ["\n".join(line.format(name, n + at, f"{at}-{n}") for n in range(12)) for at in range(chunks)]


def _add(
    connection: psycopg.Connection[object], system: OldSystem, embedder: Embedder, name: str, user: UUID, chunks: int,
    *, encrypt: bool,
) -> None:  # fmt: skip
    texts = page_texts(name, chunks)
    content = text_pdf(*texts)
    old_id = system.ids[name] = uuid5(NAMESPACE, f"document {name}")
    # Mixed paths without isolation of users, as the old bucket has them.
    path = f"{user}/{old_id}.pdf" if len(system.ids) % 2 else f"uploads/2024/plan {name}.pdf"
    file = system.bucket / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(Fernet(KEY).encrypt(content) if encrypt else content)
    row = (old_id, user, f"plan {name}.pdf", path, encrypt, "\n\n".join(texts))
    columns = "id, user_id, original_filename, storage_path, encrypted, parsed_text"
    connection.execute(f"INSERT INTO documents.documents ({columns}) VALUES (%s, %s, %s, %s, %s, %s)", row)
    copy = "COPY documents.document_chunks (document_id, chunk_index, content, embedding, page) FROM STDIN"
    with connection.cursor() as cursor, cursor.copy(copy) as rows:
        for at, (text, vector) in enumerate(zip(texts, embedder.embed(texts), strict=True)):
            rows.write_row((old_id, at, text, str(vector.tolist()), at + 1))


def _spoil(connection: psycopg.Connection[object], system: OldSystem, defect: str) -> None:
    old_id = system.ids[defect]
    row = connection.execute("SELECT storage_path FROM documents.documents WHERE id = %s", [old_id]).fetchone()
    file = system.bucket / str(row[0] if isinstance(row, tuple) else "")
    own = "UPDATE documents.documents SET {} WHERE id = %s"
    chunk = "UPDATE documents.document_chunks SET {} WHERE chunk_index = 1 AND document_id = %s"
    narrow = "embedding = '[1,2,3]'"
    swapped = "UPDATE documents.document_chunks SET embedding = (SELECT embedding FROM documents.document_chunks"
    match defect:
        case "missing":
            file.unlink()
        case "garbled":
            connection.execute(own.format("encrypted = true"), [old_id])
        case "image":
            file.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(2000))
        case "empty":
            file.write_bytes(b"")
        case "stranger":
            connection.execute(own.format("user_id = gen_random_uuid()"), [old_id])
        case "gap":
            connection.execute(
                "DELETE FROM documents.document_chunks WHERE chunk_index = 1 AND document_id = %s", [old_id]
            )
        case "narrow":
            connection.execute(chunk.format(narrow), [old_id])
        case "foreign":
            other = f"{swapped} WHERE document_id = %s AND chunk_index = 0) WHERE document_id = %s"
            connection.execute(other, [system.ids["0"], old_id])
        case "twin":
            first = connection.execute("SELECT storage_path FROM documents.documents WHERE id = %s", [system.ids["0"]])
            path = first.fetchone()
            file.write_bytes(decrypt((system.bucket / str(path[0] if isinstance(path, tuple) else "")).read_bytes()))


def main() -> None:
    """Make an old system of 20 documents for ``manage.py demo --legacy``; drop it when the input ends."""
    django.setup()
    server, name, bucket = sys.argv[1:]
    params = psycopg.conninfo.conninfo_to_dict(server) | {"dbname": "postgres"}
    with old_database({key: str(value) for key, value in params.items()}, name) as conninfo:
        embedder = registry.get_embedder(settings.EMBEDDER)
        fill_old_system(conninfo, Path(bucket), embedder, documents=20, users=4)
        print("made", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
