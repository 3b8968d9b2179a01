"""Mapping of the old system's columns to roles: guessed from the catalog, written as TOML, read when confirmed."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from accounts.errors import ApiError
from legacy.error_codes import LEGACY_MAPPING_INVALID, LEGACY_NOT_CONFIRMED

MOST_SAMPLED, MOST_SHOWN = 400, 60  # characters of a value, and of its form
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?")
MODEL = re.compile(r"[^@\s]+@[^@\s]+")
IDS, TEXTS, NUMBERS, TIMES = {"uuid", "text", "varchar"}, {"text", "varchar"}, {"int2", "int4", "int8"}, {"timestamptz"}


class Role(NamedTuple):
    """What a column is for: the names to look for, the likeliest first, and the types that fit."""

    names: tuple[str, ...]
    types: set[str]
    required: bool = True


# fmt: off
ROLES: dict[str, dict[str, Role]] = {
    "documents": {
        "id":        Role(("id", "document_id", "doc_id", "uuid"), IDS),
        "user_id":   Role(("user_id", "owner_id", "uploaded_by", "created_by"), IDS),
        "filename":  Role(("filename", "original_filename", "file_name", "name", "title"), TEXTS),
        "path":      Role(("storage_path", "file_path", "path", "object_key", "storage_key"), TEXTS),
        "encrypted": Role(("encrypted", "is_encrypted"), {"bool"}, required=False),
        "text":      Role(("parsed_text", "markdown", "extracted_text", "content", "text"), TEXTS, required=False),
    },
    "chunks": {
        "document_id": Role(("document_id", "doc_id", "parent_id"), IDS),
        "ord":         Role(("chunk_index", "chunk_ord", "ord", "position", "index"), NUMBERS),
        "text":        Role(("content", "text", "chunk_text", "body"), TEXTS),
        "embedding":   Role(("embedding", "vector", "content_embedding"), {"vector"}),
        "page":        Role(("page", "page_number"), NUMBERS, required=False),
    },
    "users": {
        "id":    Role(("id", "user_id", "uuid"), IDS),
        "email": Role(("email", "email_address"), TEXTS),
    },
}
# fmt: on
OPTIONAL_SECTIONS = ("chunks", "users")


@dataclass(frozen=True, slots=True)
class Guess:
    """A column for a role; ``confidence`` is 0 to 1, ``sample`` the form of a value (``value_form``)."""

    column: str
    confidence: float
    sample: str = ""


@dataclass(frozen=True, slots=True)
class TableMapping:
    table: str  # schema.table
    columns: Mapping[str, str]  # by role

    def __getitem__(self, role: str) -> str:
        return self.columns[role]


@dataclass(frozen=True, slots=True)
class OldMapping:
    confirmed: bool
    backup: str
    adopt_model: str  # name@version, or nothing
    sections: Mapping[str, TableMapping] = field(default_factory=dict)

    def require_confirmed(self) -> None:
        if not (self.confirmed and self.backup.strip()):
            raise ApiError(LEGACY_NOT_CONFIRMED)


def guess_columns(section: str, columns: Mapping[str, str]) -> dict[str, Guess]:
    """Return the likeliest column for each role of ``section``; ``columns`` are types by name. Roles may lack one."""
    guesses = {}
    for role, (names, types, _) in ROLES[section].items():
        rated = [
            Guess(name, round((1 - 0.1 * names.index(name)) * (1.0 if columns[name] in types else 0.5), 2))
            for name in columns
            if name in names
        ]
        if rated:
            guesses[role] = max(rated, key=lambda guess: guess.confidence)
    return guesses


def value_form(value: object) -> str:
    """Return the form of a value, without its content: letters as a, digits as 9."""
    text = str(value)[:MOST_SAMPLED]
    uuids = re.sub(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", "{uuid}", text, flags=re.IGNORECASE)
    form = re.sub(r"[^\W\d_]+(?![^{]*\})", "a", re.sub(r"\d+", "9", uuids))
    return " ".join(form.split())[:MOST_SHOWN]


def render(guesses: Mapping[str, tuple[str, Mapping[str, Guess]]]) -> str:
    """Return the mapping file; ``guesses`` has the table and the columns of each section."""
    lines = [
        "# The old system's tables and columns. Check each line; an empty name means that there is none.",
        "confirmed = false  # true once a person has checked this file",
        'backup = ""  # the name of the backup of the old system that was made before the import',
        'adopt_model = ""  # the model that made the old vectors, as text-embedding-3-small@1; for --mode adopt',
    ]
    for section, (table, columns) in guesses.items():
        lines += ["", f"[{section}]", f"table = {json.dumps(table)}"]
        for role, (_, _, required) in ROLES[section].items():
            guess = columns.get(role)
            comment = f"confidence {guess.confidence:.2f}, like {guess.sample}" if guess else "none found"
            need = "" if required else ", optional"
            lines.append(f"{role} = {json.dumps(guess.column if guess else '')}  # {comment}{need}")
    return "\n".join(lines) + "\n"


def load(path: Path) -> OldMapping:
    """Read a mapping file. Raises ``ApiError("LEGACY_MAPPING_INVALID")``."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _invalid(f"{path} cannot be read.") from error
    sections = {name: _section(name, content[name]) for name in ROLES if content.get(name, {}).get("table")}
    for name in ROLES.keys() - sections.keys() - {*OPTIONAL_SECTIONS}:
        raise _invalid(f"The section {name} is missing.")
    model = str(content.get("adopt_model", ""))
    if model and not MODEL.fullmatch(model):
        raise _invalid("adopt_model must be name@version.")
    return OldMapping(content.get("confirmed") is True, str(content.get("backup", "")), model, sections)


def _section(name: str, content: Mapping[str, Any]) -> TableMapping:
    columns = {role: str(content.get(role, "")) for role in ROLES[name]}
    missing = [role for role, column in columns.items() if not column and ROLES[name][role].required]
    if missing:
        raise _invalid(f"{name}: no column for {', '.join(missing)}.")
    _require_identifiers([str(content["table"]), *filter(None, columns.values())])
    return TableMapping(str(content["table"]), columns)


def _require_identifiers(names: Iterable[str]) -> None:
    """Raise for a name that could not stand in a statement as it is."""
    for name in names:
        if not IDENTIFIER.fullmatch(name):
            raise _invalid(f"{name!r} is no name of a table or column.")


def _invalid(detail: str) -> ApiError:
    return ApiError(LEGACY_MAPPING_INVALID, detail)
