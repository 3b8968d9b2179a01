"""Postprocessing hook of drf-spectacular: error responses, constraints, examples, tags, operations without a view.

Constraints are those of fields that services validate, not serializers.
"""

import json
import re
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

from django.conf import settings

from accessa.openapi import error_schemas, extra_operations
from accounts.authentication import TENANT_HEADER
from documents.tags import MAX_NAME_CHARS
from search.services import SOURCES

EXAMPLES_FILE = Path(__file__).with_name("examples.json")
RETRY_AFTER = {"description": "Seconds until a retry may succeed.", "schema": {"type": "integer", "minimum": 1}}
CHALLENGE = {"description": "The authentication scheme.", "schema": {"type": "string"}}
TENANT_PARAMETER = {
    "in": "header",
    "name": TENANT_HEADER,
    "schema": {"type": "string", "format": "uuid"},
    "description": "From a service only: the tenant for whom it reads.",
}
CORRELATION = {"description": "The request's id in our logs.", "schema": {"type": "string", "format": "uuid"}}
INTRODUCTION = """\
Insurance PDFs as searchable, cited passages.

Declare a file (`POST /upload`), put its bytes to the signed URL, poll its job (`GET /jobs`), then search
(`POST /search`).

**Authentication.** `Authorization: Bearer …` with a Supabase JWT or an API token; or the session of a user who
has signed in here, whose writing calls bring the CSRF token in `X-CSRFToken`. Objects of another tenant are
answered like missing ones: 404. A service (a service token, or Supabase's service role) that sends
`X-Accessa-User` searches, reads and polls as that tenant; the audit log keeps it.

**Scopes.** An API token has some of `read`, `write`, `search`, `webhooks`, `tokens` and `export`; each operation names
the one that it takes, and answers 403 `INSUFFICIENT_SCOPE` without it. Whoever signs in, here or at Supabase, has them
all. A service's token also has `service`.

**Errors** have one shape: a stable `code`, a `detail` for people, the `field` where there is one. The codes
of each operation are listed with it; any operation may answer 405 `METHOD_NOT_ALLOWED` and 500 `INTERNAL` in
the same shape. Later failures are in a job's `last_error`.

**Lists** are paged by cursor: follow `next`. **`X-Correlation-ID`** of a request is kept and returned;
without one it is generated.
"""
# An operation has the tag whose pattern is found in its path.
TAGS = (
    (
        "files",
        r"^/upload$|^/storage/|^/export$|^/documents(?!.*/purchases$)",
        "Declare a file, put its bytes, list documents.",
    ),
    ("tags", r"^/tags\b", "Tags of the caller's documents; lists and searches filter by them."),
    ("jobs", r"^/jobs?\b(?!.*/advance$)", "The progress of a document's job, and why it does not move."),
    ("search", r"^/search$|^/answer$", "Answers to questions; passages, records of connected systems and statutes."),
    ("webhooks", r"^/webhook-endpoints", "Your addresses that hear what happened, and what was sent to them."),
    ("cut-over", r"^/cutover$", "Which system has the caller's documents while an old one is being replaced."),
    ("tokens", r"^/tokens\b", "API tokens of the caller, with scopes."),
    ("money", r"^/usage$|/purchases$", "Costs, and purchases from vendors."),
    ("machines", r"^/internal/|^/webhooks/|/advance$", "For other services: agents, deployments, the parsing vendor."),
    ("health", r"^/(health|ready)z$", "For monitoring."),
)
SHA256 = "^[0-9a-f]{64}$"
PDF = "^[Aa][Pp][Pp][Ll][Ii][Cc][Aa][Tt][Ii][Oo][Nn]/[Pp][Dd][Ff]$"
TAG_NAME = {"minLength": 1, "maxLength": MAX_NAME_CHARS}
SHA256_FIELDS = {"DocumentResponse": ("file_sha256", "parsed_sha256"), "ChunkResponse": ("chunk_sha",)}
DESCRIPTIONS = {
    "UploadResponse": "The signed URL for the bytes, and the ids of document and job.",
    "JobDetailResponse": "A job with its counters, its status, and why it is not moving.",
    "JobErrorResponse": "Why a job failed, or its last attempt.",
    "SavedResponse": "Purchases spared because the text already had a vector.",
    "TagResponse": "A tag. Its name is unique, without regard to upper and lower case.",
    "DocumentTagResponse": "A tag of a document.",
    "LinkResponse": "A signed URL of a file, and its lifetime in seconds.",
    "PlaceResponse": "Where a passage stands. `header` has the offsets of the table header repeated before it.",
    "FiltersRequest": "Restrictions applied before ranking.",
    "RecordResponse": "A record of a connected system, or a client profile.",
    "LawResponse": "A passage of a statute, with its citation. Every tenant can search statutes.",
    "TokenResponse": "An API token, without its secret.",
    "NewTokenResponse": "A new API token.",
    "UsageResponse": "Cents, by day and month (UTC).",
    "PurchaseResponse": "One paid call.",
    "WebhookEndpointResponse": "An address that receives events, signed by Standard Webhooks.",
    "DeliveryResponse": "A webhook that was sent, or waits to be, with its attempts.",
}


