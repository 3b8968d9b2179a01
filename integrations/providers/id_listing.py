"""Listings that name their records only: each is fetched by a call of its own, a batch to a page of the sync."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from integrations.models import IngestionJob
from integrations.providers import McpClient, Stream
from integrations.sync import shutdown
from integrations.transports.responses import TooLarge
from integrations.types import FailedItem, Page, RawItem
from jobs.outcomes import Postponed, Retryable
from vendors.guard import AWAY, VendorRefused

BATCH_SIZE = 25  # fetched for one page: some seconds of calls, and little to do again after a crash
LISTING_SIZE = 500  # of ids that one listing names; they travel in the message, about 10 KB
UNREADABLE = "ITEM_UNREADABLE"
# So many failures before anything has gone well are not single records' own.
SURELY_AWAY = 3
UNLISTED = ""  # in place of a listing's token: it has not begun
REFUSED = (VendorRefused, TooLarge, ValueError)  # of this record, and for good
Fetch = Callable[[str], RawItem]


@dataclass(frozen=True, slots=True)
class PendingIds:
    """What a listing has named and nobody has fetched yet; travels in ``Page.following``.

    Ids and not places in a listing: a record that changes during the sync moves to the front of it, and would be
    missed by whoever has read the front already.
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
        """Return it for the next page, or None when nothing is ahead."""
        if not self.ids and self.token is None:
            return None
        return json.dumps([self.ids, self.token, self.listed, self.capped, self.cursor], separators=(",", ":"))

    @property
    def is_again(self) -> bool:
        return bool(self.ids) and self.token == UNLISTED

    @property
    def begins(self) -> bool:
        """Tell whether the next thing is to ask for the listing's first page."""
        return not self.ids and not self.token


def retry_cursor(external_ids: Sequence[str]) -> str | None:
    """Return where a delta begins that first tries again what failed in an earlier sync."""
    ids = tuple(external_id.partition(":")[2] for external_id in external_ids)
    return PendingIds(ids, token=UNLISTED).following() if ids else None


@dataclass(frozen=True, slots=True)
class Listing:
    """What is ahead, what the listing has told of it already, and the records that it tells are gone."""

    ahead: PendingIds
    known: Mapping[str, Any] = field(default_factory=dict)
    gone: list[RawItem] = field(default_factory=list)


def fetch_page(listing: Listing, one: Fetch, object_name: str) -> Page:
    """Fetch the next batch of what is ahead and return it as a page of the sync.

    A record that cannot be had costs only itself. When the vendor asks to wait in the middle, what was fetched so far
    is the page: it is not fetched again.
    """
    ahead = listing.ahead
    batch, rest = ahead.ids[:BATCH_SIZE], ahead.ids[BATCH_SIZE:]
    fetched = _fetched_again if ahead.is_again else _fetched
    items, failed, left = fetched(batch, one, object_name)
    ahead = replace(ahead, ids=(*left, *rest))
    return Page(
        items=[*listing.gone, *items],
        following=ahead.following(),
        failed=failed,
        capped=ahead.capped,
        cursor=ahead.cursor,
    )


def all_items(client: McpClient, stream: Stream) -> Iterator[RawItem]:
    """Yield all records of a full sync, page after page."""
    page = client.page(stream, IngestionJob.Kind.FULL, None, None)
    yield from page.items
    while page.following is not None:
        page = client.page(stream, IngestionJob.Kind.FULL, None, page.following)
        yield from page.items


def _fetched(ids: Sequence[str], one: Fetch, object_name: str) -> tuple[list[RawItem], list[FailedItem], list[str]]:
    """Return what was fetched, what failed, and what is left to fetch because the vendor asked to wait.

    What fails twice is its own trouble, and comes again; where several fail and nothing goes well it is the vendor's,
    and so the whole page's.
    """
    items: list[RawItem] = []
    failed: list[FailedItem] = []
    tried: list[str] = []
    queue = list(ids)
    while queue:
        wanted = queue.pop(0)
        shutdown.raise_if_stopping()  # each may take a call's longest
        try:
            items.append(one(wanted))
        except Postponed:
            if not items and not failed:
                raise
            return items, failed, [wanted, *queue]
        except REFUSED as error:
            failed.append(_never(object_name, wanted, error))
        except Retryable as error:
            if wanted in tried:
                failed.append(FailedItem(f"{object_name}:{wanted}", error.code, retry=True))
                continue
            tried.append(wanted)
            if len(tried) == SURELY_AWAY and not items:
                raise
            queue.append(wanted)  # once more, behind all others
    return items, failed, []


def _fetched_again(
    ids: Sequence[str], one: Fetch, object_name: str
) -> tuple[list[RawItem], list[FailedItem], list[str]]:
    """As ``_fetched``, of what failed in an earlier sync: it holds up nothing, and has the next delta as well.

    A breaker that is open may be so because of just these; whether the vendor is away, the listing will tell.
    """
    items: list[RawItem] = []
    failed: list[FailedItem] = []
    for at, wanted in enumerate(ids):
        try:
            items.append(one(wanted))
        except Postponed as postponed:
            if postponed.wait.reason == AWAY:
                failed += [FailedItem(f"{object_name}:{each}", AWAY, retry=True) for each in ids[at:]]
                return items, failed, []
            if not items and not failed:
                raise
            return items, failed, list(ids[at:])
        except REFUSED as error:
            failed.append(_never(object_name, wanted, error))
        except Retryable as error:
            failed.append(FailedItem(f"{object_name}:{wanted}", error.code, retry=True))
    return items, failed, []


def _never(object_name: str, wanted: str, error: Exception) -> FailedItem:
    return FailedItem(f"{object_name}:{wanted}", getattr(error, "code", UNREADABLE))
