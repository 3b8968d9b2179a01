"""Can connected systems be fetched: the queue, who may use it, and the vault of tokens."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.db import connection

from accessa.doctor.runner import Finding, doubtful, note, wrong
from integrations.models import ConnectedSource
from integrations.oauth import token_vault
from jobs.outcomes import StageFailure
from metrics import connector_gauges

WRAPPERS = (
    "public.ingestion_enqueue(text, jsonb, integer)", "public.ingestion_read(text, integer, integer)",
    "public.ingestion_delete(text, bigint)", "public.ingestion_archive(text, bigint)",
)  # fmt: skip
RIGHTS = """
SELECT name, to_regprocedure(name) IS NOT NULL,
       coalesce(has_function_privilege(to_regprocedure(name), 'EXECUTE'), false),
       coalesce(has_function_privilege(%s, to_regprocedure(name), 'EXECUTE'), false)
FROM unnest(%s::text[]) name"""
IN_ERROR = "SELECT count(*) FROM (SELECT FROM connected_sources WHERE status = 'error' LIMIT 1000) broken"
LONG_SECONDS = 600.0
TRIED = 3  # tokens


def working() -> Iterator[Finding]:
    if settings.INTEGRATIONS_USE_FIXTURES:
        yield note("(recorded answers)")
    missing = False
    for finding in _wrappers():
        missing = True
        yield finding
    if missing:
        return
    yield from _queue()
    yield from _vault()
    with connection.cursor() as cursor:
        cursor.execute(IN_ERROR)
        (broken,) = cursor.fetchone()
    if broken:
        waits = "1 source waits for its tenant" if broken == 1 else f"{broken} sources wait for their tenants"
        yield note(f"({waits} to reconnect)")


def _wrappers() -> Iterator[Finding]:
    with connection.cursor() as cursor:
        cursor.execute(RIGHTS, [settings.TENANT_ROLE, list(WRAPPERS)])
        found = cursor.fetchall()
    for name, is_there, is_ours, is_tenants in found:
        if not is_there:
            yield wrong(f"The queue's function {name} is missing.", "Run: manage.py migrate")
        elif not is_ours:
            yield wrong(f"We may not call {name}.", f"GRANT EXECUTE ON FUNCTION {name} TO accessa_app;")
        elif is_tenants:
            yield wrong(f"Tenants may call {name}.", f"REVOKE EXECUTE ON FUNCTION {name} FROM PUBLIC;")


def _queue() -> Iterator[Finding]:
    queue = connector_gauges.connector_queue()
    if queue.due > LONG_SECONDS:
        says = f"{queue.visible} pages of syncs are due, one of them for {queue.due / 60:.0f} minutes."
        yield doubtful(says, "Look at the workers: start some, or raise WORKERS or INGESTION_WORKERS.")


def _vault() -> Iterator[Finding]:
    active = ConnectedSource.objects.filter(status=ConnectedSource.Status.ACTIVE).order_by("-created_at", "id")
    kept = [(source.refresh_token_vault_id, source) for source in active[:TRIED]]
    try:
        for vault_id, source in kept:
            if vault_id is not None:
                token_vault.read_token(vault_id, source)
    except (StageFailure, token_vault.UnknownVaultKey) as failure:
        yield wrong(
            f"A tenant's token cannot be read ({failure.code}).",
            "Put the key that it was written with into INTEGRATIONS_VAULT_KEYS again, behind the newest.",
        )
