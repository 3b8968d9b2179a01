"""Drift: the real catalog against one that the models make, for a moment, in a schema that is rolled back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from uuid import uuid4

from django.apps import apps
from django.db import connection, models, transaction
from django.db.migrations import RunSQL
from django.db.migrations.loader import MigrationLoader

from accessa.doctor.runner import Finding, wrong

REMEDY = "Run: manage.py migrate. If nothing is left to apply, somebody changed it by hand: undo that{}."
COLUMNS = """
SELECT c.relname || '.' || a.attname,
       format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
       || CASE a.attgenerated WHEN '' THEN '' ELSE ' as ' || pg_get_expr(d.adbin, d.adrelid) END
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE c.relnamespace = %(schema)s::regnamespace AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
"""
CONSTRAINTS = """
SELECT c.relname || '.' || k.conname, pg_get_constraintdef(k.oid) || CASE WHEN convalidated THEN '' ELSE ' invalid' END
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
WHERE c.relnamespace = %(schema)s::regnamespace AND k.contype IN ('c', 'u', 'p', 'f', 'x') AND c.relkind IN ('r', 'p')
"""
INDEXES = """
SELECT c.relname || '.' || i.relname, pg_get_indexdef(x.indexrelid) || CASE WHEN indisvalid THEN '' ELSE ' invalid' END
FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
WHERE c.relnamespace = %(schema)s::regnamespace AND c.relkind IN ('r', 'p')
"""
POLICIES = "SELECT tablename || '.' || policyname FROM pg_policies WHERE schemaname = 'public'"
TRIGGERS = """
SELECT c.relname || '.' || t.tgname, t.tgenabled FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE NOT t.tgisinternal AND c.relnamespace = 'public'::regnamespace
"""
POLICY = re.compile(r"(CREATE|DROP)\s+POLICY\s+(?:IF\s+EXISTS\s+)?(\w+)\s+ON\s+(\w+)", re.IGNORECASE)
TRIGGER = re.compile(
    r"(CREATE|DROP)\s+(?:OR\s+REPLACE\s+)?(?:CONSTRAINT\s+)?TRIGGER\s+(?:IF\s+EXISTS\s+)?(\w+)\s[^;]*?\bON\s+(\w+)",
    re.IGNORECASE,
)
MADE = re.compile(r"(?:ADD COLUMN|ADD CONSTRAINT|INDEX CONCURRENTLY|INDEX)\s+(?:IF NOT EXISTS\s+)?(\w+)", re.IGNORECASE)


def drift() -> Iterator[Finding]:
    with transaction.atomic():
        schema = f"doctor_{uuid4().hex[:12]}"
        tables = _model_tables(schema)
        wanted = {name: _catalog(sql, schema, tables) for name, sql in KINDS.items()}
        found = {name: _catalog(sql, "public", tables) for name, sql in KINDS.items()}
        transaction.set_rollback(True)
    for kind in KINDS:
        yield from _differences(kind, wanted[kind], found[kind])
    yield from _beside_the_models()


KINDS = {"column": COLUMNS, "constraint": CONSTRAINTS, "index": INDEXES}


def _model_tables(schema: str) -> set[str]:
    """Make the models' tables, empty, in a schema of the present transaction; return their names."""
    made = [model for model in apps.get_models(include_auto_created=True) if _is_ours(model)]
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '2s'")
        cursor.execute(f"CREATE SCHEMA {schema}")
        cursor.execute(f"SET LOCAL search_path = {schema}, public")
    with connection.schema_editor(atomic=False) as editor:
        for model in made:
            if not model._meta.auto_created:  # made with the model that has it
                editor.create_model(model)
    return {model._meta.db_table for model in made}


def _quirks() -> set[str]:
    """Return the ids of tables between two models: Django makes them by another setting in migrations than later."""
    between = (model for model in apps.get_models(include_auto_created=True) if model._meta.auto_created)
    return {f"{model._meta.db_table}.id" for model in between}


def _is_ours(model: type[models.Model]) -> bool:
    return model._meta.managed and not model._meta.proxy


def _catalog(sql: str, schema: str, tables: set[str]) -> dict[str, str]:
    """Return definitions by ``table.name``, in words that do not name the schema."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('search_path', %s, true)", [f"{schema}, public"])
        cursor.execute(sql, {"schema": schema})
        rows = cursor.fetchall()
    plain = {name: definition.replace(f"{schema}.", "").replace("public.", "") for name, definition in rows}
    return {name: definition for name, definition in plain.items() if name.partition(".")[0] in tables}


def _differences(kind: str, wanted: Mapping[str, str], found: Mapping[str, str]) -> Iterator[Finding]:
    for name in sorted(wanted.keys() - found.keys()):
        yield wrong(f"The {kind} {name} is missing.", REMEDY.format(""))
    for name in sorted((wanted.keys() & found.keys()) - _quirks()):
        if wanted[name] != found[name]:
            says = f"The {kind} {name} is not as it should be."
            yield wrong(says, REMEDY.format(f" (it should be: {wanted[name]})"))
    if kind == "index":  # those of tenants come and go
        return
    known = _made_by_hand()
    for name in sorted(found.keys() - wanted.keys()):
        if name.partition(".")[2] not in known:
            yield wrong(f"There is a {kind} {name} that this program does not know.", REMEDY.format(""))


def _beside_the_models() -> Iterator[Finding]:
    """Compare what migrations make by SQL: policies and triggers, by name."""
    with connection.cursor() as cursor:
        cursor.execute(POLICIES)
        policies = {name for (name,) in cursor.fetchall()}
        cursor.execute(TRIGGERS)
        triggers = dict(cursor.fetchall())
    yield from (
        wrong(f"The policy {name} is missing.", REMEDY.format("")) for name in named_by_migrations(POLICY) - policies
    )
    for name in sorted(policies - named_by_migrations(POLICY)):
        remedy = "A policy only ever shows more. Drop it, unless you know whom it is for."
        yield wrong(f"There is a policy {name} that this program does not know.", remedy)
    for name in sorted(named_by_migrations(TRIGGER)):
        if name not in triggers:
            yield wrong(f"The trigger {name} is missing.", REMEDY.format(""))
        elif triggers[name] not in ("O", "A"):
            table, _, trigger = name.partition(".")
            yield wrong(f"The trigger {name} is switched off.", f"ALTER TABLE {table} ENABLE TRIGGER {trigger};")


def named_by_migrations(pattern: re.Pattern[str]) -> set[str]:
    """Return ``table.name`` of what the migrations' SQL has made and not dropped again."""
    made: set[str] = set()
    for sql in _statements():
        for verb, name, table in pattern.findall(sql):
            (made.add if verb.upper() == "CREATE" else made.discard)(f"{table}.{name}")
    return made


def _made_by_hand() -> set[str]:
    return {name for sql in _statements() for name in MADE.findall(sql)}


@cache
def _statements() -> tuple[str, ...]:
    """Return the SQL of all migrations in their order."""
    loader = MigrationLoader(None)
    found = []
    for key in loader.graph._generate_plan(loader.graph.leaf_nodes(), at_end=True):
        for operation in loader.get_migration(*key).operations:
            if isinstance(operation, RunSQL):
                found.append(operation.sql if isinstance(operation.sql, str) else " ".join(map(str, operation.sql)))
    return tuple(found)
