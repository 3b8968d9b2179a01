"""System checks of the database: server version, pgvector, roles, embedding models."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from embeddings import embedders
from jobs.outcomes import Permanent, Retryable, Wait

OLDEST_VECTOR = (0, 8, 4)  # 0.8.2 to 0.8.4 fixed an overflow in parallel HNSW builds and corruption by vacuum
OLDEST_SERVER = 160_000  # GRANT … WITH INHERIT FALSE, SET TRUE
ROLES = """
SELECT to_regrole('accessa_client') IS NOT NULL,
       pg_has_role(current_user, to_regrole('accessa_client'), 'SET'),
       (SELECT rolbypassrls OR rolsuper FROM pg_roles WHERE rolname = current_user),
       (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
       (SELECT quote_ident(current_user))
"""
VECTOR = """
SELECT (SELECT extversion FROM pg_extension WHERE extname = 'vector'),
       (SELECT default_version FROM pg_available_extensions WHERE name = 'vector')
"""
ACTIVE_MODELS = "SELECT embed_model, embed_version, count(*) FROM active_models GROUP BY 1, 2 ORDER BY 1, 2"


def check_database(
    *, app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Run where a database is named: by `migrate` and `check --database default`."""
    if "default" not in (databases or ()):
        return []
    with connections["default"].cursor() as cursor:
        if cursor.connection.info.server_version < OLDEST_SERVER:
            return [Error("The database server is too old.", hint="Use PostgreSQL 16 or newer.", id="accessa.E003")]
        cursor.execute(VECTOR)
        messages = list(check_vector_extension(*cursor.fetchone()))
        cursor.execute(ROLES)
        return messages + list(check_roles(*cursor.fetchone()))


def check_embedding_models(
    *, app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Run where a database is named. An embedder that does not answer is a warning: `doctor` says why."""
    if "default" not in (databases or ()):
        return []
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT to_regclass('active_models') IS NOT NULL")
        if not cursor.fetchone()[0]:  # not migrated
            return []
        cursor.execute(ACTIVE_MODELS)
        models = cursor.fetchall()
    try:
        return [
            Warning(
                f"No embedder for {model}@{version}, with which {tenants} tenants are searched.",
                hint="Configure that model again, then move them: manage.py reembed --model … --version …",
                id="accessa.W003",
            )
            for model, version, tenants in models
            if embedders.find_embedder(embedders.EmbeddingModel(model, version)) is None
        ]
    except (ImproperlyConfigured, Permanent, Wait, Retryable):
        says = "EMBEDDER does not answer: it is unknown whether it embeds queries for all tenants."
        return [Warning(says, hint="Run: manage.py doctor --only embedder", id="accessa.W004")]


def check_vector_extension(installed: str | None, available: str | None) -> Iterator[CheckMessage]:
    name = connections["default"].settings_dict["NAME"]
    if installed is None:
        first = "" if available else "install pgvector 0.8.4 or newer on its server (github.com/pgvector/pgvector), "
        yield Error(
            f"The database {name!r} has no extension 'vector'.",
            hint=f"As a superuser {first}run in that database: CREATE EXTENSION vector;",
            id="accessa.E001",
        )
    elif tuple(int(part) for part in installed.split(".")) < OLDEST_VECTOR:
        yield Warning(
            f"The database {name!r} has pgvector {installed}, whose HNSW indexes can be corrupted; 0.8.4 fixes that.",
            hint="Update the server's pgvector, then run in that database: ALTER EXTENSION vector UPDATE;",
            id="accessa.W001",
        )


def check_roles(
    client_exists: bool, may_become_client: bool | None, bypasses_rls: bool, is_superuser: bool, role: str
) -> Iterator[CheckMessage]:
    missing = []
    if not client_exists:
        missing.append("CREATE ROLE accessa_client NOLOGIN;")
    if not may_become_client:
        missing.append(f"GRANT accessa_client TO {role} WITH INHERIT FALSE, SET TRUE;")
    if not bypasses_rls:
        missing.append(f"ALTER ROLE {role} BYPASSRLS;")
    if missing:
        yield Error(
            "The database's roles are not those that keep tenants apart (DESIGN §8).",
            hint="Run as a superuser: " + " ".join(missing),
            id="accessa.E002",
        )
    if is_superuser:
        yield Warning(
            "The application connects as a superuser.",
            hint="Connect as a role made by: "
            "CREATE ROLE accessa_app LOGIN BYPASSRLS PASSWORD '…'; GRANT accessa_client TO accessa_app "
            "WITH INHERIT FALSE, SET TRUE; and let it own the database.",
            id="accessa.W002",
        )
