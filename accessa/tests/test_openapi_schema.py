"""OpenAPI schema: valid, complete, with examples of the running API."""

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

from accessa.openapi.hooks import EXAMPLES_FILE, examples
from accounts.models import ApiToken
from testing.fuzzing import SECRET
from testing.openapi_examples import collect_examples
from testing.personas import Person

ROOT = Path(configured.BASE_DIR)


@lru_cache(maxsize=1)
def schema() -> dict[str, Any]:
    generated: dict[str, Any] = json.loads(json.dumps(SchemaGenerator().get_schema(request=None, public=True)))
    return generated


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for item in schema()["paths"].values():
        yield from ((operation["operationId"], operation) for operation in item.values())


def resolved(part: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that stands for itself, for jsonschema."""
    return part | {"components": schema()["components"]}


def test_the_schema_is_openapi_3_1() -> None:
    OpenAPIV31SpecValidator(schema()).validate()

    assert schema()["openapi"].startswith("3.1")


def test_every_operation_has_a_summary_and_its_error_codes() -> None:
    for name, operation in operations():
        assert operation["description"], name
        assert operation["summary"], name
        assert len(operation["tags"]) == 1, name
        if name != "alive":
            assert any(int(status) >= 400 for status in operation["responses"]), name


def test_whoever_needs_no_login_is_known() -> None:
    open_to_all = {name for name, operation in operations() if operation["security"] == []}

    assert open_to_all == {"put_bytes", "get_bytes", "alive", "ready"}


def test_every_operation_names_the_scope_that_it_takes() -> None:
    scopes = {
        name: scopes for name, operation in operations() for each in operation["security"]
        for scheme, scopes in each.items() if scheme == "bearer"
    }  # fmt: skip
    by_scope = {scope: {name for name, own in scopes.items() if own == [scope]} for scope in ApiToken.Scope.values}

    assert by_scope["search"] == {"search", "answer"}
    assert by_scope["service"] == {"advance_job"}
    assert by_scope["tokens"] == {"create_token", "revoke_token"}
    assert by_scope["export"] == {"export_data"}
    assert by_scope["write"] == {
        "upload", "change_document", "delete_document", "create_tag", "change_tag", "delete_tag", "retry_job",
        "resend_webhook",
    }  # fmt: skip
    assert by_scope["webhooks"] == {
        "create_webhook_endpoint", "change_webhook_endpoint", "delete_webhook_endpoint", "rotate_webhook_secret",
    }  # fmt: skip
    assert scopes.keys() == set().union(*by_scope.values())


def test_rate_limit_errors_have_retry_after() -> None:
    for name, operation in operations():
        for status in ("429", "503", "507"):
            if status in operation["responses"]:
                assert "Retry-After" in operation["responses"][status]["headers"], name


def test_the_upload_schema_matches_the_api_schema() -> None:
    for file, component in (("request", "UploadRequest"), ("response", "UploadResponse")):
        written = json.loads((ROOT / f"schemas/upload.{file}.json").read_text())
        generated = schema()["components"]["schemas"][component]

        assert set(written["required"]) == set(generated["required"])
        for name, said in written["properties"].items():
            shown = {key: value for key, value in said.items() if key != "description"}
            assert shown.items() <= generated["properties"][name].items(), name


# Examples


@pytest.mark.django_db
def test_the_examples_are_responses_of_the_api(ana: Person, platform: Person, settings: Any) -> None:
    """With EXAMPLES=write they are taken anew."""
    settings.BRAIN_API_SECRET = SECRET

    real = collect_examples(ana, platform)

    if os.environ.get("EXAMPLES") == "write":
        EXAMPLES_FILE.write_text(json.dumps(real, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
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

    assert {name for name, _ in operations()} - shown <= {
        "get_bytes",
        "delete_document",
        "delete_tag",
        "delete_webhook_endpoint",
        "document_page",
        "document_thumbnail",
        "export_data",
        "revoke_token",
    }


# The page


def test_the_docs_page_has_no_inline_script_and_links_without_javascript() -> None:
    page = Client().get("/docs")
    words = page.content.decode()

    assert "<script>" not in words
    assert "<style" not in words
    assert " style=" not in words
    assert " on" + "load" not in words
    assert "unsafe" not in page["Content-Security-Policy"]
    assert 'href="/schema"' in words.partition("<noscript>")[2].partition("</noscript>")[0]
    assert Client().get("/docs?script=")["Content-Type"].startswith("application/javascript")
