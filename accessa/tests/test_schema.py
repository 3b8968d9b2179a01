"""The schema, the documentation and the code say the same."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as configured
from django.test import Client
from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from accessa.openapi.error_codes import ANYWHERE, CODES
from accessa.openapi.examples import FILE, examples
from console import runbook
from testing.error_codes import (
    documented,
    failures_in_source,
    law_failures_in_source,
    law_waits_in_source,
    law_words_in_source,
    page_waits_in_source,
    record_failures_in_source,
    refusals_in_source,
    sync_failures_in_source,
    waits_in_source,
)
from testing.fuzzing import SECRET
from testing.openapi_examples import collect
from testing.personas import Person

ROOT = Path(configured.BASE_DIR)
API_GUIDE = ROOT / "docs" / "api.md"
INCIDENTS = ROOT / "docs" / "operations" / "incidents.md"


@lru_cache(maxsize=1)
def schema() -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(SchemaGenerator().get_schema(request=None, public=True)))
    return made


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for item in schema()["paths"].values():
        yield from ((operation["operationId"], operation) for operation in item.values())


def resolved(part: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that stands for itself, for jsonschema."""
    return part | {"components": schema()["components"]}


def test_the_schema_is_openapi_3_1() -> None:
    OpenAPIV31SpecValidator(schema()).validate()

    assert schema()["openapi"].startswith("3.1")


def test_every_operation_says_what_it_does_and_what_it_may_refuse() -> None:
    for name, operation in operations():
        assert operation["description"], name
        assert operation["summary"], name
        assert len(operation["tags"]) == 1, name
        refused = {int(status) for status in operation["responses"] if int(status) >= 400}
        assert refused == set(CODES[name]), name


def test_whoever_needs_no_login_is_known() -> None:
    open_to_all = {name for name, operation in operations() if operation["security"] == []}

    assert open_to_all == {"put_bytes", "get_bytes", "alive", "ready"}


def test_who_is_told_to_come_back_later_is_told_when() -> None:
    for name, operation in operations():
        for status in ("429", "503", "507"):
            if status in operation["responses"]:
                assert "Retry-After" in operation["responses"][status]["headers"], name


def test_the_schemas_for_uploads_and_the_api_s_own_say_the_same() -> None:
    for file, component in (("request", "UploadRequest"), ("response", "UploadResponse")):
        written = json.loads((ROOT / f"schemas/upload.{file}.json").read_text())
        made = schema()["components"]["schemas"][component]

        assert set(written["required"]) == set(made["required"])
        for name, said in written["properties"].items():
            shown = {key: value for key, value in said.items() if key != "description"}
            assert shown.items() <= made["properties"][name].items(), name


# Examples


@pytest.mark.django_db
def test_the_examples_are_what_the_api_answers(ana: Person, platform: Person, settings: Any) -> None:
    """With EXAMPLES=write they are taken anew."""
    settings.BRAIN_API_SECRET = SECRET

    real = collect(ana, platform)

    if os.environ.get("EXAMPLES") == "write":
        FILE.write_text(json.dumps(real, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
        examples.cache_clear()
    assert _shape(examples()) == _shape(real)


def _shape(value: Any) -> Any:
    """Names, codes and types: what stays when the same is asked again."""
    if isinstance(value, dict):
        return {name: part if name == "code" else _shape(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_shape(part) for part in value]
    return type(value).__name__


def test_every_example_is_valid_by_the_schema() -> None:
    for name, operation in operations():
        content = [operation.get("requestBody", {}), *operation["responses"].values()]
        for media in (media for part in content for media in part.get("content", {}).values() if "example" in media):
            Draft202012Validator(resolved(media["schema"])).validate(media["example"])
            assert media["example"], name


def test_nearly_every_operation_has_an_example() -> None:
    shown = {name for name, operation in operations() if "example" in json.dumps(operation)}

    assert {name for name, _ in operations()} - shown <= {"get_bytes", "delete_document", "document_page"}


# Codes


def test_the_guide_lists_exactly_the_codes_of_the_schema() -> None:
    of_schema: dict[int, set[str]] = {}
    for codes in (*CODES.values(), ANYWHERE):
        for status, names in codes.items():
            of_schema.setdefault(status, set()).update(names)

    assert documented(API_GUIDE) == of_schema


def test_every_refusal_in_the_code_is_documented_with_its_status() -> None:
    words = API_GUIDE.read_text(encoding="utf-8") + INCIDENTS.read_text(encoding="utf-8")

    assert {code for code in refusals_in_source() if f"`{code}`" not in words} == set()


def test_every_code_that_a_job_can_show_has_its_line_among_the_incidents() -> None:
    """The console and the page say the same, in the same words."""
    lines = INCIDENTS.read_text(encoding="utf-8").splitlines()

    tables = (runbook.WAITING, runbook.FAILED, runbook.SYNC_FAILED, runbook.PAGE_WAITS, runbook.RECORD_FAILED)
    for code, known in (each for table in tables for each in table.items()):
        assert f"| `{code}` | {known.meaning} | {known.remedy} |" in lines
    assert failures_in_source() - set(runbook.FAILED) == set()
    assert waits_in_source() - set(runbook.WAITING) == set()


def test_every_code_that_a_law_can_show_has_its_line_among_the_incidents() -> None:
    told = INCIDENTS.read_text(encoding="utf-8")
    of_laws = runbook.statutes

    for code, known in (each for table in of_laws.TABLES for each in table.items()):
        assert f"| `{code}` | {known.meaning} | {known.remedy} |" in told.splitlines()
    assert law_failures_in_source() >= {"RAW_FILE_MISSING", "NO_ARTICLES", "XML_ENTITY_REFUSED", "LAW_UNKNOWN"}
    assert law_failures_in_source() - {*of_laws.FAILED, *runbook.FAILED} == set()
    assert law_waits_in_source() >= {"MORE_URGENT_LAW", "SQS_NO_QUEUE"}
    assert law_waits_in_source() - {*of_laws.WAITING, *of_laws.CONSUMER_WAITS, *runbook.WAITING} == set()


def test_every_code_that_the_statute_worker_spells_is_documented() -> None:
    words = API_GUIDE.read_text(encoding="utf-8") + INCIDENTS.read_text(encoding="utf-8")

    assert law_words_in_source() >= {"MESSAGE_AMBIGUOUS", "SQS_NO_DLQ", "LAW_OUTDATED", "OUTDATED", "STORE_AWAY"}
    assert {code for code in law_words_in_source() if f"`{code}`" not in words} == set()


def test_every_code_that_a_sync_can_show_has_its_line_among_the_incidents() -> None:
    known_of_jobs = {*runbook.WAITING, *runbook.FAILED}

    assert sync_failures_in_source() >= {"REFRESH_TOKEN_INVALID", "CURSOR_EXPIRED", "SCOPES_MISSING"}
    assert sync_failures_in_source() - set(runbook.SYNC_FAILED) == set()
    assert page_waits_in_source() - {*runbook.PAGE_WAITS, *known_of_jobs} == set()
    assert record_failures_in_source() - set(runbook.RECORD_FAILED) == set()


# The page


def test_the_docs_need_no_inline_script_or_style_and_lead_on_without_javascript() -> None:
    page = Client().get("/docs")
    words = page.content.decode()

    assert "<script>" not in words
    assert "<style" not in words
    assert " style=" not in words
    assert " on" + "load" not in words
    assert "unsafe" not in page["Content-Security-Policy"]
    assert 'href="/schema"' in words.partition("<noscript>")[2].partition("</noscript>")[0]
    assert Client().get("/docs?script=")["Content-Type"].startswith("application/javascript")
