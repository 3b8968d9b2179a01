"""Google Drive over Google's MCP server: developers.google.com/workspace/drive/api/reference/mcp.

It promises no order, so a capped sync may keep other files than the newest. Deletions are found by full syncs only. It
returns no checksum of a PDF.
"""

import binascii
import json
from base64 import b64decode
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

from django.conf import settings

from integrations.providers.google_drive.mapping import KINDS
from integrations.providers.interface import CapabilityMissing, Params
from integrations.transports.mcp import McpTransport
from integrations.transports.responses import TooLarge
from vendors.call_failures import InvalidResponse
from vendors.calls import VendorRefused

SEARCH, METADATA, DOWNLOAD, READ = "search_files", "get_file_metadata", "download_file_content", "read_file_content"
SUPPORTED = " or ".join(f"mimeType = '{mime}'" for mime in KINDS)
PAGE = 100
# The tools' field names by the REST API's; a field that is there under the REST API's name goes first.
FIELDS = {name: name for name in ("id", "mimeType", "createdTime", "modifiedTime")}
FIELDS |= {"name": "title", "size": "fileSize", "webViewLink": "viewUrl"}
WRAPPING = 64 * 1024  # bytes of a response around its content


class Transport(McpTransport):
    TOOLS = (SEARCH, METADATA, DOWNLOAD, READ)
    ROUTES = (
        ("GET", r"/files", "files"),
        ("GET", r"/files/([^/]+)", "file"),
        ("GET", r"/changes/startPageToken", "start_page_token"),
        ("GET", r"/changes", "changes"),
    )

    def files(self, operation: str, params: Params) -> dict[str, Any]:
        return self._search(operation, SUPPORTED, params["pageToken"], params["pageSize"])

    def file(self, operation: str, params: Params, id: str) -> dict[str, Any]:
        return self.call_fitting(METADATA, {"fileId": id}, operation, _file)

    def start_page_token(self, operation: str, params: Params) -> dict[str, Any]:
        return {"startPageToken": _now()}

    def changes(self, operation: str, params: Params) -> dict[str, Any]:
        since, began, token = _parse_page_token(params["pageToken"])
        query = f"modifiedTime > '{since}' and ({SUPPORTED})"
        page = self._search(operation, query, token, params["pageSize"])
        changes = [{"changeType": "file", "fileId": file["id"], "file": file} for file in page["files"]]
        token = page.get("nextPageToken")
        next_token = {"nextPageToken": json.dumps([since, began, token])} if token else {"newStartPageToken": began}
        return {"changes": changes, **next_token}

    def stream(self, path: str, *, operation: str, params: Params | None = None, most: int) -> Iterator[bytes]:
        id, mime = path.split("/")[2], (params or {}).get("mimeType")
        if mime is not None and not self.takes(DOWNLOAD, "exportMimeType"):
            yield self.call_fitting(READ, {"fileId": id}, operation, _text)
            return
        arguments = {"fileId": id, "exportMimeType": mime}
        content = self.call_fitting(DOWNLOAD, arguments, operation, _content, most=most * 4 // 3 + WRAPPING)
        if len(content) > most:
            raise TooLarge
        yield content

    def _search(self, operation: str, query: str, token: str | None, size: int) -> dict[str, Any]:
        if not self.takes(SEARCH, "pageToken"):
            raise CapabilityMissing(f"{SEARCH}.pageToken")
        arguments = {
            "query": query,
            "pageToken": token,
            "pageSize": min(PAGE, size),
            # A snippet of each file's content would be read again with the file.
            "excludeContentSnippets": True if self.takes(SEARCH, "excludeContentSnippets") else None,
        }
        return self.call_fitting(SEARCH, arguments, operation, _files)


def _files(body: Mapping[str, Any]) -> dict[str, Any]:
    files = body.get("files", [] if body == {} else None)  # Google omits an empty list
    if not isinstance(files, list):
        raise InvalidResponse("A tool returned no list of files.")
    token = body.get("nextPageToken")
    return {"files": [_file(file) for file in files], **({"nextPageToken": token} if token else {})}


def _file(file: Any) -> dict[str, Any]:
    if not isinstance(file, Mapping):
        raise InvalidResponse("A tool returned no file.")
    fields = {ours: file.get(ours, file.get(theirs)) for ours, theirs in FIELDS.items()}
    fields = {name: field for name, field in fields.items() if field is not None}
    if not isinstance(fields.get("id"), str) or not isinstance(fields.get("mimeType"), str):
        raise InvalidResponse("A tool returned no file.")
    return {**fields, "trashed": file.get("trashed") is True}


def _content(body: Mapping[str, Any]) -> bytes:
    try:
        return b64decode(body["content"], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise InvalidResponse("A tool returned no content.") from None


def _text(body: Mapping[str, Any]) -> bytes:
    text = body.get("fileContent")
    if not isinstance(text, str):
        raise InvalidResponse("A tool returned no content.")
    return text.encode("utf-8", "replace")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _parse_page_token(token: str) -> tuple[str, str, str | None]:
    """Return from when to read, when the delta began, and the tool's own token of its next page."""
    try:
        if token.startswith("["):
            since, began, page_token = json.loads(token)
            return since, began, page_token
        start = datetime.fromisoformat(token) - timedelta(seconds=settings.INGESTION_OVERLAP_SECONDS)
    except ValueError:
        # A cursor of the REST API: this source was fetched over that before.
        raise VendorRefused(HTTPStatus.GONE, None) from None
    return start.isoformat(timespec="seconds"), _now(), None
