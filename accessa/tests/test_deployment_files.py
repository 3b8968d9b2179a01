"""Image, compose file, Kubernetes manifests, units and licences: what they name is there."""

import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import get_commands

from accessa.env import READ_ELSEWHERE, Env

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
# FORWARDED_ALLOW_IPS is gunicorn's.
OTHERS = READ_ELSEWHERE | {"FORWARDED_ALLOW_IPS", "ACCESSA_VAR"}
COPYLEFT = re.compile(r"GPL|Affero|SSPL|Commons Clause", re.IGNORECASE)
LINKED_ONLY = {"psycopg", "psycopg-binary", "psycopg-pool"}  # LGPL: used unchanged, as a library


def documents(path: Path) -> Iterator[Any]:
    return yaml.safe_load_all(path.read_text())


def compose() -> Any:
    return yaml.safe_load((ROOT / "compose.yaml").read_text())


def ours() -> dict[str, Any]:
    return {name: service for name, service in compose()["services"].items() if service.get("image") == "accessa"}


def containers() -> Iterator[Any]:
    for path in MANIFESTS:
        for manifest in documents(path):
            yield from manifest.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])


def env_file(path: Path) -> set[str]:
    return set(re.findall(r"^(\w+)=", path.read_text(), re.MULTILINE))


def test_the_processes_of_all_deployments_are_commands_of_this_project() -> None:
    commands = [service["command"] for service in ours().values() if "command" in service]
    commands += [container["command"] for container in containers() if "command" in container]
    commands += [re.search(r"^ExecStart=\S+/bin/(.*)$", unit.read_text(), re.MULTILINE)[1].split() for unit in UNITS]  # type: ignore[index]
    render = yaml.safe_load((ROOT / "deploy" / "render.yaml").read_text())
    commands += [service["dockerCommand"].split() for service in render["services"] if "dockerCommand" in service]
    managed = [command for command in commands if command[0] == "python"]

    assert {command[1] for command in managed} == {"manage.py"}
    assert {command[2] for command in managed} == {"qcluster", "serve_mcp", "consume_sqs", "migrate"}
    assert {command[2] for command in managed} <= set(get_commands())
    assert {command[0] for command in commands} == {"python", "gunicorn"}


def test_every_variable_that_a_deployment_sets_is_read() -> None:
    names = set().union(*(service["environment"] for service in ours().values()))
    names |= env_file(ROOT / "deploy" / "compose" / "accessa.env.example")
    names |= set(next(documents(ROOT / "deploy" / "kubernetes" / "settings.yaml"))["data"])
    render = yaml.safe_load((ROOT / "deploy" / "render.yaml").read_text())
    names |= {variable["key"] for group in render["envVarGroups"] for variable in group["envVars"]}

    assert names - Env.requested - OTHERS == set()


def test_what_compose_asks_of_its_secrets_is_in_their_example() -> None:
    asked = set(re.findall(r"\$\{(\w+):\?\}", (ROOT / "compose.yaml").read_text()))

    assert asked == env_file(ROOT / "deploy" / "compose" / "secrets.env.example")


def test_files_that_compose_mounts_exist() -> None:
    mounts = [mount for service in compose()["services"].values() for mount in service.get("volumes", [])]
    files = [mount.partition(":")[0] for mount in mounts if mount.startswith("./")]

    assert files
    assert all((ROOT / name).is_file() for name in files)


def test_no_process_may_write_to_its_image_or_gain_rights() -> None:
    assert all(service["read_only"] and service["cap_drop"] == ["ALL"] for service in ours().values())
    assert all(container["securityContext"]["readOnlyRootFilesystem"] for container in containers())
    assert all("ProtectSystem=strict" in unit.read_text() for unit in UNITS)


def test_pods_stop_within_what_a_cluster_promises(settings: Any) -> None:
    graces = [service["stop_grace_period"] for service in ours().values()]

    assert set(graces) == {"35s"}
    assert settings.JOBS_STOP_SECONDS < 35
    assert all("TimeoutStopSec=35" in unit.read_text() for unit in UNITS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schema", "path"),
    [("vendor.compose-spec", "compose.yaml"), ("vendor.github-workflows", ".github/workflows/check.yml")],
)
def test_files_fit_their_published_schemas(schema: str, path: str) -> None:
    checked = subprocess.run(
        [ROOT / ".venv/bin/check-jsonschema", "--builtin-schema", schema, ROOT / path],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert checked.returncode == 0, checked.stdout


def runtime_packages() -> list[str]:
    locked = (ROOT / "requirements" / "base.txt").read_text()
    return re.findall(r"^([\w.-]+)(?:\[[\w, ]+\])?==", locked, re.MULTILINE)


def licence(package: str) -> str:
    """Return what the package says of its licence, "" if it is for another platform only."""
    try:
        about = metadata(package)
    except PackageNotFoundError:
        return ""
    classifiers = [line for line in about.get_all("Classifier") or [] if line.startswith("License ::")]
    terms = [line[:200] for name in ("License-Expression", "License") for line in about.get_all(name) or []]
    return " ".join([*terms, *classifiers])


def test_no_runtime_package_has_a_licence_that_binds_what_uses_it() -> None:
    licences = {package: licence(package) for package in runtime_packages()}

    assert len(licences) > 50
    assert {package for package, text in licences.items() if COPYLEFT.search(text)} == LINKED_ONLY
    assert "MIT" in licences["sqlparse"] + licences["markdown-it-py"]


SECRETS = re.compile(
    r"-----BEGIN (?:RSA |EC |OPENSSH )?PRIVATE KEY-----\n[A-Za-z0-9+/]{40}|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_\w{36}\b"
    r"|\bsk-(?:proj-)?\w{40}|\bxox[bp]-\d+-\w+|\bllx-\w{40}"
)


def test_no_file_of_the_repository_holds_a_real_looking_key() -> None:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    files = [ROOT / name.decode() for name in names.split(b"\0") if name]
    found = [path.name for path in files if path.is_file() and SECRETS.search(path.read_text(errors="replace"))]

    assert len(files) > 500
    assert found == []
