"""Gmail over its REST API, version 1: developers.google.com/workspace/gmail/api/reference/rest/v1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from django.conf import settings

from integrations.models import ConnectedSource, IngestionJob
from integrations.providers import CapabilityMissing, Stream, gmail
from integrations.providers.gmail import STREAMS, threads
from integrations.providers.id_listing import LISTING_SIZE, Listing, PendingIds, all_items, fetch_page
from integrations.providers.listing_response import (
    UnreadableResponse,
    next_page_token,
    object_list,
    require_any,
    require_method,
    required_text,
)
from integrations.transports.fixtures import FixtureTransport
from integrations.transports.rest import RestTransport
from integrations.types import Page, RawItem
from vendors.guard import VendorRefused

CHANGES = 500  # of the history that are listed at once
MOVED = {"TRASH", "SPAM"}  # the labels that make a thread come or go; read and starred change nothing of it


class Client:
    """A tenant's mail."""

    provider = "gmail"

    def __init__(self, source: ConnectedSource, rest: RestTransport | FixtureTransport) -> None:
        self.source, self.rest = source, rest

    def begin(self, kind: str) -> dict[str, Any]:
        """Ask where the history stands; a delta's own first page tells it."""
        if kind != IngestionJob.Kind.FULL:
            return {}
        # …/users/getProfile; the address that it tells as well is not kept
        said = self.rest.json("GET", "/users/me/profile", operation="profile")
        return {"threads": required_text(said, "historyId")}

    def page(self, stream: Stream, kind: str, since: Any, following: str | None) -> Page:
        ahead = PendingIds.parse(following)
        if kind == IngestionJob.Kind.DELTA and ahead.begins and not isinstance(since, str):
            return Page([], expired=True)
        listing = Listing(ahead)
        if not ahead.ids:
            try:
                listing = self._history(since, ahead) if kind == IngestionJob.Kind.DELTA else self._threads(ahead)
            except _TooOld:
                return Page([], expired=True)
        return fetch_page(listing, self._one, "thread")

    def list(self, method: str, params: Mapping[str, Any] | None = None) -> Iterator[RawItem]:
        """Return the newest threads, at most ``GMAIL_INITIAL_SYNC_MAX_THREADS``; takes no ``params``."""
        require_method(method, "gmail.threads.list")
        return all_items(self, STREAMS[0])

    def get(self, method: str, id: str) -> RawItem:
        require_method(method, "gmail.threads.get")
        return self._one(id.removeprefix("thread:"))

    def download(self, item: RawItem) -> Iterator[bytes]:
        raise CapabilityMissing("gmail.download")  # a thread is no file

    def close(self) -> None:
        self.rest.close()

    def _threads(self, ahead: PendingIds) -> Listing:
        """Name the next threads, the newest first; Gmail leaves out spam and what was thrown away."""
        most = settings.GMAIL_INITIAL_SYNC_MAX_THREADS - ahead.listed
        # …/users.threads/list
        said = self.rest.json(
            "GET",
            "/users/me/threads",
            operation="list_threads",
            params={"maxResults": max(1, min(LISTING_SIZE, most)), "pageToken": ahead.token},
        )
        require_any(said, "threads", "resultSizeEstimate")
        found = [required_text(thread, "id") for thread in object_list(said, "threads")]
        ids = tuple(dict.fromkeys(found[: max(0, most)]))
        token = next_page_token(said)
        listed = ahead.listed + len(ids)
        at_cap = listed >= settings.GMAIL_INITIAL_SYNC_MAX_THREADS and (token is not None or len(found) > len(ids))
        return Listing(PendingIds(ids, None if at_cap else token, listed, ahead.capped or at_cap))

    def _history(self, since: str, ahead: PendingIds) -> Listing:
        """Name the threads that changed after ``since``, each once a page."""
        # …/users.history/list: 404 when ``startHistoryId`` is too old
        try:
            said = self.rest.json(
                "GET",
                "/users/me/history",
                operation="list_history",
                params={"startHistoryId": since, "maxResults": CHANGES, "pageToken": ahead.token or None},
            )
        except VendorRefused as refused:
            if refused.status == HTTPStatus.NOT_FOUND:
                raise _TooOld from refused
            raise
        changed = [thread for change in object_list(said, "history") for thread in _changed(change)]
        ids = tuple(dict.fromkeys(changed))
        # The first page's: what comes while the others are read is read again by the next delta.
        cursor = ahead.cursor or required_text(said, "historyId")
        token = next_page_token(said)
        return Listing(replace(ahead, ids=ids, token=token, listed=ahead.listed + len(ids), cursor=cursor))

    def _one(self, thread_id: str) -> RawItem:
        """Return a thread, or that it is gone; raise ``ValueError`` for one of another shape."""
        try:
            # …/users.threads/get
            said = self.rest.json(
                "GET", f"/users/me/threads/{thread_id}", operation="get_thread", params={"format": "full"}
            )
        except VendorRefused as refused:
            if refused.status == HTTPStatus.NOT_FOUND:
                return gmail.deleted_item(thread_id)
            raise
        payload = threads.thread_payload(said)
        return gmail.thread_item(payload) if payload else gmail.deleted_item(thread_id)


class _TooOld(Exception):
    """The delta's cursor is not known any more."""


def _changed(change: Mapping[str, Any]) -> Iterator[str]:
    """Yield the threads that a record of the history tells something new of."""
    for kind in ("messagesAdded", "messagesDeleted", "labelsAdded", "labelsRemoved"):
        for each in object_list(change, kind):
            message = each.get("message")
            if not isinstance(message, dict):
                raise UnreadableResponse
            is_news = not kind.startswith("labels") or bool(MOVED & _labels(each))
            if is_news and "DRAFT" not in _labels(message):
                yield required_text(message, "threadId")


def _labels(said: Mapping[str, Any]) -> set[str]:
    labels = said.get("labelIds")
    return {label for label in labels if isinstance(label, str)} if isinstance(labels, list) else set()
