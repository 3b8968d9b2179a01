"""Backup and restore rehearsal: dump, restore into a second server, run the checks, search."""

import os
import shutil
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings

from accessa.embedded_postgres.installation import binaries
from accessa.embedded_postgres.server import EmbeddedServer
from benchmarks import stored_pdfs, subprocesses
from benchmarks.report import Result, print_progress
from testing.cluster import database_url
from testing.personas import Person

SUMMARY = __doc__
GOAL = 600.0  # seconds until the restored copy answers
QUESTION = "How many therapy visits are covered?"
# What is no row: policies, their force, roles' rights, triggers, indexes. The same before and after, or it is no copy.
STRUCTURE = """
    SELECT 'policy', tablename || policyname || coalesce(qual, '') FROM pg_policies
    UNION ALL SELECT 'rls', relname || relrowsecurity || relforcerowsecurity FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
    UNION ALL SELECT 'right', table_name || grantee || privilege_type FROM information_schema.role_table_grants
        WHERE grantee LIKE 'accessa%'
    UNION ALL SELECT 'trigger', tgrelid::regclass || tgname FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT 'index', indexdef FROM pg_indexes WHERE schemaname = 'public'
    UNION ALL SELECT 'constraint', conrelid::regclass || conname FROM pg_constraint WHERE conrelid <> 0
        AND connamespace = 'public'::regnamespace"""
TABLES = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY 1"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--tenants", type=int, default=10, help="each with the three samples")


def measure(options: Namespace) -> Result:
    root = Path(settings.VAR).parent
    tenants = 1 if options.quick else options.tenants
    people = _seed(tenants)
    source, target = EmbeddedServer(), EmbeddedServer(root / "restored" / "postgres")
    before = _snapshot(source)
    backup, seconds = root / "backup", {}
    seconds["backup"] = _time(_back_up, source, backup)
    target.ensure_running()  # a server that is new: roles and extensions are made as docs/operations says
    try:
        seconds["restore"] = _time(_restore, backup, target, root / "restored" / "storage")
        after = _snapshot(target)
        commands = _commands(target, root / "restored", str(people[0].id))
    finally:
        target.stop("immediate")
    same = before == after
    whole = seconds["backup"] + seconds["restore"]
    return Result(
        name="restore",
        value=whole,
        unit="s to back up and restore",
        against="the goal",
        ratio=whole / GOAL,
        goal=GOAL,
        ok=whole <= GOAL and same and all(commands.values()),
        details={
            "seconds": seconds,
            "same": same,
            "commands": commands,
            "passages": before["rows"]["document_chunks"],
            "dump_mb": (backup / "accessa.dump").stat().st_size / 1e6,
        },
    )


def _seed(tenants: int) -> list[Person]:
    people = [Person(f"tenant{number}") for number in range(tenants)]
    for person in people:
        for sample in stored_pdfs.pdf_paths(stored_pdfs.SAMPLES):
            person.ingest(sample.read_bytes(), filename=sample.name)
    print_progress(f"{tenants} tenants with their documents")
    return people


def _snapshot(server: EmbeddedServer) -> dict[str, Any]:
    """Return the database's content: row counts of each table, and its triggers, policies and constraints."""
    with psycopg.connect(**server.params(), autocommit=True) as connection:  # type: ignore[arg-type]
        tables = [name for (name,) in connection.execute(TABLES)]
        rows = {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone() for name in tables}
        structure = sorted(connection.execute(STRUCTURE).fetchall())
    return {"rows": {name: row[0] for name, row in rows.items() if row}, "structure": structure}


def _time(act: Any, *args: Any) -> float:
    began = time.monotonic()
    act(*args)
    return time.monotonic() - began


def _program(name: str, server: EmbeddedServer, *args: object) -> None:
    where = server.params()
    options = ("-h", where["host"], "-p", where["port"], "-U", where["user"])
    subprocess.run([str(binaries() / name), *options, *map(str, args)], check=True)


def _back_up(server: EmbeddedServer, folder: Path) -> None:
    """Back up the database first, then the files: a file stored between the two is only an unreferenced file."""
    folder.mkdir()
    _program("pg_dump", server, "-Fc", "--exclude-extension=*", "-f", folder / "accessa.dump", "accessa")
    shutil.copytree(settings.STORAGE_ROOT, folder / "storage")


def _restore(folder: Path, server: EmbeddedServer, storage: Path) -> None:
    _program("pg_restore", server, "--exit-on-error", "--no-owner", "-j", 2, "-d", "accessa", folder / "accessa.dump")
    shutil.copytree(folder / "storage", storage)


def _commands(server: EmbeddedServer, root: Path, tenant: str) -> dict[str, bool]:
    """Run what docs/operations/backup.md says against the copy, in processes that know nothing of the original."""
    url = database_url(server.params())
    environment = os.environ | {"DATABASE_URL": url, "ACCESSA_VAR": str(root), "STORAGE_ROOT": str(root / "storage")}
    commands = {
        "check": ("check", "--database", "default"),
        "migrate": ("migrate", "--check"),
        "audit": ("audit_jobs", "--deep"),
        "doctor": (
            "doctor",
            *(word for name in ("database", "migrations", "tenants") for word in ("--only", name)),
        ),
        "search": ("search", QUESTION, "--user", tenant, "-k", "1"),
    }
    return {name: _run_command(words, environment) for name, words in commands.items()}


def _run_command(words: tuple[str, ...], environment: dict[str, str]) -> bool:
    command = [sys.executable, "manage.py", *words]
    run = subprocess.run(command, cwd=subprocesses.ROOT, env=environment, capture_output=True, text=True, timeout=300)
    print_progress(*words, "->", run.returncode, run.stdout[-300:] if run.returncode else "")
    return run.returncode == 0 and "Nothing found" not in run.stdout
