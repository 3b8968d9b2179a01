"""The published JSON Schema accepts canonical laws and nothing else."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator

from jobs.outcomes import Permanent
from statutes.structure import schema_validation
from statutes.structure.model import INNER_PART_RANKS, RANKS
from statutes.structure.schema_validation import PATH, inline_references
from statutes.tests.law_builders import law_from_plan, plans
from statutes.tests.law_texts import build_from_text, law_json

PUBLISHED = json.loads(PATH.read_text())
WITH_REFERENCES, INLINED = Draft202012Validator(PUBLISHED), Draft202012Validator(inline_references(PUBLISHED))

LAW = law_json(build_from_text("LEY\nCAPÍTULO I\nDe la ley\nArtículo 1. La ley es de los que la hacen."))


def broken(change: str) -> tuple[dict[str, Any], str]:
    law = deepcopy(LAW)
    chapter = law["children"][0]
    article = chapter["children"][0]
    changes: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
        "another version": (law, {"schema_version": "2"}, "$.schema_version"),
        "another language": (law, {"language": "fr"}, "$.language"),
        "an unknown field": (law, {"extra": 1}, "$"),
        "an unknown division": (chapter, {"type": "verse"}, "$.children[0].type"),
        "an article without a number": (article, {"number": ""}, "$.children[0].children[0].number"),
        "a place before the file": (article, {"start": -1}, "$.children[0].children[0].start"),
        "page 0": (article, {"page": 0}, "$.children[0].children[0].page"),
        "an empty paragraph": (article["paragraphs"][0], {"text": ""}, "$.children[0].children[0].paragraphs[0].text"),
    }
    part, fields, where = changes[change]
    part.update(fields)
    return law, where


CHANGES = ["another version", "another language", "an unknown field", "an unknown division",
           "an article without a number", "a place before the file", "page 0", "an empty paragraph"]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_an_invalid_law_is_rejected_with_the_place_of_the_error(change: str) -> None:
    law, where = broken(change)

    with pytest.raises(Permanent) as failure:
        schema_validation.check_schema(law)

    assert failure.value.code == "LAW_SCHEMA_INVALID"
    assert failure.value.detail.endswith(f" is at {where}.")


def test_a_law_is_valid() -> None:
    schema_validation.check_schema(LAW)


def test_the_schema_is_valid_and_names_every_division() -> None:
    Draft202012Validator.check_schema(PUBLISHED)
    assert set(PUBLISHED["$defs"]["division"]["properties"]["type"]["enum"]) == RANKS.keys()
    assert RANKS.keys() == INNER_PART_RANKS.keys()


@settings(max_examples=20)
@given(plan=plans)
def test_inlined_references_find_the_same_errors_in_any_law(plan: Any) -> None:
    law = law_from_plan(plan).as_json(law_id="law", version="1", source={})

    assert errors_of(INLINED, law) == errors_of(WITH_REFERENCES, law)


@pytest.mark.parametrize("change", CHANGES)
def test_inlined_references_find_the_same_errors_in_an_invalid_law(change: str) -> None:
    law, where = broken(change)

    assert errors_of(INLINED, law) == errors_of(WITH_REFERENCES, law)
    assert where in {path for path, _ in errors_of(INLINED, law)}


def test_only_recursive_references_stay() -> None:
    around = {"#/$defs/children", "#/$defs/division"}

    assert set(references(inline_references(PUBLISHED))) == around < set(references(PUBLISHED))


def test_keywords_beside_a_reference_apply() -> None:
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
