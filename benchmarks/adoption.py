"""Adoption of an old system's documents with their chunks and vectors: seconds of `manage.py legacy import`."""

import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from tempfile import TemporaryDirectory

from django.db import connection
from django.test import override_settings

from benchmarks.report import Result, print_progress
from embeddings.embedders import registry
from legacy import services
from legacy.column_mapping import ROLES, OldMapping, TableMapping
from legacy.models import ImportRun
from legacy.old_database import open_catalog
from testing.cluster import database_params
from testing.old_system import fill_old_system, old_database

SUMMARY = "Adopts documents of 20 chunks from an old database beside this one; files in a folder."
GOAL_SECONDS = 60.0
EMBEDDER = "testing.embedders.InstantEmbedder"
# The columns of testing.old_system by their roles.
COLUMNS = {
    "documents": ("id", "user_id", "original_filename", "storage_path", "encrypted", "parsed_text"),
    "chunks": ("document_id", "chunk_index", "content", "embedding", "page"),
    "users": ("id", "email"),
}
TABLES = {"documents": "documents.documents", "chunks": "documents.document_chunks", "users": "documents.users"}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--chunks", type=int, default=20)


def old_mapping() -> OldMapping:
    sections = {
        name: TableMapping(TABLES[name], dict(zip(ROLES[name], columns, strict=True)))
        for name, columns in COLUMNS.items()
    }
    return OldMapping(confirmed=True, backup="benchmark", adopt_model="instant@1", sections=sections)


def measure(options: Namespace) -> Result:
    documents, chunks = (12, 3) if options.quick else (options.documents, options.chunks)
    params = database_params()
    with TemporaryDirectory() as folder, old_database({**params, "dbname": "postgres"}, "old_system") as conninfo:
        fill_old_system(
            conninfo, Path(folder), registry.get_embedder(EMBEDDER), documents=documents, users=20, chunks=chunks,
            defects=False,
        )  # fmt: skip
        print_progress(documents, "documents of the old system are made")
        with override_settings(
            EMBEDDER=EMBEDDER,
            LEGACY_DATABASE_URL=conninfo,
            LEGACY_BUCKET=folder,
            LEGACY_DECRYPT="testing.old_system.decrypt",
        ):
            seconds = _import(old_mapping())
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM document_chunks WHERE embedding IS NOT NULL")
        (vectors,) = cursor.fetchone()
    goal = GOAL_SECONDS * documents / 1000
    return Result(
        name="adoption", value=seconds, unit="s", against="60 s for 1,000 documents", ratio=seconds / goal, goal=goal,
        ok=seconds <= goal and vectors == documents * chunks, details={"documents": documents, "vectors": vectors},
    )  # fmt: skip


def _import(mapping: OldMapping) -> float:
    with open_catalog() as old:
        services.import_users(old, mapping)
        began = time.perf_counter()
        services.import_documents(old, mapping, mode=ImportRun.Mode.ADOPT)
        return time.perf_counter() - began
