"""Inventory of the old system: tables, counts, key patterns, orphans, users unknown here; the guessed mapping."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from django.conf import settings

from accounts.models import User
from legacy.column_mapping import ROLES, Guess, OldMapping, TableMapping, guess_columns, value_form
from legacy.models import LegacyTenant
from legacy.old_bucket import OldBucket
from legacy.old_database import OldCatalog

TABLE_NAMES = {"documents": "documents", "chunks": "document_chunks", "users": "users"}
MOST_PATTERNS = 10

Guesses = dict[str, tuple[str, Mapping[str, Guess]]]


@dataclass(slots=True)
class Inventory:
    counts: dict[str, int] = field(default_factory=dict)
    key_patterns: Counter[str] = field(default_factory=Counter)
    keys_without_row: int = 0
    rows_without_file: int = 0
    unknown_users: int = 0


def guess_mapping(catalog: OldCatalog) -> Guesses:
    """Return table and columns of each section, the likeliest; a section without a table is left out."""
    tables = catalog.tables()
    guesses: Guesses = {}
    for section in ROLES:
        rated = [
            (sum(guess.confidence for guess in columns.values()), table, columns)
            for table, types in tables.items()
            if _may_be(section, table) and (columns := guess_columns(section, types))
        ]
        if rated:
            _, table, columns = max(rated, key=lambda each: each[:2])
            guesses[section] = (table, {role: _with_sample(catalog, table, g) for role, g in columns.items()})
    return guesses


def _may_be(section: str, table: str) -> bool:
    """Tell whether the table's name fits; users may be in any schema, as Supabase's are in ``auth``."""
    schema, _, name = table.partition(".")
    return name == TABLE_NAMES[section] and (section == "users" or schema == settings.LEGACY_SCHEMA)


def _with_sample(catalog: OldCatalog, table: str, guess: Guess) -> Guess:
    sample = catalog.sample(table, guess.column)
    return replace(guess, sample="nothing" if sample is None else value_form(sample))


def as_mapping(guesses: Guesses) -> OldMapping:
    """Return the guess as a mapping that nobody has confirmed, for the inventory."""
    sections = {
        section: TableMapping(table, {role: columns[role].column if role in columns else "" for role in ROLES[section]})
        for section, (table, columns) in guesses.items()
    }
    return OldMapping(confirmed=False, backup="", adopt_model="", sections=sections)


def take_inventory(catalog: OldCatalog, old_bucket: OldBucket, guesses: Guesses) -> Inventory:
    """Count what the old system has. Reads every row of its documents and every key of its bucket."""
    inventory = Inventory(counts={table: catalog.count(table) for table, _ in guesses.values()})
    keys = set(old_bucket.names())
    inventory.key_patterns = Counter(map(value_form, keys))
    documents = as_mapping(guesses).sections.get("documents")
    if documents is None or not (documents["id"] and documents["path"] and documents["user_id"]):
        return inventory
    paths, users = set(), set()
    for old in catalog.documents(documents):
        paths.add(old.path)
        users.add(old.user_id)
        inventory.rows_without_file += old.path not in keys
    inventory.keys_without_row = len(keys - paths)
    inventory.unknown_users = len(users - known_user_ids())
    return inventory


def known_user_ids() -> set[UUID]:
    """Return the users here and those that an import has brought."""
    return {*User.objects.values_list("pk", flat=True), *LegacyTenant.objects.values_list("pk", flat=True)}
