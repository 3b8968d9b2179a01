"""Command that imports statutes from their artifacts."""

from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from jobs.safe_errors import safe_error_name
from statutes import artifact_import
from statutes.artifact_import import BucketSource, FolderSource, Source
from statutes.s3 import client
from statutes.s3.manifests import ManifestRefused


class Command(BaseCommand):
    help = (
        "Imports statutes from their manifests and vectors in the bucket, or in a folder that is a copy of it, so that "
        "they are searched. A statute is imported whole or not at all, and safely again. Exits 1 if one is refused."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("law_id", nargs="+")
        place = parser.add_mutually_exclusive_group()
        place.add_argument("--bucket", help="another than STATUTES_BUCKET")
        place.add_argument("--folder", type=Path, help="a copy of the bucket on this machine, as aws s3 sync makes it")

    def handle(self, *args: Any, **options: Any) -> None:
        source: Source
        try:
            if options["folder"]:
                source = FolderSource(options["folder"])
            else:
                source = BucketSource(options["bucket"] or client.statutes_bucket())
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        refused = 0
        for law_id in options["law_id"]:
            try:
                passages, vectors = artifact_import.import_artifacts(source, law_id)
            except ManifestRefused as error:
                refused += 1
                self.stderr.write(f"{law_id}: {error.code}: {error.detail}")
            except FileNotFoundError:
                refused += 1
                self.stderr.write(f"{law_id}: MANIFEST_MISSING: There is no manifest of this statute.")
            except OSError as error:
                raise CommandError(f"{law_id}: STORE_AWAY: {safe_error_name(error)}") from error
            else:
                self.stdout.write(f"{law_id}: {passages} passages, {vectors} vectors")
        if refused:
            raise CommandError(f"{refused} of {len(options['law_id'])} statutes were refused.")
