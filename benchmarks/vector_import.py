"""Speed of `manage.py ingest_vectors`: passages per second from published artifacts into an empty table."""

import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from django.db import connection

from benchmarks.moto_server import BUCKET, Aws
from statutes import artifact_import
from statutes.artifact_import import FolderSource
from statutes.s3 import keys

FORGET = """
    DELETE FROM document_terms WHERE document_id IN (SELECT document_id FROM laws WHERE law_id = ANY(%(laws)s));
    DELETE FROM document_chunks WHERE document_id IN (SELECT document_id FROM laws WHERE law_id = ANY(%(laws)s))"""


def measure(here: Aws, law_ids: Sequence[str]) -> dict[str, Any]:
    """Read laws from a copy of the bucket on this machine's disk, first as new, then once more as they are."""
    with TemporaryDirectory() as folder:
        for law_id in law_ids:
            _copy(here, law_id, Path(folder))
        with connection.cursor() as cursor:
            cursor.execute(FORGET, {"laws": list(law_ids)})
        first, again = (_passages_per_second(Path(folder), law_ids) for _ in range(2))
    return {"ingested_per_second": first, "ingested_again_per_second": again}


def _passages_per_second(folder: Path, law_ids: Sequence[str]) -> float:
    began = time.perf_counter()
    passages = sum(artifact_import.import_artifacts(FolderSource(folder), law_id)[1] for law_id in law_ids)
    return passages / (time.perf_counter() - began)


def _copy(here: Aws, law_id: str, folder: Path) -> None:
    prefixes = (keys.law(law_id), keys.manifest(law_id), keys.vectors(law_id), keys.chunks(law_id))
    for prefix in prefixes:
        for page in here.s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix):
            for entry in page["Contents"]:
                path = folder / entry["Key"]
                path.parent.mkdir(parents=True, exist_ok=True)
                here.s3.download_file(BUCKET, entry["Key"], str(path))
