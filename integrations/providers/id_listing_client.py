"""Clients of listings that return ids only: each record is fetched by its own call, a batch for a page of the sync."""

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from integrations.error_codes import ITEM_UNREADABLE
from integrations.models import IngestionJob
from integrations.providers.interface import CapabilityMissing, FailedItem, McpClient, Page, RawItem, Stream
from integrations.sync.pgmq import raise_if_stopping
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
Fetched = tuple[list[RawItem], list[FailedItem], list[str]]  # what is left to fetch comes last


@dataclass(frozen=True, slots=True)
class PendingIds:
    """Ids that were listed and not fetched yet; travels in ``Page.next_page``.

    Ids and not positions: a record that changes during the sync moves to the front of the listing, where a reader that
    has passed the front would miss it.
    """

    ids: tuple[str, ...] = ()
    token: str | None = None  # of the listing's next page
    listed: int = 0
    capped: bool = False
    cursor: str | None = None

    @classmethod
    def parse(cls, page_token: str | None) -> Self:
        if page_token is None:
            return cls()
        ids, *rest = json.loads(page_token)
        return cls(tuple(ids), *rest)

    def encode(self) -> str | None:
        """Return the token of the sync's next page, or None when nothing is pending."""
        if not self.ids and self.token is None:
            return None
        return json.dumps([self.ids, self.token, self.listed, self.capped, self.cursor], separators=(",", ":"))


def retry_cursor(external_ids: Sequence[str]) -> str | None:
    """Return where a delta begins that first fetches again what failed in an earlier sync."""
    ids = tuple(external_id.partition(":")[2] for external_id in external_ids)
    return PendingIds(ids, token=UNLISTED).encode() if ids else None


@dataclass(frozen=True, slots=True)
class Listing:
    """The pending ids, the files that the listing has shown whole, and the records that are gone."""

    pending: PendingIds
    known: Mapping[str, Any] = field(default_factory=dict)
    gone: list[RawItem] = field(default_factory=list)


class CursorExpired(Exception):
    """The provider no longer knows the delta's cursor."""


class IdListingClient(McpClient):
    """A client with one stream. Subclasses list ids (``_list_all``, ``_list_changes``) and fetch one record."""

    object_name: ClassVar[str]  # "thread", as in "thread:18c4"
    document_type: ClassVar[str]  # of deletions
    get_methods: ClassVar[Sequence[str]]

    def page(self, stream: Stream, kind: str, since: Any, page_token: str | None) -> Page:
        pending, is_delta = PendingIds.parse(page_token), kind == IngestionJob.Kind.DELTA
        if is_delta and not pending.ids and not pending.token and not isinstance(since, str):
            return Page([], expired=True)
        listing = Listing(pending)
        if not pending.ids:
            try:
                listing = self._list_changes(since, pending) if is_delta else self._list_all(pending)
            except CursorExpired:
                return Page([], expired=True)
        pending = listing.pending
        batch, rest = pending.ids[:BATCH_SIZE], pending.ids[BATCH_SIZE:]
        items, failed, left = self._fetch_batch(
            batch, listing.known, is_retry=bool(pending.ids) and pending.token == UNLISTED
        )
        page_token = replace(pending, ids=(*left, *rest)).encode()
        return Page([*listing.gone, *items], page_token, failed, capped=pending.capped, cursor=pending.cursor)

    def get(self, method: str, id: str) -> RawItem:
        if method not in self.get_methods:
            raise CapabilityMissing(method)
        return self._fetch(id.removeprefix(f"{self.object_name}:"))

    def _fetch_batch(self, ids: Sequence[str], known: Mapping[str, Any], *, is_retry: bool) -> Fetched:
        """Fetch each id, once more after a fault. When the vendor asks to wait, return what was fetched so far.

        A record that fails twice is at fault itself and is retried by the next delta; when several fail and none
        succeeds, the vendor is at fault and the page fails. Failures of an earlier sync (``is_retry``) are fetched once
        and block nothing: an open circuit breaker may be due to just these records; the listing will show whether the
        vendor is away.
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
                items.append(self._fetch(id, known))
            except Wait as wait:
                if is_retry and wait.reason == VENDOR_AWAY:
                    failed += [
                        FailedItem(f"{self.object_name}:{each}", VENDOR_AWAY, retry=True) for each in (id, *queue)
                    ]
                    return items, failed, []
                if not items and not failed:
                    raise
                return items, failed, [id, *queue]
            except PERMANENT_ERRORS as error:
                failed.append(FailedItem(f"{self.object_name}:{id}", getattr(error, "code", ITEM_UNREADABLE)))
            except Retryable as error:
                if is_retry or id in tried:
                    failed.append(FailedItem(f"{self.object_name}:{id}", error.code, retry=True))
                    continue
                tried.append(id)
                if len(tried) == SURELY_AWAY and not items:
                    raise
                queue.append(id)
        return items, failed, []

    def _deletion(self, id: str) -> RawItem:
        return RawItem(f"{self.object_name}:{id}", self.document_type, {}, deleted=True)

    @abstractmethod
    def _list_all(self, pending: PendingIds) -> Listing:
        """List the next ids, newest first, so that the cap keeps the newest."""

    @abstractmethod
    def _list_changes(self, since: str, pending: PendingIds) -> Listing:
        """List the next ids that changed after ``since``; raise ``CursorExpired`` when that is too long ago."""

    @abstractmethod
    def _fetch(self, id: str, known: Mapping[str, Any] | None = None) -> RawItem:
        """Return one record, or its deletion; raise ``ValueError`` when its payload is malformed."""
