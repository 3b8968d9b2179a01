"""Demo scenario: a made old system, from its inventory through adoption and validation to a rollback."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.test import override_settings
from psycopg.conninfo import make_conninfo

from accessa.demo.scenarios import Demo, DemoFailed, Scenario
from embeddings.embedders import registry
from jobs.choices import ACTIVE
from jobs.models import UploadJob
from legacy.models import ImportRun, LegacyDocument, LegacyTenant

DATABASE = "accessa_demo_old_system"
BACKUP = "demo"


class LegacyScenario(Scenario):
    @contextmanager
    def environment(self) -> Iterator[None]:
        logging.disable(logging.INFO)  # a line for each document
        yield

    def run(self, demo: Demo) -> None:
        for run in _runs_of_demos():  # an earlier demo was interrupted
            call_command("legacy", "rollback", run=run.pk)
        params = connection.settings_dict
        names = {"host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD"}
        login = {name: str(params[key]) for name, key in names.items() if params.get(key)}
        conninfo = make_conninfo(**login, dbname=DATABASE)
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            bucket, mapping = Path(folder, "files"), Path(folder, "legacy.toml")
            bucket.mkdir()
            command = [sys.executable, "-m", "testing.old_system", make_conninfo(**login), DATABASE, str(bucket)]
            with subprocess.Popen(
                command, cwd=settings.BASE_DIR, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            ) as system:
                if not (system.stdout and system.stdout.readline()):
                    raise DemoFailed("The old system could not be made.")
                decrypt = "testing.old_system.decrypt"
                with override_settings(LEGACY_DATABASE_URL=conninfo, LEGACY_BUCKET=str(bucket), LEGACY_DECRYPT=decrypt):
                    _import_and_roll_back(demo, mapping)
                system.communicate()  # the end of its input drops the database


def _import_and_roll_back(demo: Demo, mapping: Path) -> None:
    _call(demo, "inspect", mapping=mapping)
    _confirm(mapping)
    _call(demo, "import", "--users", mapping=mapping)
    _call(demo, "import", "--mode", "adopt", "--dry-run", mapping=mapping)
    _call(demo, "import", "--mode", "adopt", mapping=mapping)
    jobs = LegacyDocument.objects.filter(job_id__isnull=False).values("job_id")
    active = UploadJob.objects.filter(pk__in=jobs, state__in=ACTIVE)
    demo.wait_while(active.exists, "A document was not reingested in time.")
    _call(demo, "import", "--mode", "adopt", mapping=mapping)
    _call(demo, "validate", mapping=mapping)
    tenant = LegacyTenant.objects.order_by("user_id")[0]
    _call(demo, "cutover", str(tenant.pk), "new")
    for run in _runs_of_demos():
        _call(demo, "rollback", run=run.pk)
    if LegacyDocument.objects.filter(run__backup=BACKUP).exists():
        raise DemoFailed("The rollback has left documents.")


def _runs_of_demos() -> list[ImportRun]:
    """Return the demos' runs, the newest first: users go after their documents."""
    runs = ImportRun.objects.filter(backup=BACKUP).exclude(state=ImportRun.State.ROLLED_BACK)
    return list(runs.order_by("-started_at"))


def _confirm(mapping: Path) -> None:
    """Do what a person does with the mapping file."""
    chosen = registry.get_embedder(settings.EMBEDDER)
    text = mapping.read_text(encoding="utf-8").replace("confirmed = false", "confirmed = true")
    text = text.replace('backup = ""', f'backup = "{BACKUP}"')
    text = text.replace('adopt_model = ""', f'adopt_model = "{chosen.model}@{chosen.version}"')
    mapping.write_text(text, encoding="utf-8")


def _call(demo: Demo, *arguments: str, **options: Any) -> None:
    """Show and run the command. That documents are refused is what the old system is made for."""
    demo.console.print(f"\n$ manage.py legacy {' '.join(arguments)}", style="bold", markup=False)
    try:
        call_command("legacy", *arguments, stdout=demo.console.file, **options)
    except CommandError as error:
        if "are refused" not in str(error):
            raise
        demo.console.print(str(error), markup=False)
