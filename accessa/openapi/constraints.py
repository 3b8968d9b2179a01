"""JSON schema constraints of fields that services validate, not serializers; descriptions of components."""

from typing import Any

from django.conf import settings

from search.services import SOURCES

SHA256 = "^[0-9a-f]{64}$"
PDF = "^[Aa][Pp][Pp][Ll][Ii][Cc][Aa][Tt][Ii][Oo][Nn]/[Pp][Dd][Ff]$"
SHA256_FIELDS = {"DocumentResponse": ("file_sha256", "parsed_sha256"), "ChunkResponse": ("chunk_sha",)}
DESCRIPTIONS = {
    "UploadResponse": "The signed URL for the bytes, and the ids of document and job.",
    "JobDetailResponse": "A job with its counters, its status, and why it is not moving.",
    "JobErrorResponse": "Why a job failed, or its last attempt.",
    "SavedResponse": "Purchases spared because the text already had a vector.",
    "LinkResponse": "A signed URL of a file, and its lifetime in seconds.",
    "PlaceResponse": "Where a passage stands. `header` has the offsets of the table header repeated before it.",
    "FiltersRequest": "Restrictions applied before ranking.",
    "RecordResponse": "A record of a connected system, or a client profile.",
    "LawResponse": "A passage of a statute, with its citation. Every tenant can search statutes.",
    "UsageResponse": "Cents, by day and month (UTC).",
    "PurchaseResponse": "One paid call.",
}


def properties() -> dict[str, dict[str, dict[str, Any]]]:
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
            # Without a format: a date does as well as a time.
            "uploaded_after": {"type": ["string", "null"], "format": None},
            "uploaded_before": {"type": ["string", "null"], "format": None},
        },
        "EmbedRequest": {"texts": {"minItems": 1, "maxItems": 256}},
        **{name: {field: {"pattern": SHA256} for field in fields} for name, fields in SHA256_FIELDS.items()},
    }
