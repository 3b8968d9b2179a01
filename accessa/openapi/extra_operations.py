"""OpenAPI operations that Django REST framework does not serve: signed URLs, the webhook, health."""

from typing import Any

from accessa import health
from accessa.openapi.error_schemas import STORAGE
from accounts.common_error_codes import BODY_TOO_LARGE, INVALID_REQUEST, NOT_FOUND, UNAVAILABLE, UNSUPPORTED_MEDIA_TYPE
from accounts.errors import ErrorCode, raises
from documents.error_codes import (
    ARTIFACT_EMPTY,
    CALLBACK_CONTRADICTS,
    HASH_MISMATCH,
    JOB_NOT_PARSING,
    LENGTH_MISMATCH,
    LENGTH_REQUIRED,
    TYPE_MISMATCH,
    UPLOAD_INTERRUPTED,
    URL_EXPIRED,
    URL_NOT_VALID,
)
from jobs.error_codes import JOB_STATE_CHANGED, STORAGE_UNAVAILABLE
from webhooks.error_codes import ARTIFACT_MISMATCH, BODY_INTERRUPTED, CALLBACK_UNKNOWN_JOB, INVALID_SIGNATURE

TOKEN = {"in": "query", "name": "token", "required": True, "schema": {"type": "string", "maxLength": 4000}}
BUCKET = {"in": "path", "name": "bucket", "required": True, "schema": {"type": "string", "enum": ["raw", "parsed"]}}
NAME = {"in": "path", "name": "name", "required": True, "schema": {"type": "string", "minLength": 1}}
PARTS = {"type": "object", "additionalProperties": {"type": "string"}, "description": "Of readiness."}
OK = {
    "type": "object",
    "required": ["status"],
    "properties": {"status": {"type": "string", "const": "ok"}, "parts": PARTS},
}
HEALTHY = {"description": "Healthy.", "content": {"application/json": {"schema": OK, "example": {"status": "ok"}}}}
BYTES = {"schema": {"type": "string", "format": "binary"}}
CALLBACK = (
    INVALID_REQUEST, BODY_INTERRUPTED, INVALID_SIGNATURE, CALLBACK_UNKNOWN_JOB, CALLBACK_CONTRADICTS, JOB_NOT_PARSING,
    JOB_STATE_CHANGED, BODY_TOO_LARGE, UNSUPPORTED_MEDIA_TYPE, ARTIFACT_MISMATCH, ARTIFACT_EMPTY,
)  # fmt: skip
SIGNED_URL = (URL_EXPIRED, URL_NOT_VALID, NOT_FOUND)
EFFECTS = ("JOB_WOKEN", "ALREADY_ENDED", "EVENT_IGNORED", "PARSE_STORED", "ALREADY_PARSED")


def _storage() -> dict[str, Any]:
    put = {
        "operationId": "put_bytes",
        "summary": "Put a declared file's bytes",
        "description": (
            "The `signed_url` that `POST /upload` answered, taken as it is: its signature is the permission, no bearer"
            " goes along. It takes exactly the declared bytes, for five minutes. Where files are in S3 the URL leads"
            " to the bucket instead; send exactly the headers that its `X-Amz-SignedHeaders` names."
        ),
        "parameters": [BUCKET, NAME, TOKEN],
        "requestBody": {"required": True, "content": {"application/pdf": BYTES}},
        "responses": {"200": {"description": "Stored. The job sees it within about two seconds."}},
        "security": [],
        **raises(
            *SIGNED_URL,
            *STORAGE,
            UPLOAD_INTERRUPTED,
            LENGTH_REQUIRED,
            TYPE_MISMATCH,
            UNSUPPORTED_MEDIA_TYPE,
            LENGTH_MISMATCH,
            HASH_MISMATCH,
        ),
    }
    get = {
        "operationId": "get_bytes",
        "summary": "Fetch a stored file",
        "description": "The `signed_url` of a document's original or parsed file, taken as it is, for five minutes.",
        "parameters": [BUCKET, NAME, TOKEN],
        "responses": {
            "200": {
                "description": "The file.",
                "content": {"application/pdf": BYTES, "text/markdown": BYTES, "application/octet-stream": BYTES},
            }
        },
        "security": [],
        **raises(*SIGNED_URL, STORAGE_UNAVAILABLE, UNAVAILABLE),
    }
    return {"put": put, "get": get}


def _webhook() -> dict[str, Any]:
    code = {"type": "string", "enum": list(EFFECTS), "description": "A repeated event has the same code."}
    answer = {"type": "object", "required": ["code"], "properties": {"code": code}}
    return {
        "operationId": "llamaparse_webhook",
        "summary": "Receive a parse event",
        "description": (
            "LlamaCloud's announcement (`event_type` and `data`), or context 002's contract with the parsed content."
            " Signed by Standard Webhooks (three headers) or by `LC-Signature`, never by both; at most five minutes"
            " old; at most 16 MB. Only what was answered 200 is remembered, for 24 hours."
        ),
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}},
        "responses": {
            "200": {
                "description": "Received.",
                "content": {"application/json": {"schema": answer, "example": {"code": "JOB_WOKEN"}}},
            }
        },
        "security": [{"webhookId": [], "webhookTimestamp": [], "webhookSignature": []}, {"llamaCloudSignature": []}],
        **raises(*CALLBACK, *STORAGE),
    }


def _health(name: str, description: str, *codes: ErrorCode) -> dict[str, Any]:
    operation = {"operationId": name, "description": description, "responses": {"200": HEALTHY}, "security": []}
    return {"get": operation | raises(*codes)}


def paths() -> dict[str, Any]:
    """Return new path items: the hook completes them in place."""
    return {
        "/storage/{bucket}/{name}": _storage(),
        "/webhooks/llamaparse": {"post": _webhook()},
        "/healthz": _health("alive", "Liveness: the process answers."),
        "/readyz": _health(
            "ready",
            "Readiness: the process stays up; database, migrations and storage settings are fine; the disk has room.",
            *health.ERROR_CODES,
        ),
    }


def security_schemes() -> dict[str, Any]:
    def header(name: str, description: str) -> dict[str, str]:
        return {"type": "apiKey", "in": "header", "name": name, "description": description}

    signed = "HMAC-SHA256 with a `LLAMAPARSE_WEBHOOK_SECRETS`"
    return {
        "webhookId": header("webhook-id", "Standard Webhooks: the same in each repetition."),
        "webhookTimestamp": header("webhook-timestamp", "Standard Webhooks: seconds since 1970."),
        "webhookSignature": header("webhook-signature", f"Standard Webhooks: `v1,` and base64 of the {signed}."),
        "llamaCloudSignature": header("lc-signature", f"`sha256=` and the hexadecimal {signed}, over the body."),
    }
