"""Check of the connectors: functions of the ingestion queue and their rights, overdue pages, the token vault."""

from collections.abc import Iterator

from django.conf import settings
from django.db import connection

from accessa.doctor.findings import Finding, error, note, warning
from integrations.models import ConnectedSource
from integrations.oauth import token_vault
from jobs.outcomes import StageFailure
from metrics import gauges

FUNCTIONS = (
    "public.ingestion_enqueue(text, jsonb, integer)", "public.ingestion_read(text, integer, integer)",
    "public.ingestion_delete(text, bigint)", "public.ingestion_archive(text, bigint)",
)  # fmt: skip
RIGHTS = """
SELECT name, to_regprocedure(name) IS NOT NULL,
       coalesce(has_function_privilege(to_regprocedure(name), 'EXECUTE'), false),
       coalesce(has_function_privilege(%s, to_regprocedure(name), 'EXECUTE'), false)
FROM unnest(%s::text[]) name"""
COUNT_BROKEN = "SELECT count(*) FROM (SELECT FROM connected_sources WHERE status = 'error' LIMIT 1000) broken"
OVERDUE_SECONDS = 600.0
SAMPLED_TOKENS = 3


def check_connectors() -> Iterator[Finding]:
    if settings.INTEGRATIONS_USE_FIXTURES:
        yield note("(recorded responses)")
    with connection.cursor() as cursor:
        cursor.execute(RIGHTS, [settings.TENANT_ROLE, list(FUNCTIONS)])
        rows = cursor.fetchall()
        cursor.execute(COUNT_BROKEN)
        (broken,) = cursor.fetchone()
    for name, exists, is_callable, tenants_may_call in rows:
        if not exists:
            yield error(f"The queue's function {name} is missing.", "Run: manage.py migrate")
        elif not is_callable:
            yield error(f"The application may not call {name}.", f"GRANT EXECUTE ON FUNCTION {name} TO accessa_app;")
        elif tenants_may_call:
            yield error(f"Tenants may call {name}.", f"REVOKE EXECUTE ON FUNCTION {name} FROM PUBLIC;")
    if any(row[1:] != (True, True, False) for row in rows):
        return
    queue = gauges.connector_queue()
    if queue.due > OVERDUE_SECONDS:
        message = f"{queue.visible} pages of syncs are due, one of them for {queue.due / 60:.0f} minutes."
        yield warning(message, "Look at the workers: start some, or raise WORKERS or INGESTION_WORKERS.")
    sources = ConnectedSource.objects.filter(status=ConnectedSource.Status.ACTIVE).order_by("-created_at", "id")
    try:
        for source in sources[:SAMPLED_TOKENS]:
            if source.refresh_token_vault_id is not None:
                token_vault.read_token(source.refresh_token_vault_id, source)
    except (StageFailure, token_vault.UnknownVaultKey) as failure:
        yield error(
            f"A tenant's token cannot be read ({failure.code}).",
            "Put the key that encrypted it into INTEGRATIONS_VAULT_KEYS again, behind the newest.",
        )
    if broken:
        waits = "1 source waits for its tenant" if broken == 1 else f"{broken} sources wait for their tenants"
        yield note(f"({waits} to reconnect)")
