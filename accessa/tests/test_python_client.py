"""The customers' command against a live server: upload, watch, search, answer, delete."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from testing import api_server, cluster
from testing.personas import Person, plan_pdf

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def test_the_command_carries_a_file_from_upload_to_answer(ana: Person, tmp_path: Path) -> None:
    (tmp_path / "plan.pdf").write_bytes(plan_pdf("therapy"))

    def accessa(*arguments: str) -> list[dict[str, Any]]:
        command = [sys.executable, "-m", "accessa_client", *arguments, "--json"]
        environment = os.environ | {"PYTHONPATH": str(settings.BASE_DIR / "clients/python")}
        environment |= {"ACCESSA_URL": web.url, "ACCESSA_TOKEN": ana.token}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    with api_server.running_api_server() as web, cluster.running_cluster(JOBS_PIPELINES="accessa.pipelines.PIPELINES"):
        uploaded, ended = accessa("upload", "plan.pdf", "--watch")
        (answered,) = accessa("answer", "What does the plan pay for therapy?")
        (found,) = accessa("search", "therapy", "-k", "1")
        accessa("documents", "delete", uploaded["document_id"])
        documents = accessa("documents", "list")

    assert (ended["document_id"], ended["state"]) == (uploaded["document_id"], "done")
    assert "percent of therapy" in answered["text"]
    assert len(found["passages"]) == 1
    assert documents == []
