"""Google Drive over its REST API, version 3: developers.google.com/workspace/drive/api/reference/rest/v3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any

from django.conf import settings

from integrations.models import ConnectedSource, IngestionJob
from integrations.providers import Stream, google_drive
from integrations.providers.google_drive import KINDS, STREAMS
from integrations.providers.id_listing import LISTING_SIZE, Listing, PendingIds, all_items, fetch_page
from integrations.providers.listing_response import (
    next_page_token,
    object_list,
    require_any,
    require_method,
    required_text,
)
from integrations.transports.fixtures import FixtureTransport
from integrations.transports.responses import TooLarge
from integrations.transports.rest import RestTransport
from integrations.types import Page, RawItem
from vendors.guard import VendorRefused

FILE = "id,name,mimeType,createdTime,modifiedTime,size,md5Checksum,trashed,webViewLink"
WANTED = "trashed=false and (" + " or ".join(f"mimeType='{mime}'" for mime in KINDS) + ")"
DRIVES = {"supportsAllDrives": "true", "includeItemsFromAllDrives": "true"}
CHANGES = 100  # listed at once
MOST_EXPORTED = 10 * 1024 * 1024  # Drive's own limit of an export
# A page token that Drive does not know any more; told in three ways.
TOO_OLD = {HTTPStatus.GONE, HTTPStatus.NOT_FOUND, HTTPStatus.BAD_REQUEST}


class Client:
    """A tenant's files."""

    provider = "google_drive"

    def __init__(self, source: ConnectedSource, rest: RestTransport | FixtureTransport) -> None:
        self.source, self.rest = source, rest

    def begin(self, kind: str) -> dict[str, Any]:
        """Ask where the changes stand; a delta's own last page tells it."""
        if kind != IngestionJob.Kind.FULL:
            return {}
        # …/changes/getStartPageToken
        said = self.rest.json(
            "GET", "/changes/startPageToken", operation="start_page_token", params={"supportsAllDrives": "true"}
        )
        return {"files": required_text(said, "startPageToken")}

    def page(self, stream: Stream, kind: str, since: Any, following: str | None) -> Page:
        ahead = PendingIds.parse(following)
        if kind == IngestionJob.Kind.DELTA and ahead.begins and not isinstance(since, str):
            return Page([], expired=True)
        listing = Listing(ahead)
        if not ahead.ids:
            try:
                listing = self._listed(kind, since, ahead)
            except _TooOld:
                return Page([], expired=True)
        return fetch_page(listing, partial(self._one, known=listing.known), "file")

    def list(self, method: str, params: Mapping[str, Any] | None = None) -> Iterator[RawItem]:
        """Return the newest files, at most ``DRIVE_INITIAL_SYNC_MAX_FILES``; takes no ``params``."""
        require_method(method, "drive.files.list")
        return all_items(self, STREAMS[0])

    def get(self, method: str, id: str) -> RawItem:
        require_method(method, "drive.files.get", "drive.files.export")
        return self._one(id.removeprefix("file:"))

    def download(self, item: RawItem) -> Iterator[bytes]:
        # …/files/get with alt=media
        return self.rest.stream(
            f"/files/{item.external_id.removeprefix('file:')}",
            operation="download",
            params={"alt": "media", "supportsAllDrives": "true"},
            most=settings.MAX_FILE_BYTES,
        )

    def close(self) -> None:
        self.rest.close()

    def _listed(self, kind: str, since: Any, ahead: PendingIds) -> Listing:
        return self._changes(since, ahead) if kind == IngestionJob.Kind.DELTA else self._files(ahead)

    def _files(self, ahead: PendingIds) -> Listing:
        """Name the next files, the newest first, so that the cap keeps those that matter most."""
        most = settings.DRIVE_INITIAL_SYNC_MAX_FILES - ahead.listed
        # …/files/list
        said = self.rest.json(
            "GET",
            "/files",
            operation="list_files",
            params={
                "q": WANTED,
                "orderBy": "modifiedTime desc",
                "pageSize": max(1, min(LISTING_SIZE, most)),
                "pageToken": ahead.token,
                "fields": f"nextPageToken,incompleteSearch,files({FILE})",
                **DRIVES,
            },
        )
        require_any(said, "files")
        files = object_list(said, "files")
        known = {required_text(file, "id"): file for file in files[: max(0, most)] if google_drive.is_supported(file)}
        token = next_page_token(said)
        listed = ahead.listed + len(known)
        at_cap = listed >= settings.DRIVE_INITIAL_SYNC_MAX_FILES and (token is not None or len(files) > len(known))
        capped = ahead.capped or at_cap or said.get("incompleteSearch") is True
        return Listing(PendingIds(tuple(known), None if at_cap else token, listed, capped), known)

    def _changes(self, since: str, ahead: PendingIds) -> Listing:
        """Name the next files that changed after ``since``; those that are gone need no call."""
        # …/changes/list
        try:
            said = self.rest.json(
                "GET",
                "/changes",
                operation="list_changes",
                params={
                    "pageToken": ahead.token or since,
                    "pageSize": CHANGES,
                    "fields": f"nextPageToken,newStartPageToken,changes(changeType,removed,fileId,file({FILE}))",
                    "includeRemoved": "true",
                    **DRIVES,
                },
            )
        except VendorRefused as refused:
            if refused.status in TOO_OLD:
                raise _TooOld from refused
            raise
        require_any(said, "nextPageToken", "newStartPageToken")
        changes = [change for change in object_list(said, "changes") if change.get("changeType", "file") == "file"]
        last = {required_text(change, "fileId"): change for change in changes}  # the later of two
        gone = [google_drive.deleted_item(file_id) for file_id, change in last.items() if _is_gone(change)]
        known = {file_id: change["file"] for file_id, change in last.items() if _is_there(change)}
        return Listing(
            replace(
                ahead,
                ids=tuple(known),
                token=next_page_token(said),
                listed=ahead.listed + len(known),
                cursor=said.get("newStartPageToken"),
            ),
            known,
            gone,
        )

    def _one(self, file_id: str, known: Mapping[str, Any] | None = None) -> RawItem:
        """Return a file with its text; raise ``ValueError`` for one of another shape."""
        try:
            file = (known or {}).get(file_id) or self._file(file_id)
            if file.get("trashed") is True or not google_drive.is_supported(file):
                return google_drive.deleted_item(file_id)
            exported = KINDS[file["mimeType"]][1]
            return google_drive.file_item(file, self._text(file_id, exported) if exported else None)
        except VendorRefused as refused:
            if refused.status == HTTPStatus.NOT_FOUND:
                return google_drive.deleted_item(file_id)
            raise

    def _file(self, file_id: str) -> dict[str, Any]:
        # …/files/get
        return self.rest.json(
            "GET",
            f"/files/{file_id}",
            operation="get_file",
            params={"fields": FILE, "supportsAllDrives": "true"},
        )

    def _text(self, file_id: str, mime: str) -> str:
        # …/files/export: at most 10 MB; beyond it answers 403 exportSizeLimitExceeded
        pieces = self.rest.stream(
            f"/files/{file_id}/export", operation="export", params={"mimeType": mime}, most=MOST_EXPORTED
        )
        try:
            return b"".join(pieces).decode("utf-8-sig", "replace")
        except VendorRefused as refused:
            if refused.vendor_code == "exportSizeLimitExceeded":
                raise TooLarge from refused
            raise


class _TooOld(Exception):
    """The delta's cursor is not known any more."""


def _is_gone(change: Mapping[str, Any]) -> bool:
    file = change.get("file")
    return change.get("removed") is True or (isinstance(file, dict) and file.get("trashed") is True)


def _is_there(change: Mapping[str, Any]) -> bool:
    file = change.get("file")
    return not _is_gone(change) and isinstance(file, dict) and google_drive.is_supported(file)
