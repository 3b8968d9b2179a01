"""The published shape of a law, and whether one has it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from statutes.errors import Unreadable
from statutes.structure.json_schema_refs import written_out

PATH = Path(__file__).resolve().parents[2] / "schemas" / "law.schema.json"


class SchemaInvalid(Unreadable):
    """``where`` says which part of the law does not fit, as a JSON path; nothing of its text."""

    def __init__(self, where: str) -> None:
        super().__init__("LAW_SCHEMA_INVALID")
        self.where = where


def check(law: Any) -> None:
    """Raise ``SchemaInvalid`` unless ``law`` is as ``schemas/law.schema.json`` says."""
    if (error := best_match(_validator().iter_errors(law))) is not None:
        raise SchemaInvalid(error.json_path)


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(written_out(json.loads(PATH.read_text(encoding="utf-8"))))
