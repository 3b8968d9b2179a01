"""Inlined references of a JSON Schema: an equivalent schema."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator

from statutes.structure import json_schema as schema
from statutes.structure.json_schema import inline_references
from statutes.tests.law_builders import law_from_plan, plans
from statutes.tests.test_json_schema import CHANGES, broken

PUBLISHED = json.loads(schema.PATH.read_text())
AS_IT_IS, WRITTEN_OUT = Draft202012Validator(PUBLISHED), Draft202012Validator(inline_references(PUBLISHED))


@settings(max_examples=20, deadline=None)
@given(plan=plans)
def test_both_find_the_same_wrong_with_a_law(plan: Any) -> None:
    law = law_from_plan(plan).as_json(law_id="law", version="1", source={})

    assert errors_of(WRITTEN_OUT, law) == errors_of(AS_IT_IS, law)


@pytest.mark.parametrize("change", CHANGES)
def test_both_find_the_same_wrong_with_what_does_not_fit(change: str) -> None:
    law, where = broken(change)

    assert errors_of(WRITTEN_OUT, law) == errors_of(AS_IT_IS, law)
    assert where in {path for path, _ in errors_of(WRITTEN_OUT, law)}


def test_only_what_refers_to_itself_is_still_looked_up() -> None:
    around = {"#/$defs/children", "#/$defs/division"}

    assert set(references(inline_references(PUBLISHED))) == around < set(references(PUBLISHED))


def test_what_stands_beside_a_reference_holds_too() -> None:
    both = {"$defs": {"text": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/text", "minLength": 2}}}

    validator = Draft202012Validator(inline_references(both))

    assert [validator.is_valid({"a": text}) for text in ("ab", "a", 1)] == [True, False, False]


def errors_of(by: Draft202012Validator, law: Any) -> list[tuple[str, str]]:
    return sorted((error.json_path, str(error.validator)) for error in by.iter_errors(law))


def references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [validator for each in schema for validator in references(each)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
    return own + [validator for each in schema.values() for validator in references(each)]
