"""The connectors in a minute: four systems by their recorded answers, synced twice, and searched."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from uuid import UUID

from django.conf import settings
from rich.console import Console
from rich.table import Table

from accessa.demo.client import ApiClient
from integrations import disconnect
from integrations.models import ConnectedSource, IngestionJob, Provider
from integrations.oauth import services
from integrations.sync import sync_jobs

QUESTIONS = (("Which company roasts coffee?", "hubspot"), ("Who writes about the renewal?", "gmail"))
COLUMNS = ("system", "sync", "seen", "new", "same", "embedded", "failed", "s")


class NotConnected(Exception):
    """A sync, or what it should have brought, is not there. Says which."""


def use_recorded() -> None:
    """Have this process, and those that it starts, read recorded answers instead of asking providers."""
    logging.disable(logging.INFO)  # what is shown here is the demo
    os.environ["INTEGRATIONS_USE_FIXTURES"] = "true"
    settings.INTEGRATIONS_USE_FIXTURES = True


def show(console: Console, visitor: ApiClient, user_id: UUID, look: Callable[[], object], *, seconds: float) -> None:
    """Connect all four, sync them twice, and ask. Raises ``NotConnected`` where that does not go as promised.

    ``look`` is called again and again meanwhile.
    """
    for source in ConnectedSource.objects.filter(user_id=user_id):  # what an earlier demo has left
        disconnect.disconnect_source(source, by=None, reason="The demo begins anew.")
    _wait(user_id, look, seconds)
    sources = [services.connect_fixtures(user_id=user_id, provider=provider) for provider in Provider.values]
    table = Table(*COLUMNS, title="Connected systems, by recorded answers")
    for again in (False, True):
        if again:
            for source in sources:
                sync_jobs.start_sync(source, IngestionJob.Kind.FULL, by="demo")
        _wait(user_id, look, seconds)
        for source in sources:
            _check(_row(table, source, "second" if again else "first"), again=again)
    console.print(table)
    for question, system in QUESTIONS:
        _ask(console, visitor, question, system)


def _wait(user_id: UUID, look: Callable[[], object], seconds: float) -> None:
    until = time.monotonic() + seconds
    while IngestionJob.objects.filter(user_id=user_id, finished_at=None).exists():
        look()
        if time.monotonic() > until:
            raise NotConnected(f"A sync did not end within {seconds:.0f} s.")
        time.sleep(0.1)


def _row(table: Table, source: ConnectedSource, which: str) -> IngestionJob:
    job = source.jobs.exclude(kind=IngestionJob.Kind.FORGET).latest("created_at")
    counts = (job.items_seen, job.items_written, job.items_unchanged, job.items_embedded, job.items_failed)
    took = (job.finished_at - job.started_at).total_seconds() if job.finished_at and job.started_at else 0.0
    table.add_row(Provider(source.provider).label, which, *map(str, counts), f"{took:.2f}")
    return job


def _check(job: IngestionJob, *, again: bool) -> None:
    if job.status != IngestionJob.Status.COMPLETED:
        raise NotConnected(f"A sync ended as {job.status}: {job.error_message}")
    if job.items_failed or not job.items_seen:
        raise NotConnected(f"A sync of {job.items_seen} records has failed with {job.items_failed} of them.")
    if again and job.items_embedded:
        raise NotConnected(f"{job.items_embedded} records were embedded again though nothing had changed.")


def _ask(console: Console, visitor: ApiClient, question: str, system: str) -> None:
    console.print(f"\n? {question}  (in {system})", style="bold", markup=False)
    found = visitor.records(question, [system], 2)
    if not found:
        raise NotConnected(f"Nothing was found in {system}.")
    for record in found:
        console.print(f"  {record['document_type']}: {record['title']}", style="cyan", markup=False)
        console.print(f"    {' '.join(record['text'].split())[:240]} …", markup=False, highlight=False)
