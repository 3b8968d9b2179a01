"""Google Drive over its REST API, version 3: developers.google.com/workspace/drive/api/reference/rest/v3."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from django.conf import settings

from integrations.models import IngestionJob
from integrations.providers.google_drive import mapping
from integrations.providers.google_drive.mapping import KINDS
from integrations.providers.id_listing_client import LISTING_SIZE, CursorExpired, IdListingClient, Listing, PendingIds
from integrations.providers.interface import RawItem
from integrations.providers.payload_fields import next_page_token, object_list, require_any, required_text
from integrations.transports.responses import TooLarge
from vendors.calls import VendorRefused

FILE = "id,name,mimeType,createdTime,modifiedTime,size,md5Checksum,trashed,webViewLink"
SUPPORTED = "trashed=false and (" + " or ".join(f"mimeType='{mime}'" for mime in KINDS) + ")"
DRIVES = {"supportsAllDrives": "true", "includeItemsFromAllDrives": "true"}
CHANGES = 100  # in one listing
MOST_EXPORTED = 10 * 1024 * 1024  # Drive's own limit of an export
# Drive's statuses for a page token that it no longer knows.
TOO_OLD = {HTTPStatus.GONE, HTTPStatus.NOT_FOUND, HTTPStatus.BAD_REQUEST}


class Client(IdListingClient):
    provider, object_name, document_type = "google_drive", "file", mapping.DOC
    get_methods = ("drive.files.get", "drive.files.export")

    def begin(self, kind: str) -> dict[str, Any]:
        """Return the current page token of changes for a full sync; a delta's last page returns it itself."""
        if kind != IngestionJob.Kind.FULL:
            return {}
        # …/changes/getStartPageToken
        body = self.transport.json(
            "GET", "/changes/startPageToken", operation="start_page_token", params={"supportsAllDrives": "true"}
        )
        return {"files": required_text(body, "startPageToken")}

    def download(self, item: RawItem) -> Iterator[bytes]:
        # …/files/get with alt=media
        return self.transport.stream(
            f"/files/{item.external_id.removeprefix('file:')}",
            operation="download",
            params={"alt": "media", "supportsAllDrives": "true"},
            most=settings.MAX_FILE_BYTES,
        )

    def _list_all(self, pending: PendingIds) -> Listing:
        cap = settings.DRIVE_INITIAL_SYNC_MAX_FILES
        most = cap - pending.listed
        # …/files/list
        params = {
            "q": SUPPORTED,
            "orderBy": "modifiedTime desc",
            "pageSize": max(1, min(LISTING_SIZE, most)),
            "pageToken": pending.token,
            "fields": f"nextPageToken,incompleteSearch,files({FILE})",
            **DRIVES,
        }
        body = self.transport.json("GET", "/files", operation="list_files", params=params)
        require_any(body, "files")
        files = object_list(body, "files")
        known = {required_text(file, "id"): file for file in files[: max(0, most)] if mapping.is_supported(file)}
        token = next_page_token(body)
        listed = pending.listed + len(known)
        at_cap = listed >= cap and (token is not None or len(files) > len(known))
        capped = pending.capped or at_cap or body.get("incompleteSearch") is True
        return Listing(PendingIds(tuple(known), None if at_cap else token, listed, capped), known)

    def _list_changes(self, since: str, pending: PendingIds) -> Listing:
        # …/changes/list
        params = {
            "pageToken": pending.token or since,
            "pageSize": CHANGES,
            "fields": f"nextPageToken,newStartPageToken,changes(changeType,removed,fileId,file({FILE}))",
            "includeRemoved": "true",
            **DRIVES,
        }
        try:
            body = self.transport.json("GET", "/changes", operation="list_changes", params=params)
        except VendorRefused as refused:
            if refused.status in TOO_OLD:
                raise CursorExpired from refused
            raise
        require_any(body, "nextPageToken", "newStartPageToken")
        changes = [change for change in object_list(body, "changes") if change.get("changeType", "file") == "file"]
        last = {required_text(change, "fileId"): change for change in changes}  # the later of two changes of a file
        gone, known = [], {}
        for file_id, change in last.items():
            file = change.get("file")
            if change.get("removed") is True or (isinstance(file, dict) and file.get("trashed") is True):
                gone.append(self._deletion(file_id))  # needs no call
            elif isinstance(file, dict) and mapping.is_supported(file):
                known[file_id] = file
        token, cursor, listed = next_page_token(body), body.get("newStartPageToken"), pending.listed + len(known)
        return Listing(replace(pending, ids=tuple(known), token=token, listed=listed, cursor=cursor), known, gone)

    def _fetch(self, id: str, known: Mapping[str, Any] | None = None) -> RawItem:
        try:
            file = (known or {}).get(id)
            if not file:  # …/files/get
                params = {"fields": FILE, "supportsAllDrives": "true"}
                file = self.transport.json("GET", f"/files/{id}", operation="get_file", params=params)
            if file.get("trashed") is True or not mapping.is_supported(file):
                return self._deletion(id)
            export_type = KINDS[file["mimeType"]][1]
            return mapping.file_item(file, self._export(id, export_type) if export_type else None)
        except VendorRefused as refused:
            if refused.status == HTTPStatus.NOT_FOUND:
                return self._deletion(id)
            raise

    def _export(self, file_id: str, mime: str) -> str:
        # …/files/export: at most 10 MB; beyond it answers 403 exportSizeLimitExceeded
        pieces = self.transport.stream(
            f"/files/{file_id}/export", operation="export", params={"mimeType": mime}, most=MOST_EXPORTED
        )
        try:
            return b"".join(pieces).decode("utf-8-sig", "replace")
        except VendorRefused as refused:
            if refused.vendor_code == "exportSizeLimitExceeded":
                raise TooLarge from refused
            raise
