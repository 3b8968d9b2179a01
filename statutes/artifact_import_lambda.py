"""AWS Lambda function for STATUTES_LAMBDA: imports a published statute into the database of its own settings."""

from typing import Any

import django
from django.apps import apps

if not apps.ready:  # AWS imports this module first
    django.setup()

from statutes import artifact_import
from statutes.artifact_import import BucketSource
from statutes.error_codes import OUTDATED
from statutes.s3.manifests import ManifestRefused


def lambda_handler(event: dict[str, Any], context: object) -> dict[str, Any]:
    """Import the statute that ``stages.invoke_lambda`` names, as ``manage.py ingest_vectors`` does.

    Whatever it raises makes AWS invoke it again; a manifest that a newer version has replaced needs no import.
    """
    law_id: str = event["law_id"]
    try:
        passages, vectors = artifact_import.import_artifacts(BucketSource(event["bucket"]), law_id)
    except ManifestRefused as refused:
        if refused.code != OUTDATED:
            raise
        return {"law_id": law_id, "code": refused.code}
    return {"law_id": law_id, "passages": passages, "vectors": vectors}
