"""A client generated from the schema, and the customers' command, against a live server."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from accessa_client import cli
from django.conf import settings

from testing import api_server, cluster
from testing.personas import Person, plan_pdf

pytestmark = pytest.mark.slow

BIN = Path(sys.executable).parent
STORY = """
import hashlib, io, sys, time
from accessa_client import AuthenticatedClient
from accessa_client.api.files import delete_document, document, put_bytes, upload
from accessa_client.api.jobs import jobs
from accessa_client.api.search import search
from accessa_client.models import (
    DocumentResponse, NotFound, PaginatedJobDetailResponseList, PutBytesBucket, SearchResponse, SearchRequest,
    UploadBadRequest, UploadRequest, UploadResponse,
)
from accessa_client.types import File
from urllib.parse import parse_qs, urlsplit

url, token, path = sys.argv[1:]
content = open(path, "rb").read()
client = AuthenticatedClient(base_url=url, token=token)
file = UploadRequest("plan.pdf", len(content), "application/pdf", hashlib.sha256(content).hexdigest())

declared = upload.sync(client=client, body=file)
assert isinstance(declared, UploadResponse), declared
signed = urlsplit(declared.signed_url)
_, _, bucket, name = signed.path.split("/", 3)
put = put_bytes.sync_detailed(
    PutBytesBucket(bucket), name, client=client, token=parse_qs(signed.query)["token"][0],
    body=File(io.BytesIO(content)),
)
assert put.status_code == 200, put

until = time.monotonic() + 60
while True:
    seen = jobs.sync(client=client, active=False)
    assert isinstance(seen, PaginatedJobDetailResponseList), seen
    if seen.results[0].state == "done":
        break
    assert seen.results[0].state != "deadletter" and time.monotonic() < until, seen
    time.sleep(0.3)

found = search.sync(client=client, body=SearchRequest("What does the plan pay of therapy?", k=3))
assert isinstance(found, SearchResponse) and found.passages[0].document_id == declared.document_id, found

refused = upload.sync(client=client, body=UploadRequest("plan.pdf", 5, "application/pdf", "no"))
assert isinstance(refused, UploadBadRequest) and refused.code == "INVALID_SHA256", refused
assert isinstance(document.sync(declared.document_id, client=client), DocumentResponse)
assert delete_document.sync_detailed(declared.document_id, client=client).status_code == 204
assert isinstance(document.sync(declared.document_id, client=client), NotFound)
print("told")
"""


def run(*command: object, where: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=where, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the client's package, generated as docs/api.md says."""
    folder = tmp_path_factory.mktemp("generated")
    run(sys.executable, "manage.py", "spectacular", "--file", folder / "schema.yml", where=settings.BASE_DIR)
    config = Path(settings.BASE_DIR) / "docs" / "client.yml"
    options = ("--path", "schema.yml", "--config", config, "--meta", "none", "--output-path", "accessa_client")
    run(BIN / "openapi-python-client", "generate", *options, "--fail-on-warning", where=folder)
    (folder / "story.py").write_text(textwrap.dedent(STORY))
    return folder


@pytest.fixture(scope="module")
def url(django_db_setup: None) -> Iterator[str]:
    """Return where the API listens; workers run beside it."""
    workers = cluster.running_cluster(JOBS_PIPELINES="accessa.pipelines.PIPELINES", JOBS_PERIODIC_SECONDS=3600)
    with api_server.running_api_server() as web, workers:
        yield web.url


def test_the_generated_client_and_its_user_are_typed(generated: Path) -> None:
    out = run(BIN / "mypy", "--strict", "--cache-dir", generated / "cache", "story.py", where=generated)

    assert "Success" in out


@pytest.mark.django_db(transaction=True)
def test_the_generated_client_drives_the_story(generated: Path, url: str, ana: Person) -> None:
    (generated / "plan.pdf").write_bytes(plan_pdf("therapy"))

    out = run(sys.executable, "story.py", url, ana.token, "plan.pdf", where=generated)

    assert out == "told\n"


@pytest.mark.django_db(transaction=True)
def test_the_command_carries_a_file_from_upload_to_answer(
    url: str, ana: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.pdf").write_bytes(plan_pdf("therapy"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACCESSA_URL", url)
    monkeypatch.setenv("ACCESSA_TOKEN", ana.token)

    def accessa(*arguments: str) -> list[dict[str, Any]]:
        assert cli.main([*arguments, "--json"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    uploaded, ended = accessa("upload", "plan.pdf", "--watch")
    (answered,) = accessa("answer", "What does the plan pay for therapy?")
    (found,) = accessa("search", "therapy", "-k", "1")
    accessa("documents", "delete", uploaded["document_id"])
    listed = subprocess.run(
        [sys.executable, "-m", "accessa_client", "documents", "list", "--json"],
        env=os.environ | {"PYTHONPATH": str(settings.BASE_DIR / "clients/python")}, capture_output=True, timeout=120,
    )  # fmt: skip

    assert (ended["document_id"], ended["state"]) == (uploaded["document_id"], "done")
    assert "percent of therapy" in answered["text"]
    assert len(found["passages"]) == 1
    assert (listed.returncode, listed.stdout) == (0, b"")
