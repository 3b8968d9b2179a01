"""What `manage.py check` and `migrate` say before anything fails: an unprepared database, a laptop's defaults."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, cast
from uuid import uuid4

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.core.files.storage import storages
from django.db import connections

from accessa.checks import bedrock, connectors, s3_errors, statutes
from accessa.checks.conflicts import is_local
from documents.storage import BUCKETS, Bucket
from embeddings import embedders
from jobs.outcomes import Permanent, Postponed, Retryable

OLDEST_VECTOR = (0, 8, 4)  # 0.8.2 to 0.8.4 mended an overflow in parallel HNSW builds and corruption by vacuum
OLDEST_SERVER = 160_000  # GRANT … WITH INHERIT FALSE, SET TRUE
EMBEDDED = "accessa.embedded_postgres.backend"
LOCAL_FILES = "documents.storage.LocalSignedStorage"
FOLDER = "doctor"  # in each bucket, for probes: what is left of one that was killed goes with the next doctor
PRIVATE = "Block all public access to it."
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

LIVE = "SELECT embed_model, embed_version, count(*) FROM live_models GROUP BY 1, 2 ORDER BY 1, 2"


def check_database(
    *, app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Runs where a database is named: `migrate` and `check --database default`."""
    if "default" not in (databases or ()):
        return []
    with connections["default"].cursor() as cursor:
        if cursor.connection.info.server_version < OLDEST_SERVER:
            return [Error("The database server is too old.", hint="Use PostgreSQL 16 or newer.", id="accessa.E003")]
        cursor.execute(VECTOR)
        found = list(_vector(*cursor.fetchone()))
        cursor.execute(ROLES)
        found += _roles(*cursor.fetchone())
    return found


def check_embedding_models(
    *, app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Runs where a database is named. An embedder that cannot be asked is no reason to fall: `doctor` names it."""
    if "default" not in (databases or ()):
        return []
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT to_regclass('live_models') IS NOT NULL")
        if not cursor.fetchone()[0]:  # not migrated
            return []
        cursor.execute(LIVE)
        live = cursor.fetchall()
    try:
        return list(_models(live))
    except (ImproperlyConfigured, Permanent, Postponed, Retryable):
        says = "EMBEDDER cannot be asked, so nobody knows whether it embeds questions for all tenants."
        return [Warning(says, hint="Run: manage.py doctor --only embedder", id="accessa.W004")]


def _models(live: Sequence[tuple[str, str, int]]) -> Iterator[CheckMessage]:
    for model, version, tenants in live:
        if embedders.find_embedder(model, version) is None:
            yield Warning(
                f"Nothing here embeds questions for {model}@{version}, with which {tenants} tenants are searched.",
                hint="Configure that model again, then move them: manage.py reembed --model … --version …",
                id="accessa.W003",
            )


def check_deployment(*, app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """`check --deploy` refuses what is there to need nothing but Python."""
    return [
        *(Error(message, hint=hint, id=id) for unfit, message, hint, id in _defaults() if unfit),
        *_proxies(),
        *_metrics(),
        *connectors.check_connector_deployment(),
        *bedrock.check_bedrock_deployment(),
        *statutes.check_statute_deployment(),
    ]


def _proxies() -> Iterator[CheckMessage]:
    if settings.TRUSTED_PROXIES < 1 and not is_local(settings.PUBLIC_URL):
        yield Warning(
            "PUBLIC_URL is public and TRUSTED_PROXIES is 0: behind a proxy all clients have its address,"
            " and whoever tries passwords keeps everybody from signing in.",
            hint="Set TRUSTED_PROXIES to how many of your own proxies a request passes, which set X-Forwarded-For.",
            id="accessa.W107",
        )


def _metrics() -> Iterator[CheckMessage]:
    if not settings.METRICS_TOKEN and not is_local(settings.PUBLIC_URL):
        yield Warning(
            "PUBLIC_URL is public and METRICS_TOKEN is not set: through a proxy on this host that adds no header of"
            " its own, strangers can read /metrics.",
            hint="Set METRICS_TOKEN, and give it to Prometheus.",
            id="accessa.W108",
        )


def _defaults() -> Iterator[tuple[bool, str, str, str]]:
    engine = settings.DATABASES["default"]["ENGINE"]
    raw: dict[str, Any] = settings.STORAGES["raw"]  # type: ignore[assignment]
    yield engine == EMBEDDED, "The embedded PostgreSQL serves one machine.", "Set DATABASE_URL.", "accessa.E101"
    yield raw["BACKEND"] == LOCAL_FILES, "Files are kept on this machine's disk.", "Set up a bucket.", "accessa.E102"
    yield (
        settings.SECRET_KEY_IS_LOCAL,
        "SECRET_KEY is this machine's own, made for a laptop.",
        "Set SECRET_KEY.",
        "accessa.E103",
    )
    yield settings.DEBUG, "DEBUG shows settings and rows to strangers.", "Unset DEBUG.", "accessa.E104"


def check_buckets(*, app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """`check --deploy` writes, finds and removes a small object in each bucket, and asks for it as a stranger."""
    raw: dict[str, Any] = settings.STORAGES["raw"]  # type: ignore[assignment]
    if raw["BACKEND"] == LOCAL_FILES:
        return []
    return [message for name in BUCKETS for message in _probed(name, cast(Bucket, storages[name]))]


def _probed(name: str, bucket: Bucket) -> Iterator[CheckMessage]:
    probe = f"{FOLDER}/{uuid4()}"
    why = remedy = ""
    try:
        bucket.put(probe, b"probe")
        found, public = bucket.exists(probe), bucket.is_public(probe)
        bucket.delete(probe)
        works = found and not bucket.exists(probe)
    except OSError as error:
        works = public = False
        why, remedy = s3_errors.explain_s3_error(name, error)
        with suppress(OSError):
            bucket.delete(probe)
    if not works:
        yield Error(
            f"The bucket for {name} files cannot be written, read and emptied{why and f': {why}'}.",
            hint=remedy or s3_errors.RIGHTS,
            id="accessa.E105",
        )
    if public:
        yield Error(
            f"Strangers can read the bucket for {name} files.",
            hint=PRIVATE,
            id="accessa.E106",
        )


def _vector(installed: str | None, available: str | None) -> Iterator[CheckMessage]:
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
            f"The database {name!r} has pgvector {installed}, whose HNSW indexes can be corrupted; 0.8.4 mends that.",
            hint="Update the server's pgvector, then run in that database: ALTER EXTENSION vector UPDATE;",
            id="accessa.W001",
        )


def _roles(
    client_exists: bool, may_become_client: bool | None, bypasses: bool, superuser: bool, me: str
) -> Iterator[CheckMessage]:
    missing = []
    if not client_exists:
        missing.append("CREATE ROLE accessa_client NOLOGIN;")
    if not may_become_client:
        missing.append(f"GRANT accessa_client TO {me} WITH INHERIT FALSE, SET TRUE;")
    if not bypasses:
        missing.append(f"ALTER ROLE {me} BYPASSRLS;")
    if missing:
        yield Error(
            "The database's roles are not those that keep tenants apart (DESIGN §8).",
            hint="Run as a superuser: " + " ".join(missing),
            id="accessa.E002",
        )
    if superuser:
        yield Warning(
            "The application connects as a superuser.",
            hint="Connect as a role made by: "
            "CREATE ROLE accessa_app LOGIN BYPASSRLS PASSWORD '…'; GRANT accessa_client TO accessa_app "
            "WITH INHERIT FALSE, SET TRUE; and let it own the database.",
            id="accessa.W002",
        )
