"""Demo scenario: four connected systems by recorded responses, synced twice and searched."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from accessa.demo.scenario import Demo, DemoFailed, Scenario, use_settings, use_variables
from accounts.models import User
from integrations import disconnect
from integrations.models import ConnectedSource, IngestionJob, Provider
from integrations.oauth import services
from integrations.sync import sync_jobs

QUESTIONS = (("Which company roasts coffee?", "hubspot"), ("Who writes about the renewal?", "gmail"))


class ConnectorScenario(Scenario):
    def __init__(self, email: str) -> None:
        self.email = email

    @contextmanager
    def environment(self) -> Iterator[None]:
        logging.disable(logging.INFO)
        with use_variables({"INTEGRATIONS_USE_FIXTURES": "true"}), use_settings(INTEGRATIONS_USE_FIXTURES=True):
            yield

    def run(self, demo: Demo) -> None:
        user_id = User.objects.get(email=self.email).pk

        def wait_for_syncs() -> None:
            unfinished = IngestionJob.objects.filter(user_id=user_id, finished_at=None)
            demo.wait_while(unfinished.exists, "A sync did not end in time.")

        for source in ConnectedSource.objects.filter(user_id=user_id):  # of an earlier demo
            disconnect.disconnect_source(source, by=None, reason="The demo starts again.")
        wait_for_syncs()
        sources = [services.connect_fixtures(user_id=user_id, provider=provider) for provider in Provider.values]
        for sync in ("first", "second"):
            if sync == "second":
                for source in sources:
                    sync_jobs.start_sync(source, IngestionJob.Kind.FULL, by="demo")
            wait_for_syncs()
            for source in sources:
                _check_sync(demo, source, sync)
        for question, system in QUESTIONS:
            demo.print_question(f"{question}  (in {system})")
            records = demo.client.search(question, 2, sources=[system])["records"]
            if not records:
                raise DemoFailed(f"Nothing was found in {system}.")
            for record in records:
                demo.print_hit(f"{record['document_type']}: {record['title']}", record["text"])


def _check_sync(demo: Demo, source: ConnectedSource, sync: str) -> None:
    """Print the counts of the source's newest sync. Raises ``DemoFailed`` where they are wrong."""
    job = source.jobs.exclude(kind=IngestionJob.Kind.FORGET).latest("created_at")
    if job.status != IngestionJob.Status.COMPLETED:
        raise DemoFailed(f"A sync ended as {job.status}: {job.error_message}")
    if job.items_failed or not job.items_seen:
        raise DemoFailed(f"A sync of {job.items_seen} records has failed with {job.items_failed} of them.")
    if sync == "second" and job.items_embedded:
        raise DemoFailed(f"{job.items_embedded} records were embedded again though nothing had changed.")
    counts = f"{job.items_seen} records, {job.items_written} new, {job.items_embedded} embedded"
    demo.console.print(f"{Provider(source.provider).label}, {sync} sync: {counts}", highlight=False)
