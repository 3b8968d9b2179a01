"""Google Drive over Google's MCP server: developers.google.com/workspace/drive/api/reference/mcp.

It lists in no promised order, so a capped sync keeps other files than the newest. What was deleted is found by full
syncs only. Of a PDF it tells no checksum.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, cast

from django.conf import settings

from integrations.models import ConnectedSource
from integrations.providers import CapabilityMissing
from integrations.providers.google_drive import KINDS, rest
from integrations.transports.mcp_adapter import McpRestAdapter, Params
from integrations.transports.responses import TooLarge
from integrations.transports.rest import RestTransport
from vendors.guard import InvalidResponse, VendorRefused

SEARCH, METADATA, DOWNLOAD, READ = "search_files", "get_file_metadata", "download_file_content", "read_file_content"
WANTED = " or ".join(f"mimeType = '{mime}'" for mime in KINDS)
PAGE = 100
# The REST API's names of what the tools tell; names that are alike are told first.
FIELDS = {
    "id": "id",
    "name": "title",
    "mimeType": "mimeType",
    "createdTime": "createdTime",
    "modifiedTime": "modifiedTime",
    "size": "fileSize",
    "webViewLink": "viewUrl",
}
WRAPPING = 64 * 1024  # bytes of an answer around its content


class Client(rest.Client):
    """A tenant's files, asked for by the tools of Google's server."""

    def __init__(self, source: ConnectedSource, tools: Any) -> None:
        super().__init__(source, cast(RestTransport, DriveMcpAdapter(source, tools)))


class DriveMcpAdapter(McpRestAdapter):
    TOOLS = (SEARCH, METADATA, DOWNLOAD, READ)
    ROUTES = (
        ("GET", r"/files", "listed"),
        ("GET", r"/files/([^/]+)", "one"),
        ("GET", r"/changes/startPageToken", "now"),
        ("GET", r"/changes", "changed"),
    )

    def listed(self, operation: str, asked: Params) -> dict[str, Any]:
        return self._search(operation, WANTED, asked["pageToken"], asked["pageSize"])

    def one(self, operation: str, asked: Params, id: str) -> dict[str, Any]:
        return self.call(METADATA, {"fileId": id}, operation, _file)

    def now(self, operation: str, asked: Params) -> dict[str, Any]:
        return {"startPageToken": _now()}

    def changed(self, operation: str, asked: Params) -> dict[str, Any]:
        since, began, token = _place(asked["pageToken"])
        query = f"modifiedTime > '{since}' and ({WANTED})"
        found = self._search(operation, query, token, asked["pageSize"])
        changes = [{"changeType": "file", "fileId": file["id"], "file": file} for file in found["files"]]
        token = found.get("nextPageToken")
        onward = {"nextPageToken": json.dumps([since, began, token])} if token else {"newStartPageToken": began}
        return {"changes": changes, **onward}

    def stream(self, path: str, *, operation: str, params: Params | None = None, most: int) -> Iterator[bytes]:
        id, mime = path.split("/")[2], (params or {}).get("mimeType")
        if mime is not None and not self.takes(DOWNLOAD, "exportMimeType"):
            yield self.call(READ, {"fileId": id}, operation, _text)
            return
        wanted = {"fileId": id, "exportMimeType": mime}
        content = self.call(DOWNLOAD, wanted, operation, _content, most=most * 4 // 3 + WRAPPING)
        if len(content) > most:
            raise TooLarge
        yield content

    def _search(self, operation: str, query: str, token: str | None, size: int) -> dict[str, Any]:
        if not self.takes(SEARCH, "pageToken"):
            raise CapabilityMissing(f"{SEARCH}.pageToken")
        # A snippet of each file's content would be read again with the file.
        snippets = True if self.takes(SEARCH, "excludeContentSnippets") else None
        wanted = {"query": query, "pageToken": token, "pageSize": min(PAGE, size), "excludeContentSnippets": snippets}
        return self.call(SEARCH, wanted, operation, _files)


def _files(body: Mapping[str, Any]) -> dict[str, Any]:
    files = body.get("files", [] if body == {} else None)  # Google leaves out what is empty
    if not isinstance(files, list):
        raise InvalidResponse("A tool told no list of files.")
    token = body.get("nextPageToken")
    return {"files": [_file(file) for file in files], **({"nextPageToken": token} if token else {})}


def _file(file: Any) -> dict[str, Any]:
    """Return a file as the REST API shows it."""
    if not isinstance(file, Mapping):
        raise InvalidResponse("A tool told no file.")
    told = {ours: file.get(ours, file.get(theirs)) for ours, theirs in FIELDS.items()}
    found = {name: value for name, value in told.items() if value is not None}
    if not isinstance(found.get("id"), str) or not isinstance(found.get("mimeType"), str):
        raise InvalidResponse("A tool told no file.")
    return {**found, "trashed": file.get("trashed") is True}


def _content(body: Mapping[str, Any]) -> bytes:
    try:
        return b64decode(body["content"], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise InvalidResponse("A tool told no content.") from None


def _text(body: Mapping[str, Any]) -> bytes:
    text = body.get("fileContent")
    if not isinstance(text, str):
        raise InvalidResponse("A tool told no content.")
    return text.encode("utf-8", "replace")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _place(token: str) -> tuple[str, str, str | None]:
    """Return from when on is asked, when the delta began, and the tool's own token of its next page."""
    try:
        if token.startswith("["):
            since, began, following = json.loads(token)
            return since, began, following
        from_ = datetime.fromisoformat(token) - timedelta(seconds=settings.INGESTION_OVERLAP_SECONDS)
    except ValueError:
        # The cursor is the REST API's: this source was fetched over that before.
        raise VendorRefused(HTTPStatus.GONE, None) from None
    return from_.isoformat(timespec="seconds"), _now(), None
