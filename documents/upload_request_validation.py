"""Validation of an upload request: MIME type, size, sha256 and file name, each with its error code."""

import re
import unicodedata

from django.conf import settings
from django.utils.translation import gettext

from accounts.errors import ApiError
from documents import error_codes
from documents.storage import buckets

SHA256 = re.compile(r"[0-9a-f]{64}")


def validate_upload(*, filename: str, bytes_len: int, mime: str, sha256: str) -> str:
    """Return the cleaned file name; raise ``ApiError`` with the code of the limit (MVP context §9) that is exceeded."""
    if mime.lower() != buckets.MIME:
        detail = "Only PDF files (application/pdf) can be uploaded."
        raise ApiError(error_codes.UNSUPPORTED_TYPE, detail, field="mime")
    if bytes_len <= 0:
        raise ApiError(error_codes.EMPTY_FILE, field="bytes_len")
    if bytes_len > settings.MAX_FILE_BYTES:
        size, limit = min(bytes_len, 1 << 60) / 1_048_576, settings.MAX_FILE_BYTES / 1_048_576
        detail = f"The file has {size:.1f} MB; the limit is {limit:g} MB. Split it, or save it smaller."
        raise ApiError(error_codes.FILE_TOO_LARGE, detail, field="bytes_len")
    if not SHA256.fullmatch(sha256):
        raise ApiError(error_codes.INVALID_SHA256, "sha256 must be 64 lowercase hexadecimal digits.", field="sha256")
    return clean_filename(filename)


def clean_filename(filename: str) -> str:
    """Return a file name without folders and invisible characters; raise ``ApiError`` for none and for a long one."""
    # Control and formatting characters and folders could mislead a reader or a path.
    name = re.split(r"[\\/]", remove_invisible(filename))[-1].strip()
    if name in ("", ".", ".."):
        raise ApiError(error_codes.INVALID_FILENAME, field="filename")
    if len(filename) > settings.MAX_FILENAME_CHARS:  # all that was sent, as the schema says
        detail = gettext("The name has %(count)s characters; the limit is %(limit)s. Give it a shorter one.") % {
            "count": len(filename),
            "limit": settings.MAX_FILENAME_CHARS,
        }
        raise ApiError(error_codes.FILENAME_TOO_LONG, detail, field="filename")
    return name


def remove_invisible(text: str) -> str:
    return "".join(c for c in text if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp"))
