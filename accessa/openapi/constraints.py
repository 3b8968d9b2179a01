"""What requests may say, where a serializer leaves the check, and its own code, to the service behind it."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from search.services import SOURCES

SHA256 = "^[0-9a-f]{64}$"
PDF = "^[Aa][Pp][Pp][Ll][Ii][Cc][Aa][Tt][Ii][Oo][Nn]/[Pp][Dd][Ff]$"
TABLE = {"DocumentResponse": ("file_sha256", "parsed_sha256"), "ChunkAnswer": ("chunk_sha",)}


def properties() -> dict[str, dict[str, dict[str, Any]]]:
    """Return what is added to the properties of components, by component and property; None takes away."""
    return {
        "UploadRequest": {
            "filename": {
                "minLength": 1,
                "maxLength": settings.MAX_FILENAME_CHARS,
                "description": "What is kept: folders, control and formatting characters are stripped before.",
            },
            "bytes_len": {
                "minimum": 1,
                "maximum": settings.MAX_FILE_BYTES,
                "description": "The exact length of the file.",
            },
            "mime": {"pattern": PDF, "description": "application/pdf, in upper or lower case."},
            "sha256": {"pattern": SHA256, "description": "Of the file's bytes."},
            "ocr": {"description": "Read pages without a text layer. Wanted when a scan has failed as NO_TEXT_LAYER."},
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
        **{name: {field: {"pattern": SHA256} for field in fields} for name, fields in TABLE.items()},
    }
