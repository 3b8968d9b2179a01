"""Checks before an upgrade (`doctor --before-upgrade`), by the new program on the database that the old one serves."""

import os
from collections.abc import Iterator

from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from accessa.doctor.database import check_ahead
from accessa.doctor.findings import Finding, error, note, warning
from accessa.migration_operations import unfit_operations
from accessa.pipelines import PIPELINES
from embeddings.chunking import chunkers
from embeddings.models import STAGED

OLD_TRANSACTION_SECONDS, OLD_ARCHIVE_HOURS = 60, 24
UNFINISHED = """
SELECT pipeline, stage, chunks_version, state = 'working', count(*) FROM upload_jobs
WHERE state IN ('queued', 'working', 'retryable') GROUP BY 1, 2, 3, 4"""
SESSIONS = """
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
       count(*), coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)
                          FILTER (WHERE pid <> pg_backend_pid() AND datname = current_database())), 0)::float
FROM pg_stat_activity WHERE backend_type = 'client backend'"""
ARCHIVE = """
SELECT current_setting('archive_mode') <> 'off',
       (extract(epoch FROM clock_timestamp() - last_archived_time) / 3600)::float,
       coalesce(last_failed_time > coalesce(last_archived_time, '-infinity'), false)
FROM pg_stat_archiver"""


def check_pending_migrations() -> Iterator[Finding]:
    """Yield what of the pending migrations the old program does not survive."""
    executor = MigrationExecutor(connection)
    yield from check_ahead(executor.loader)
    pending = [migration for migration, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]
    for migration in pending:
        breaking = set(unfit_operations(migration, lambda name: False))
        for reason in sorted(breaking):
            yield error(
                f"{migration.app_label}.{migration.name} is not only expanding: it {reason.partition(':')[0]}.",
                "Stop the API and all workers of the old version, then migrate, then start the new ones.",
            )
        for reason in sorted(set(unfit_operations(migration, lambda name: True)) - breaking):
            yield warning(
                f"{migration.app_label}.{migration.name} {reason.partition(',')[0]}.",
                "Upgrade from the release just before this one: older ones may still read it.",
            )
    yield note(f"{len(pending)} pending." if pending else "None is pending.")


def check_unfinished_jobs() -> Iterator[Finding]:
    with connection.cursor() as cursor:
        cursor.execute(UNFINISHED)
        rows = cursor.fetchall()
    waiting = running = 0
    for pipeline, stage, chunks_version, is_running, count in rows:
        running, waiting = running + count * is_running, waiting + count * (not is_running)
        if pipeline not in PIPELINES or stage not in {step.stage for step in PIPELINES[pipeline].steps}:
            yield error(
                f"{count} unfinished jobs are at the stage {stage} of {pipeline}, which this version does not have.",
                "Let the old workers finish them, or cancel them in the console.",
            )
        elif not _has_chunker(chunks_version):
            yield error(
                f"{count} unfinished jobs were planned with the chunker {chunks_version}, which this version lacks.",
                "Let the old workers finish them, or keep that chunker in CHUNKERS.",
            )
    yield note(f"{waiting} wait, {running} run: workers finish or release them when they are stopped.")


def check_sessions() -> Iterator[Finding]:
    """Yield whether a second set of API threads finds connections, and whether a migration would wait for a lock."""
    with connection.cursor() as cursor:
        cursor.execute(SESSIONS)
        offered, used, oldest = cursor.fetchone()
    second = int(os.environ.get("WEB_WORKERS", "2")) * int(os.environ.get("WEB_THREADS", "16"))
    if used + second > offered:
        yield warning(
            f"{used} of {offered} connections are in use, and a reload of the API may need {second} more for a while.",
            "Raise max_connections, or restart the hosts one after the other, each with its API stopped first.",
        )
    if oldest > OLD_TRANSACTION_SECONDS:
        yield warning(
            f"A transaction has been open for {oldest:.0f} s: migrations wait for it, and all others for them.",
            "End it (pg_stat_activity names it), or wait for it: a backup by pg_dump is one.",
        )


def check_backups() -> Iterator[Finding]:
    """Yield the age of the newest archived log, which is all of a backup that PostgreSQL knows."""
    with connection.cursor() as cursor:
        cursor.execute(ARCHIVE)
        is_archiving, hours, has_failed = cursor.fetchone()
    remedy = "Look at archive_command and its log, and make a backup before the upgrade."
    if not is_archiving:
        yield note("(PostgreSQL archives no log here, so the age of your backup is not known: make one)")
    elif has_failed:
        yield error("PostgreSQL's last try to archive its log failed: a restore would lose what came after.", remedy)
    elif hours is None or hours > OLD_ARCHIVE_HOURS:
        age = "No log was archived yet" if hours is None else f"The last log was archived {hours:.0f} hours ago"
        yield warning(f"{age}.", remedy)


def _has_chunker(label: str) -> bool:
    """Tell whether the chunker of a planned job is known; a job that is not planned yet has none."""
    if "@" not in label:
        return True
    try:
        chunkers.get_chunker(label.removesuffix(STAGED))
    except ImproperlyConfigured:
        return False
    return True
