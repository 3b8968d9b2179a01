"""An old system of a dozen documents, and its confirmed mapping."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from embeddings.embedders import registry
from testing.cluster import database_params
from testing.old_system import OldSystem, fill_old_system, old_database


@pytest.fixture
def make_old_system(db: None, store: None, settings: Any, tmp_path: Path) -> Iterator[Any]:
    settings.EMBEDDER = "testing.embedders.InstantEmbedder"
    settings.LEGACY_DECRYPT = "testing.old_system.decrypt"
    bucket = tmp_path / "files"
    bucket.mkdir()
    settings.LEGACY_BUCKET = str(bucket)
    params = database_params()
    with old_database({**params, "dbname": "postgres"}, f"old_{params['dbname']}") as conninfo:
        settings.LEGACY_DATABASE_URL = conninfo

        def make(**sizes: Any) -> OldSystem:
            return fill_old_system(conninfo, bucket, registry.get_embedder(settings.EMBEDDER), **sizes)

        yield make


@pytest.fixture
def old(make_old_system: Any) -> OldSystem:
    """Make six sound documents of two users, and one of each defect."""
    system: OldSystem = make_old_system(documents=6, users=2)
    return system


@pytest.fixture
def mapping_path(tmp_path: Path) -> Path:
    """Return the path of the mapping file, which ``inspect`` writes."""
    return tmp_path / "legacy.toml"


@pytest.fixture
def confirmed(old: OldSystem, mapping_path: Path) -> Path:
    return confirm(mapping_path)


def confirm(path: Path) -> Path:
    call_command("legacy", "inspect", mapping=path)
    text = path.read_text().replace("confirmed = false", "confirmed = true").replace('backup = ""', 'backup = "b-1"')
    path.write_text(text.replace('adopt_model = ""', 'adopt_model = "instant@1"'))
    return path
