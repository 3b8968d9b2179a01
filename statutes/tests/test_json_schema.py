"""The published JSON Schema accepts canonical laws and nothing else."""

import json
from copy import deepcopy
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from statutes.structure import json_schema
from statutes.structure.model import RANKS, RANKS_OF_INNER_PARTS
from statutes.tests.law_texts import build_from_text, law_json

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
def test_what_does_not_fit_is_refused_by_its_place_and_not_its_text(change: str) -> None:
    law, where = broken(change)

    with pytest.raises(json_schema.SchemaInvalid) as refused:
        json_schema.check_schema(law)

    assert (refused.value.code, refused.value.where) == ("LAW_SCHEMA_INVALID", where)


def test_a_law_fits() -> None:
    json_schema.check_schema(LAW)


def test_the_schema_is_one_and_names_the_divisions_that_are_made() -> None:
    published = json.loads(json_schema.PATH.read_text())

    Draft202012Validator.check_schema(published)
    assert set(published["$defs"]["division"]["properties"]["type"]["enum"]) == RANKS.keys()
    assert RANKS.keys() == RANKS_OF_INNER_PARTS.keys()
