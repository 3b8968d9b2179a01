"""Client of the fake provider: its records are those of ``account``, which a test fills."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from integrations.models import ConnectedSource
from integrations.providers.interface import Page, RawItem, Stream


@dataclass
class Account:
    """``pages``: by stream, what a listing shows; of a delta under "stream+". ``asked`` is what was asked for."""

    pages: dict[str, list[Page]] = field(default_factory=dict)
    begun: dict[str, Any] = field(default_factory=lambda: {"companies": 1, "deals": 1})
    requests: list[tuple[str, str, Any, str | None]] = field(default_factory=list)
    raises: list[Exception] = field(default_factory=list)
    before: Callable[[], object] | None = None  # what happens in the world just before a page is answered
    files: dict[str, bytes] = field(default_factory=dict)
    downloads: list[str] = field(default_factory=list)
    during: Callable[[str], object] | None = None  # what happens while a file is being downloaded
    closed: int = 0

    def list(self, stream: str, *items: RawItem, size: int = 100, **last: Any) -> None:
        """Show these records, so many a page."""
        starts = range(0, max(1, len(items)), size)
        pages = [Page(list(items[start : start + size]), next_page=str(at + 1)) for at, start in enumerate(starts)]
        self.pages[stream] = [*pages[:-1], Page(pages[-1].items, **last)]


account = Account()


class Client:
    provider = "hubspot"

    def __init__(self, source: ConnectedSource, rest: object) -> None:
        """Its transport is ``account``."""

    def begin(self, kind: str) -> dict[str, Any]:
        return dict(account.begun)

    def page(self, stream: Stream, kind: str, since: Any, page_token: str | None) -> Page:
        account.requests.append((stream.name, kind, since, page_token))
        if account.before:
            account.before()
        if account.raises:
            raise account.raises.pop(0)
        name = stream.name if kind == "full_sync" else f"{stream.name}+"
        pages = account.pages.get(name, [Page([])])
        return pages[int(page_token or 0)]

    def list(self, method: str, params: Mapping[str, Any] | None = None) -> Iterator[RawItem]:
        raise NotImplementedError

    def get(self, method: str, id: str) -> RawItem:
        raise NotImplementedError

    def download(self, item: RawItem) -> Iterator[bytes]:
        account.downloads.append(item.external_id)
        if account.during:
            account.during(item.external_id)
        yield account.files[item.external_id]

    def close(self) -> None:
        account.closed += 1
