"""A JSON Schema with its references written out: looking one up costs more than the check that it stands for."""

from __future__ import annotations

from typing import Any

DEFINITION = "#/$defs/"


def written_out(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that says the same; what refers to itself still does."""
    found: dict[str, Any] = _written(schema, schema["$defs"], frozenset())
    return found


def _written(part: Any, definitions: dict[str, Any], within: frozenset[str]) -> Any:
    if isinstance(part, list):
        return [_written(each, definitions, within) for each in part]
    if not isinstance(part, dict):
        return part
    name = str(part.get("$ref", "")).removeprefix(DEFINITION)
    # Whatever else stands beside a reference holds too, and must not take the place of what it refers to.
    if name in definitions and name not in within and part.keys() <= {"$ref", "description"}:
        return _written(definitions[name], definitions, within | {name})
    return {key: _written(each, definitions, within) for key, each in part.items()}
