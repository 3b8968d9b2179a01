"""Validation of a law's canonical JSON against ``schemas/law.schema.json``."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from jobs.outcomes import Permanent
from statutes.error_codes import LAW_SCHEMA_INVALID

PATH = Path(__file__).resolve().parents[2] / "schemas" / "law.schema.json"


def check_schema(law: Any) -> None:
    """Raise ``Permanent`` for a law that does not match the schema; its detail names the place and repeats no text."""
    if (error := best_match(_validator().iter_errors(law))) is not None:
        raise Permanent(LAW_SCHEMA_INVALID, f"{LAW_SCHEMA_INVALID.sentence} The first error is at {error.json_path}.")


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(inline_references(json.loads(PATH.read_text(encoding="utf-8"))))


def inline_references(schema: dict[str, Any]) -> dict[str, Any]:
    """Return an equivalent schema without ``$ref`` (but recursive ones), whose lookups cost more than the checks."""
    definitions = schema["$defs"]

    def inline(part: Any, parents: frozenset[str]) -> Any:
        if isinstance(part, list):
            return [inline(child, parents) for child in part]
        if not isinstance(part, dict):
            return part
        name = str(part.get("$ref", "")).removeprefix("#/$defs/")
        # Sibling keywords of a reference apply too, and must not be replaced by the definition.
        if name in definitions and name not in parents and part.keys() <= {"$ref", "description"}:
            return inline(definitions[name], parents | {name})
        return {key: inline(child, parents) for key, child in part.items()}

    inlined: dict[str, Any] = inline(schema, frozenset())
    return inlined
