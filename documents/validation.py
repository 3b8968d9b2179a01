"""Limits of an upload (MVP context §9), checked before anything is stored or paid for."""

import re
import unicodedata

from django.conf import settings

from accounts.error_codes import ApiError
from documents.error_codes import (
    EMPTY_FILE,
    FILE_TOO_LARGE,
    FILENAME_TOO_LONG,
    INVALID_FILENAME,
    INVALID_SHA256,
    UNSUPPORTED_TYPE,
)

MIME = "application/pdf"
SHA256 = re.compile(r"[0-9a-f]{64}")


def validate_upload(*, filename: str, bytes_len: int, mime: str, sha256: str) -> str:
    """Return the cleaned file name; raise ``ApiError`` with the code of the limit that is exceeded."""
    if mime.lower() != MIME:
        detail = "Only PDF files (application/pdf) can be uploaded."
        raise ApiError(UNSUPPORTED_TYPE, detail, field="mime")
    if bytes_len <= 0:
        raise ApiError(EMPTY_FILE, field="bytes_len")
    if bytes_len > settings.MAX_FILE_BYTES:
        detail = f"The file is larger than {settings.MAX_FILE_BYTES} bytes."
        raise ApiError(FILE_TOO_LARGE, detail, field="bytes_len")
    if not SHA256.fullmatch(sha256):
        raise ApiError(INVALID_SHA256, "sha256 must be 64 lowercase hexadecimal digits.", field="sha256")
    return clean_filename(filename)


def clean_filename(filename: str) -> str:
    """Strip control and formatting characters and folders, which could mislead a reader or a path."""
    visible = "".join(c for c in filename if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp"))
    name = re.split(r"[\\/]", visible)[-1].strip()
    if name in ("", ".", ".."):
        raise ApiError(INVALID_FILENAME, field="filename")
    if len(name) > settings.MAX_FILENAME_CHARS:
        detail = f"The file's name is longer than {settings.MAX_FILENAME_CHARS} characters."
        raise ApiError(FILENAME_TOO_LONG, detail, field="filename")
    return name
