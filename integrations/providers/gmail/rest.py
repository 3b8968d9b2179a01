"""Gmail over its REST API, version 1: developers.google.com/workspace/gmail/api/reference/rest/v1."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from django.conf import settings

from integrations.models import IngestionJob
from integrations.providers.gmail import mapping, threads
from integrations.providers.id_listing_client import LISTING_SIZE, CursorExpired, IdListingClient, Listing, PendingIds
from integrations.providers.interface import RawItem
from integrations.providers.payload_fields import (
    UnreadableResponse,
    next_page_token,
    object_list,
    require_any,
    required_text,
)
from vendors.calls import VendorRefused

CHANGES = 500  # of the history in one listing
MOVED = {"TRASH", "SPAM"}  # the labels that make a thread come or go; read and starred change nothing


class Client(IdListingClient):
    provider, object_name, document_type = "gmail", "thread", mapping.THREAD
    get_methods = ("gmail.threads.get",)

    def begin(self, kind: str) -> dict[str, Any]:
        """Return the current history id for a full sync; a delta's first page returns it itself."""
        if kind != IngestionJob.Kind.FULL:
            return {}
        # …/users/getProfile; the address in its response is not kept
        profile = self.transport.json("GET", "/users/me/profile", operation="profile")
        return {"threads": required_text(profile, "historyId")}

    def _list_all(self, pending: PendingIds) -> Listing:
        cap = settings.GMAIL_INITIAL_SYNC_MAX_THREADS
        most = cap - pending.listed
        # …/users.threads/list; it leaves out spam and the bin
        body = self.transport.json(
            "GET",
            "/users/me/threads",
            operation="list_threads",
            params={"maxResults": max(1, min(LISTING_SIZE, most)), "pageToken": pending.token},
        )
        require_any(body, "threads", "resultSizeEstimate")
        listed_ids = [required_text(thread, "id") for thread in object_list(body, "threads")]
        ids = tuple(dict.fromkeys(listed_ids[: max(0, most)]))
        token = next_page_token(body)
        listed = pending.listed + len(ids)
        at_cap = listed >= cap and (token is not None or len(listed_ids) > len(ids))
        return Listing(PendingIds(ids, None if at_cap else token, listed, pending.capped or at_cap))

    def _list_changes(self, since: str, pending: PendingIds) -> Listing:
        # …/users.history/list: 404 when ``startHistoryId`` is too old
        try:
            body = self.transport.json(
                "GET",
                "/users/me/history",
                operation="list_history",
                params={"startHistoryId": since, "maxResults": CHANGES, "pageToken": pending.token or None},
            )
        except VendorRefused as refused:
            if refused.status == HTTPStatus.NOT_FOUND:
                raise CursorExpired from refused
            raise
        ids = tuple(dict.fromkeys(id for change in object_list(body, "history") for id in _changed_threads(change)))
        # The first page's: mail that arrives while the others are read is read again by the next delta.
        cursor = pending.cursor or required_text(body, "historyId")
        listed = pending.listed + len(ids)
        return Listing(replace(pending, ids=ids, token=next_page_token(body), listed=listed, cursor=cursor))

    def _fetch(self, id: str, known: Mapping[str, Any] | None = None) -> RawItem:
        try:
            # …/users.threads/get
            thread = self.transport.json(
                "GET", f"/users/me/threads/{id}", operation="get_thread", params={"format": "full"}
            )
        except VendorRefused as refused:
            if refused.status == HTTPStatus.NOT_FOUND:
                return self._deletion(id)
            raise
        payload = threads.thread_payload(thread)
        return mapping.thread_item(payload) if payload else self._deletion(id)


def _changed_threads(change: Mapping[str, Any]) -> Iterator[str]:
    for kind in ("messagesAdded", "messagesDeleted", "labelsAdded", "labelsRemoved"):
        for event in object_list(change, kind):
            message = event.get("message")
            if not isinstance(message, dict):
                raise UnreadableResponse
            is_change = not kind.startswith("labels") or bool(MOVED & _labels(event))
            if is_change and "DRAFT" not in _labels(message):
                yield required_text(message, "threadId")


def _labels(body: Mapping[str, Any]) -> set[str]:
    labels = body.get("labelIds")
    return {label for label in labels if isinstance(label, str)} if isinstance(labels, list) else set()
