"""What drf-spectacular calls when it has read the views: adds the refusals, the limits, the examples, the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any

from accessa.openapi import constraints, error_codes, operations
from accessa.openapi.descriptions import COMPONENTS, INTRODUCTION
from accessa.openapi.examples import examples
from accounts.errors import ErrorCode

RETRY_AFTER = {"description": "Seconds until it may go better.", "schema": {"type": "integer", "minimum": 1}}
CHALLENGE = {"description": "How to say who you are.", "schema": {"type": "string"}}
CORRELATION = {"description": "Names the request in our logs.", "schema": {"type": "string", "format": "uuid"}}


def complete(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return the schema with everything in it that no view or serializer says."""
    result["info"]["description"] = INTRODUCTION
    result["tags"] = [{"name": name, "description": said} for name, said in operations.TAGS.items()]
    result["paths"] |= operations.paths()
    components = result["components"]
    components["securitySchemes"] |= operations.security_schemes()
    schemas = components["schemas"]
    _describe(schemas)
    for method, operation in _operations(result):
        name = operation["operationId"]
        tag, operation["summary"] = operations.SAID[name]
        operation["tags"] = [tag]
        _error_responses(method, operation, schemas)
        _headers(operation)
    _exemplify(result)
    return result


def _operations(result: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for item in result["paths"].values():
        yield from ((method, operation) for method, operation in item.items() if method != "parameters")


def _describe(schemas: dict[str, Any]) -> None:
    """Docstrings of serializers are for who reads the code."""
    for name, schema in schemas.items():
        schema.pop("description", None)
        if name in COMPONENTS:
            schema["description"] = COMPONENTS[name]
    for name, properties in constraints.properties().items():
        for field, more in properties.items():
            said = schemas[name]["properties"][field] | more
            schemas[name]["properties"][field] = {key: value for key, value in said.items() if value is not None}
    schemas["FiltersRequest"]["additionalProperties"] = False


def _error_responses(method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    name = operation["operationId"]
    for status, codes in error_codes.operation_codes(method, operation).items():
        component = error_codes.component_name(name, status, codes)
        schemas[component] = _error_schema(codes)
        media: dict[str, Any] = {"schema": {"$ref": f"#/components/schemas/{component}"}}
        response = {
            "description": ", ".join(f"`{code}`" for code in codes),
            "content": {"application/json": media},
        }
        if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.INSUFFICIENT_STORAGE):
            response["headers"] = {"Retry-After": RETRY_AFTER}
        if status == HTTPStatus.UNAUTHORIZED and name != "llamaparse_webhook":
            response["headers"] = {"WWW-Authenticate": CHALLENGE}
        operation["responses"][str(status)] = response


def _error_schema(codes: Sequence[ErrorCode]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["code", "detail"],
        "properties": {
            "code": {"type": "string", "enum": sorted(map(str, codes)), "description": "Stable: branch on it."},
            "detail": {"type": "string", "description": "A sentence for people; it may change."},
            "field": {"type": "string", "description": "What of the request is meant, where it is one thing."},
        },
    }


def _headers(operation: dict[str, Any]) -> None:
    for response in operation["responses"].values():
        response["headers"] = response.get("headers", {}) | {"X-Correlation-ID": CORRELATION}
        response["description"] = response.get("description") or "Done."


def _exemplify(result: dict[str, Any]) -> None:
    """Show what the API really said: the examples were taken from it (testing/openapi_examples.py)."""
    for _, operation in _operations(result):
        found = examples().get(operation["operationId"], {})
        if "request" in found:
            operation["requestBody"]["content"]["application/json"]["example"] = found["request"]
        for status, body in found.get("answers", {}).items():
            operation["responses"][status]["content"]["application/json"]["example"] = body