@cache
def examples() -> dict[str, Any]:
    """Return requests and responses of the running API by operation, as ``testing.openapi_examples`` recorded them."""
    rows: dict[str, Any] = json.loads(EXAMPLES_FILE.read_text())
    return rows


def complete(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    result["info"]["description"] = INTRODUCTION
    result["tags"] = [{"name": tag, "description": description} for tag, _, description in TAGS]
    result["paths"] |= extra_operations.paths()
    components = result["components"]
    components["securitySchemes"] |= extra_operations.security_schemes()
    schemas = components["schemas"]
    for schema in schemas.values():
        schema.pop("description", None)  # a serializer's docstring is for developers
    for name, description in DESCRIPTIONS.items():
        schemas[name]["description"] = description
    for name, properties in property_constraints().items():
        for field, constraint in properties.items():
            merged = schemas[name]["properties"][field] | constraint
            schemas[name]["properties"][field] = {key: part for key, part in merged.items() if part is not None}
    schemas["FiltersRequest"]["additionalProperties"] = False
    for path, methods in result["paths"].items():
        for method, operation in methods.items():
            operation["tags"] = [next(tag for tag, pattern, _ in TAGS if re.search(pattern, path))]
            operation.setdefault("summary", re.split(r"[.:;(\n]", operation["description"])[0].strip())
            _add_tenant_header(method, operation)
            _add_errors(method, operation, schemas)
            for response in operation["responses"].values():
                response["headers"] = response.get("headers", {}) | {"X-Correlation-ID": CORRELATION}
                response["description"] = response.get("description") or "Done."
            example = examples().get(operation["operationId"], {})
            if "request" in example:
                operation["requestBody"]["content"]["application/json"]["example"] = example["request"]
            for status, body in example.get("answers", {}).items():
                operation["responses"][status]["content"]["application/json"]["example"] = body
    return result


def property_constraints() -> dict[str, dict[str, dict[str, Any]]]:
    """Return JSON schema keywords by component and property; None removes one."""
    return {
        "UploadRequest": {
            "filename": {
                "minLength": 1,
                "maxLength": settings.MAX_FILENAME_CHARS,
                "description": "Stored without folders, control and formatting characters.",
            },
            "bytes_len": {
                "minimum": 1,
                "maximum": settings.MAX_FILE_BYTES,
                "description": "The exact length of the file.",
            },
            "mime": {"pattern": PDF, "description": "application/pdf, in upper or lower case."},
            "sha256": {"pattern": SHA256, "description": "Of the file's bytes."},
            "ocr": {"description": "Read pages without a text layer. Needed when a scan has failed as NO_TEXT_LAYER."},
        },
        "PatchedDocumentChanges": {"filename": {"minLength": 1, "maxLength": settings.MAX_FILENAME_CHARS}},
        "TagRequest": {"name": TAG_NAME},
        "PatchedTagChanges": {"name": TAG_NAME},
        "SearchRequest": {
            "query": {"minLength": 1, "maxLength": settings.MAX_QUERY_CHARS},
            "k": {"minimum": 1, "maximum": settings.MAX_SEARCH_RESULTS},
            "mode": {"enum": ["hybrid", "vector", "text"]},
            "sources": {"items": {"type": "string", "enum": list(SOURCES)}, "minItems": 1},
            "law_ids": {"items": {"type": "string", "minLength": 1}},
        },
        "FiltersRequest": {
            "pages": {"type": ["array", "null"]},
            "heading": {"type": ["string", "null"], "minLength": 1, "maxLength": 1000},
            "filename": {"type": ["string", "null"], "minLength": 1, "maxLength": 1000},
            "tags": {"type": ["array", "null"]},
            # Without a format: a date does as well as a time.
            "uploaded_after": {"type": ["string", "null"], "format": None},
            "uploaded_before": {"type": ["string", "null"], "format": None},
        },
        "EmbedRequest": {"texts": {"minItems": 1, "maxItems": 256}},
        **{name: {field: {"pattern": SHA256} for field in fields} for name, fields in SHA256_FIELDS.items()},
    }


def _add_tenant_header(method: str, operation: dict[str, Any]) -> None:
    is_bearer = any("bearer" in security for security in operation["security"])
    if is_bearer and (method == "get" or operation["operationId"] in ("search", "answer")):
        operation.setdefault("parameters", []).append(TENANT_PARAMETER)


def _add_errors(method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    name = operation["operationId"]
    for status, codes in error_schemas.operation_codes(method, operation).items():
        component = error_schemas.component_name(name, status, codes)
        schemas[component] = {
            "type": "object",
            "required": ["code", "detail"],
            "properties": {
                "code": {"type": "string", "enum": sorted(map(str, codes)), "description": "Stable: branch on it."},
                "detail": {"type": "string", "description": "A sentence for people; it may change."},
                "field": {"type": "string", "description": "The field of the request, where there is one."},
            },
        }
        media: dict[str, Any] = {"schema": {"$ref": f"#/components/schemas/{component}"}}
        response = {"description": ", ".join(f"`{code}`" for code in codes), "content": {"application/json": media}}
        if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.INSUFFICIENT_STORAGE):
            response["headers"] = {"Retry-After": RETRY_AFTER}
        if status == HTTPStatus.UNAUTHORIZED and name != "llamaparse_webhook":
            response["headers"] = {"WWW-Authenticate": CHALLENGE}
        operation["responses"][str(status)] = response
