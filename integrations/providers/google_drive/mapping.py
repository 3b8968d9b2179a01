"""Google Drive: documents, sheets, slides and PDFs. They are searchable and belong to no client (spec 002 §5).

Files of other types are neither listed nor stored. Of a sheet Drive exports the first tab only.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from documents.markdown.normalization import normalize
from integrations.providers.interface import RawItem, Record, Stream

DOC, SHEET, PDF = "google_drive.doc", "google_drive.sheet", "google_drive.pdf"
STREAMS: Sequence[Stream] = (Stream("files", "drive.files.list", DOC, moves=True),)
ROLLUP = None  # Drive writes no rows of ``client_intelligence``

# Our document type of a MIME type, and the type that Drive exports it to; a PDF is fetched as it is.
# developers.google.com/workspace/drive/api/guides/ref-export-formats
KINDS: Mapping[str, tuple[str, str | None]] = {
    "application/vnd.google-apps.document": (DOC, "text/plain"),
    "application/vnd.google-apps.presentation": (DOC, "text/plain"),
    "application/vnd.google-apps.spreadsheet": (SHEET, "text/csv"),
    "application/pdf": (PDF, None),
}
MOST_CHARS = 200_000  # of a file's stored text
MOST_NAME_CHARS = 500


def file_item(file: Mapping[str, Any], exported_text: str | None) -> RawItem:
    """Return the item of a file of ``files.get`` and its text. Raises ``ValueError`` for another shape."""
    payload = dict(file)
    if exported_text is not None:
        payload["exported_text"] = exported_text[:MOST_CHARS]
    return RawItem(
        external_id=f"file:{_text(file, 'id')}",
        document_type=KINDS[_text(file, "mimeType")][0],
        payload=payload,
        source_created_at=_time(file.get("createdTime")),
        source_updated_at=_time(file.get("modifiedTime")),
        current=True,
    )


def is_supported(file: Mapping[str, Any]) -> bool:
    mime = file.get("mimeType")
    return isinstance(mime, str) and mime in KINDS


def map_record(item: RawItem) -> Record:
    name = _text(item.payload, "name")[:MOST_NAME_CHARS]
    url = _google_url(item.payload.get("webViewLink"))
    if item.document_type == PDF:
        return Record(text="", title=name, url=url, is_pdf=True)
    text = item.payload.get("exported_text")
    if not isinstance(text, str):
        raise ValueError("a file without its text")
    return Record(text=normalize(f"{name}\n\n{text[:MOST_CHARS]}"), title=name, url=url)


def _text(file: Mapping[str, Any], name: str) -> str:
    text = file.get(name)
    if not isinstance(text, str) or (name == "mimeType" and text not in KINDS):
        raise ValueError(f"a file with another {name}")
    return text


def _time(text: object) -> datetime | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError("a file with another time")
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("a time without a zone")
    return time


def _google_url(url: object) -> str | None:
    """Return a link that leads to Google, or None: pages show it."""
    if not isinstance(url, str):
        return None
    parts = urlsplit(url)
    return url if parts.scheme == "https" and (parts.hostname or "").endswith(".google.com") else None
