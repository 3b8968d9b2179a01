"""Fake Google Drive files: listing, export, download and the change feed."""

import hashlib
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from testing.fakes.http_messages import ErrorResponse, Request, Response, json_response

DOCUMENT = "application/vnd.google-apps.document"
SPREADSHEET = "application/vnd.google-apps.spreadsheet"
NATIVE = "application/vnd.google-apps."
EXPORTS = {
    DOCUMENT: {"text/plain", "text/markdown", "application/pdf"},
    SPREADSHEET: {"text/csv", "application/pdf"},
    f"{NATIVE}presentation": {"text/plain", "application/pdf"},
}
MOST_EXPORTED = 10 * 1024 * 1024
DEFAULT_FIELDS = ("kind", "id", "name", "mimeType")
BEGAN = datetime(2025, 1, 1, tzinfo=UTC)


class Found(NamedTuple):
    """An answer, and the thing that it gives out."""

    answer: Response
    thing: str = ""


class Drive:
    """``put``, ``trash`` and ``remove`` are what people do to files; each is a change with a number."""

    def __init__(self, no: Callable[..., ErrorResponse]) -> None:
        self.no = no
        self.files: dict[str, dict[str, Any]] = {}
        self.contents: dict[str, bytes] = {}
        self.changes: list[str] = []  # ids of files; a change's number is its place
        self.oldest = 0  # the first page token that is still known
        self.most = 1000  # a page is never longer, whatever is asked
        self.incomplete = False
        self.undownloadable: set[str] = set()

    def put(self, file_id: str, content: bytes | str = b"", *, mime: str = DOCUMENT, **fields: Any) -> None:
        """Make or change a file; native ones have no size and no checksum."""
        content = content.encode() if isinstance(content, str) else content
        moment = BEGAN + timedelta(minutes=len(self.changes))
        file = {
            "kind": "drive#file",
            "id": file_id,
            "name": fields.pop("name", file_id),
            "mimeType": mime,
            "createdTime": self.files.get(file_id, {}).get("createdTime") or _told(moment),
            "modifiedTime": _told(moment),
            "trashed": False,
            "webViewLink": f"https://docs.google.com/document/d/{file_id}/edit",
            **fields,
        }
        if not mime.startswith(NATIVE):
            digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
            file = {"size": str(len(content)), "md5Checksum": digest, **file}
        self.files[file_id], self.contents[file_id] = file, content
        self.changes.append(file_id)

    def trash(self, file_id: str) -> None:
        self.files[file_id] = {**self.files[file_id], "trashed": True}
        self.changes.append(file_id)

    def remove(self, file_id: str) -> None:
        """Delete for good, or take the account's access away: it is told the same."""
        self.files.pop(file_id, None)
        self.changes.append(file_id)

    def forget_changes(self) -> None:
        """Know no page token any more that was told until now."""
        self.changes.append("")
        self.oldest = len(self.changes)

    def answer(self, parts: list[str], request: Request) -> Found:
        match parts:
            case ["files"]:
                return Found(self._list(request))
            case ["files", file_id]:
                if request.parameter("alt") == "media":
                    return Found(self._media(file_id), f"media:{file_id}")
                return Found(json_response(_shown(self._file(file_id), request.parameter("fields"))))
            case ["files", file_id, "export"]:
                return Found(self._export(file_id, request), f"export:{file_id}")
            case ["changes", "startPageToken"]:
                return Found(json_response({"kind": "drive#startPageToken", "startPageToken": str(len(self.changes))}))
            case ["changes"]:
                return Found(self._changed(request))
        raise self.no(404)

    def _file(self, file_id: str) -> dict[str, Any]:
        if file_id not in self.files:
            raise self.no(404)
        return self.files[file_id]

    def _list(self, request: Request) -> Response:
        query = request.parameter("q") or ""
        mimes = set(re.findall(r"mimeType='([^']+)'", query))
        files = [
            file
            for file in self.files.values()
            if (not mimes or file["mimeType"] in mimes) and not ("trashed=false" in query and file["trashed"])
        ]
        if request.parameter("orderBy") == "modifiedTime desc":
            files.sort(key=lambda file: file["modifiedTime"], reverse=True)
        size = min(int(request.parameter("pageSize") or 100), self.most)
        start = int((request.parameter("pageToken") or "~!!~0").removeprefix("~!!~"))
        fields = _inner(request, "files")
        body: dict[str, Any] = {"kind": "drive#fileList", "incompleteSearch": self.incomplete}
        if start + size < len(files):
            body["nextPageToken"] = f"~!!~{start + size}"
        return json_response({**body, "files": [_shown(file, fields) for file in files[start : start + size]]})

    def _media(self, file_id: str) -> Response:
        file = self._file(file_id)
        if file["mimeType"].startswith(NATIVE) or file_id in self.undownloadable:
            raise self.no(403, "fileNotDownloadable")
        return Response(200, self.contents[file_id], {"Content-Type": file["mimeType"]})

    def _export(self, file_id: str, request: Request) -> Response:
        file, mime = self._file(file_id), request.parameter("mimeType") or ""
        if mime not in EXPORTS.get(file["mimeType"], ()):
            raise self.no(400, "badRequest")
        if len(self.contents[file_id]) > MOST_EXPORTED:
            raise self.no(403, "exportSizeLimitExceeded")
        return Response(200, self.contents[file_id], {"Content-Type": mime})

    def _changed(self, request: Request) -> Response:
        token = request.parameter("pageToken") or ""
        if not token.isdigit():
            raise self.no(400)
        start = int(token)
        if start < self.oldest:
            raise self.no(410)
        size = min(int(request.parameter("pageSize") or 100), self.most)
        fields = _inner(request, "file")
        shown = [self._change(file_id, fields) for file_id in self.changes[start : start + size] if file_id]
        body: dict[str, Any] = {"kind": "drive#changeList", "changes": shown}
        if start + size < len(self.changes):
            return json_response({**body, "nextPageToken": str(start + size)})
        return json_response({**body, "newStartPageToken": str(len(self.changes))})

    def _change(self, file_id: str, fields: str | None) -> dict[str, Any]:
        change = {"kind": "drive#change", "changeType": "file", "fileId": file_id, "removed": file_id not in self.files}
        if file_id in self.files:
            change["file"] = _shown(self.files[file_id], fields)
        return change


def _told(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S}.000Z"


def _inner(request: Request, name: str) -> str | None:
    """Return the fields that are asked of each: ``files(id,name)``."""
    match = re.search(rf"\b{name}\(([^()]*)\)", request.parameter("fields") or "")
    return match[1] if match else None


def _shown(file: dict[str, Any], fields: str | None) -> dict[str, Any]:
    names = fields.split(",") if fields else DEFAULT_FIELDS
    return {name: file[name] for name in names if name in file}
