"""Google Drive: documents, sheets, slides and PDFs. They are found by search and tell of no client (spec 002 §5).

Files of other types are neither listed nor stored. Of a sheet Drive exports the first tab only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from documents.markdown.normalization import normalize
from integrations.models import SourceDocument
from integrations.providers import Stream
from integrations.providers.rollup_rules import Children
from integrations.types import Client, RawItem, Record

DOC, SHEET, PDF = "google_drive.doc", "google_drive.sheet", "google_drive.pdf"
STREAMS: Sequence[Stream] = (Stream("files", "drive.files.list", DOC, moves=True),)
ROLLUP = None

# What a file becomes, and the type that Drive exports it to; a PDF is fetched as it is.
# developers.google.com/workspace/drive/api/guides/ref-export-formats
KINDS: Mapping[str, tuple[str, str | None]] = {
    "application/vnd.google-apps.document": (DOC, "text/plain"),
    "application/vnd.google-apps.presentation": (DOC, "text/plain"),
    "application/vnd.google-apps.spreadsheet": (SHEET, "text/csv"),
    "application/pdf": (PDF, None),
}
MOST_CHARS = 200_000  # of a file's text that is stored
MOST_NAME_CHARS = 500


def file_item(file: Mapping[str, Any], exported_text: str | None) -> RawItem:
    """Make an item of a file as ``files.get`` tells it and of its text. Raises ``ValueError`` for another shape."""
    payload = dict(file)
    if exported_text is not None:
        payload["exported_text"] = exported_text[:MOST_CHARS]
    return RawItem(
        external_id=external_id(_word(file, "id")),
        document_type=KINDS[_word(file, "mimeType")][0],
        payload=payload,
        source_created_at=_moment(file.get("createdTime")),
        source_updated_at=_moment(file.get("modifiedTime")),
        current=True,
    )


def external_id(file_id: str) -> str:
    return f"file:{file_id}"


def deleted_item(file_id: str) -> RawItem:
    return RawItem(external_id(file_id), DOC, {}, deleted=True)


def is_supported(file: Mapping[str, Any]) -> bool:
    mime = file.get("mimeType")
    return isinstance(mime, str) and mime in KINDS


def map_record(item: RawItem) -> Record:
    name = _word(item.payload, "name")[:MOST_NAME_CHARS]
    url = _link(item.payload.get("webViewLink"))
    if item.document_type == PDF:
        return Record(text="", title=name, url=url, is_pdf=True)
    text = item.payload.get("exported_text")
    if not isinstance(text, str):
        raise ValueError("a file without its text")
    return Record(text=normalize(f"{name}\n\n{text[:MOST_CHARS]}"), title=name, url=url)


def build_client(own: SourceDocument | None, children: Children) -> Client | None:
    """Return None always: Drive writes zero rows of ``client_intelligence`` (spec 002 §5)."""
    return None


def client_text(client: Client) -> str:
    return ""


def _word(file: Mapping[str, Any], name: str) -> str:
    word = file.get(name)
    if not isinstance(word, str) or (name == "mimeType" and word not in KINDS):
        raise ValueError(f"a file with another {name}")
    return word


def _moment(told: object) -> datetime | None:
    if told is None:
        return None
    if not isinstance(told, str):
        raise ValueError("a file with another time")
    moment = datetime.fromisoformat(told)
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    return moment


def _link(told: object) -> str | None:
    """Return a link that leads to Google, or None: pages show it."""
    if not isinstance(told, str):
        return None
    parts = urlsplit(told)
    return told if parts.scheme == "https" and (parts.hostname or "").endswith(".google.com") else None
