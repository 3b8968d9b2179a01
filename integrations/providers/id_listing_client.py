"""Clients of listings that return ids only: each record is fetched by its own call, a batch for a page of the sync."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

from integrations.error_codes import ITEM_UNREADABLE
from integrations.models import ConnectedSource, IngestionJob
from integrations.providers import (
    CapabilityMissing,
    FailedItem,
    Page,
    RawItem,
    Stream,
    all_items,
    stream_for,
)
from integrations.sync.pgmq import raise_if_stopping
from integrations.transports import Transport
from integrations.transports.responses import TooLarge
from jobs.outcomes import Retryable, Wait
from vendors.calls import VendorRefused
from vendors.error_codes import VENDOR_AWAY

BATCH_SIZE = 25  # fetched for one page: some seconds of calls, and little to do again after a crash
LISTING_SIZE = 500  # ids of one listing; they travel in the message, about 10 KB
# So many failures before the first success are the vendor's, not the records' own.
SURELY_AWAY = 3
UNLISTED = ""  # token of a listing that has not begun
PERMANENT_ERRORS = (VendorRefused, TooLarge, ValueError)  # of one record
Fetch = Callable[[str], RawItem]
Fetched = tuple[list[RawItem], list[FailedItem], list[str]]  # what is left to fetch comes last


@dataclass(frozen=True, slots=True)
class PendingIds:
    """Ids that were listed and not fetched yet; travels in ``Page.following``.

    Ids and not positions: a record that changes during the sync moves to the front of the listing, where a reader that
    has passed the front would miss it.
    """

    ids: tuple[str, ...] = ()
    token: str | None = None  # of the listing's next page
    listed: int = 0
    capped: bool = False
    cursor: str | None = None

    @classmethod
    def parse(cls, following: str | None) -> PendingIds:
        if following is None:
            return cls()
        ids, *rest = json.loads(following)
        return cls(tuple(ids), *rest)

    def following(self) -> str | None:
        """Return the token of the sync's next page, or None when nothing is pending."""
        if not self.ids and self.token is None:
            return None
        return json.dumps([self.ids, self.token, self.listed, self.capped, self.cursor], separators=(",", ":"))

    @property
    def is_retry(self) -> bool:
        return bool(self.ids) and self.token == UNLISTED

    @property
    def is_at_start(self) -> bool:
        """Whether the next request is the listing's first page."""
        return not self.ids and not self.token


def retry_cursor(external_ids: Sequence[str]) -> str | None:
    """Return where a delta begins that first fetches again what failed in an earlier sync."""
    ids = tuple(external_id.partition(":")[2] for external_id in external_ids)
    return PendingIds(ids, token=UNLISTED).following() if ids else None


@dataclass(frozen=True, slots=True)
class Listing:
    """The pending ids, the files that the listing has shown whole, and the records that are gone."""

    pending: PendingIds
    known: Mapping[str, Any] = field(default_factory=dict)
    gone: list[RawItem] = field(default_factory=list)


class CursorExpired(Exception):
    """The provider no longer knows the delta's cursor."""


class IdListingClient(ABC):
    """A client with one stream. Subclasses list ids (``_list_all``, ``_list_changes``) and fetch one record."""

    provider: ClassVar[str]
    object_name: ClassVar[str]  # "thread", as in "thread:18c4"
    stream: ClassVar[Stream]
    get_methods: ClassVar[Sequence[str]]

    def __init__(self, source: ConnectedSource, transport: Transport) -> None:
        self.source, self.transport = source, transport

    def page(self, stream: Stream, kind: str, since: Any, following: str | None) -> Page:
        pending, is_delta = PendingIds.parse(following), kind == IngestionJob.Kind.DELTA
        if is_delta and pending.is_at_start and not isinstance(since, str):
            return Page([], expired=True)
        listing = Listing(pending)
        if not pending.ids:
            try:
                listing = self._list_changes(since, pending) if is_delta else self._list_all(pending)
            except CursorExpired:
                return Page([], expired=True)
        return fetch_page(listing, partial(self._fetch, known=listing.known), self.object_name)

    def list(self, method: str, params: Mapping[str, Any] | None = None) -> Iterator[RawItem]:
        """Return the newest records up to the initial sync's cap; takes no ``params``."""
        return all_items(self, stream_for([self.stream], method))

    def get(self, method: str, id: str) -> RawItem:
        if method not in self.get_methods:
            raise CapabilityMissing(method)
        return self._fetch(id.removeprefix(f"{self.object_name}:"))

    def close(self) -> None:
        self.transport.close()

    @abstractmethod
    def begin(self, kind: str) -> dict[str, Any]: ...

    @abstractmethod
    def download(self, item: RawItem) -> Iterator[bytes]: ...

    @abstractmethod
    def _list_all(self, pending: PendingIds) -> Listing:
        """List the next ids, newest first, so that the cap keeps the newest."""

    @abstractmethod
    def _list_changes(self, since: str, pending: PendingIds) -> Listing:
        """List the next ids that changed after ``since``; raise ``CursorExpired`` when that is too long ago."""

    @abstractmethod
    def _fetch(self, id: str, known: Mapping[str, Any] | None = None) -> RawItem:
        """Return one record, or its deletion; raise ``ValueError`` when its payload is malformed."""


def fetch_page(listing: Listing, fetch: Fetch, object_name: str) -> Page:
    """Fetch the next batch of pending ids and return it as a page of the sync.

    A record that cannot be fetched fails alone. When the vendor asks to wait in the middle, the page is what was
    fetched so far: it is not fetched again.
    """
    pending = listing.pending
    batch, rest = pending.ids[:BATCH_SIZE], pending.ids[BATCH_SIZE:]
    items, failed, left = _fetch_batch(batch, fetch, object_name, is_retry=pending.is_retry)
    return Page(
        items=[*listing.gone, *items],
        following=replace(pending, ids=(*left, *rest)).following(),
        failed=failed,
        capped=pending.capped,
        cursor=pending.cursor,
    )


def _fetch_batch(ids: Sequence[str], fetch: Fetch, object_name: str, *, is_retry: bool) -> Fetched:
    """Fetch each id, once more after a fault.

    A record that fails twice is at fault itself and is retried by the next delta; when several fail and none succeeds,
    the vendor is at fault and the page fails. Failures of an earlier sync (``is_retry``) are fetched once and block
    nothing: an open circuit breaker may be due to just these records; the listing will show whether the vendor is away.
    """
    items: list[RawItem] = []
    failed: list[FailedItem] = []
    tried: list[str] = []
    queue = list(ids)
    while queue:
        id = queue.pop(0)
        if not is_retry:
            raise_if_stopping()  # each fetch may take the longest time of a call
        try:
            items.append(fetch(id))
        except Wait as wait:
            if is_retry and wait.reason == VENDOR_AWAY:
                failed += [FailedItem(f"{object_name}:{each}", VENDOR_AWAY, retry=True) for each in (id, *queue)]
                return items, failed, []
            if not items and not failed:
                raise
            return items, failed, [id, *queue]
        except PERMANENT_ERRORS as error:
            failed.append(FailedItem(f"{object_name}:{id}", getattr(error, "code", ITEM_UNREADABLE)))
        except Retryable as error:
            if is_retry or id in tried:
                failed.append(FailedItem(f"{object_name}:{id}", error.code, retry=True))
                continue
            tried.append(id)
            if len(tried) == SURELY_AWAY and not items:
                raise
            queue.append(id)
    return items, failed, []
