"""No module but jobs.lifecycle writes a job's stage or state: checked in the source of the whole product."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

APPS = ("accessa", "accounts", "jobs", "vendors", "outbox", "documents", "embeddings", "webhooks",
        "statutes", "search", "legacy", "metrics", "console", "portal")  # fmt: skip
INNOCENT = {
    # `lifecycle` itself composes its UPDATE of the table, so nothing is found there either.
    "jobs/services.py": {"create"},  # a job is born with its first stage
    "documents/cli_progress.py": {"update"},  # of a progress bar
    # Of a parse request, a purchase and a breaker, which have a state of their own; a purchase names its stage.
    "documents/vendor_parses.py": {"update", "state"},
    "vendors/ledger.py": {"create", "update"},
    "vendors/circuit_breaker.py": {"state"},
    "vendors/rate_limit.py": {"state"},
    # Of a consumer of the queue.
    "statutes/consumer/status_reporter.py": {"state"},
    # Of an import run.
    "legacy/rollback.py": {"update"},
    "legacy/services.py": {"update"},
    # Of a message of the outbox.
    "embeddings/search_engine/delivery.py": {"update"},
    # Of a campaign and of a tenant's part of it.
    "embeddings/reindexing/services.py": {"update"},
    "embeddings/reindexing/scheduler.py": {"update"},
    "embeddings/reindexing/periodic.py": {"update"},
}
COLUMNS = {"stage", "state"}
# `UPDATE upload_jobs … SET … state =` in any string that a module holds, but for its WHERE.
SQL = re.compile(r"UPDATE\s+upload_jobs\b.*?\bSET\b(.*?)(\bWHERE\b|\bFROM\b|$)", re.IGNORECASE | re.DOTALL)
WRITERS = {"update", "create", "bulk_create", "bulk_update", "update_or_create", "get_or_create", "aupdate", "acreate"}


def modules() -> list[Path]:
    paths = (path for app in APPS for path in (settings.BASE_DIR / app).rglob("*.py"))
    return sorted(path for path in paths if not {"tests", "migrations"} & set(path.parts))


def state_writes(source: str) -> Iterator[str]:
    """Yield what writes one of the columns: a call of the ORM, an assignment to an attribute, an UPDATE in SQL."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(attr=name)) if name in WRITERS:
                if COLUMNS & {keyword.arg for keyword in node.keywords}:
                    yield name
            case ast.Assign(targets=targets):
                yield from (t.attr for t in targets if isinstance(t, ast.Attribute) and t.attr in COLUMNS)
            case ast.AugAssign(target=ast.Attribute(attr=name)) if name in COLUMNS:
                yield name
            case ast.Constant(value=str(text)):
                yield from _written_by(text)
            case ast.JoinedStr(values=parts):
                yield from _written_by("".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in parts))


def _written_by(text: str) -> Iterator[str]:
    for sets in SQL.finditer(text):
        yield from (f"UPDATE {name}" for name in re.findall(r"\b(stage|state)\s*=", sets[1]))


def test_no_other_module_writes_stage_or_state() -> None:
    named = {str(path.relative_to(settings.BASE_DIR)): path for path in modules()}
    offences_by_module = {
        name: set(state_writes(path.read_text())) - INNOCENT.get(name, set()) for name, path in named.items()
    }

    assert {name for name, writes in offences_by_module.items() if writes} == set()


@pytest.mark.parametrize(
    "source",
    [
        "UploadJob.objects.filter(pk=1).update(state='done')",
        "job.stage = 'parsed'",
        "cursor.execute('UPDATE upload_jobs SET retry_count = 0, state = %s WHERE x')",
        "cursor.execute(f\"UPDATE upload_jobs u SET {sets}, stage = 'x' WHERE y\")",
    ],
)
def test_a_second_writer_would_be_found(source: str) -> None:
    assert list(state_writes(source))
