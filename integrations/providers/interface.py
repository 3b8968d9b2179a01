"""Provider interface: streams, items, pages, records, clients and their rollup rules (spec 002 §5)."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from importlib import import_module
from typing import Any, ClassVar, Protocol, cast

from django.conf import settings

from accounts.errors import ErrorCode
from integrations.models import ConnectedSource, IngestionJob, SourceDocument

Params = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stream:
    """One kind of object of a provider, listed by one method (spec 002 §5)."""

    name: str  # "contacts"
    method: str  # "hubspot.crm.contacts.list"
    document_type: str  # "hubspot.contact"; of most of its items
    full: bool = True  # part of a full sync
    delta: bool = True  # part of a delta
    # A changed record moves to the front of the listing, where a full sync that has read the front misses it: the full
    # sync therefore ends with the changes since it began.
    moves: bool = False


@dataclass(frozen=True, slots=True)
class RawItem:
    """A record as the provider returned it (spec 002 §7). ``payload`` is stored verbatim, NULs apart."""

    external_id: str  # "contact:512"
    document_type: str  # "hubspot.contact"
    payload: Mapping[str, Any]
    source_created_at: datetime | None = None
    source_updated_at: datetime | None = None
    deleted: bool = False  # gone at the provider: only ``external_id`` and ``document_type`` matter
    # Fetched by its id just now, so newer than the stored row whatever its time says: the time goes back when an older
    # revision of a file is restored or the last message of a thread is deleted. A listing may lag; its time decides.
    current: bool = False


@dataclass(frozen=True, slots=True)
class FailedItem:
    """A record that could not be read although its page could. ``code`` is one of our error codes."""

    external_id: str  # "company:?" when not even its id can be read
    code: ErrorCode
    retry: bool = False  # the next delta fetches it again; only for listings of ids


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a stream. ``next_page`` is where the next page begins, or None after the last."""

    items: list[RawItem]
    next_page: str | None = None
    failed: list[FailedItem] = field(default_factory=list)
    # The listing stopped at a cap or was incomplete: records it has not listed may still exist.
    capped: bool = False
    # The delta's cursor is too old at the provider (Drive 410, Gmail 404): a full sync is needed.
    expired: bool = False
    # The stream's cursor as of this page, or None to keep the one of ``begin`` (Drive returns the next one with its
    # last page only).
    cursor: Any = None


@dataclass(frozen=True, slots=True)
class Record:
    """The searchable form of an item, and its facts for the client's rollup."""

    text: str  # "" is not embedded
    title: str = ""
    url: str | None = None
    parent_external_id: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    is_pdf: bool = False  # its bytes go through the upload pipeline instead of being embedded here


@dataclass(frozen=True, slots=True)
class Client:
    """The columns of ``client_intelligence``, computed from one record or several."""

    client_name: str
    industry: str | None = None
    summary: str | None = None
    key_facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rollup:
    """The facts of a client's children that ``records.client_intelligence`` selects in the database.

    ``newest`` is a fact that sorts as text in the order of time; ties go to the longer, then the greater id.
    """

    document_type: str
    newest: str
    most: int  # children that are shown, the newest
    first: str | None = None  # a fact: children for which it is true are counted, and shown before all others
    total: str | None = None  # an amount, summed over all children


@dataclass(frozen=True, slots=True)
class Children:
    """``newest`` are the children shown, in order; ``count`` and ``total`` cover all that ``Rollup`` selects."""

    newest: Sequence[SourceDocument] = ()
    count: int = 0
    total: Decimal = Decimal(0)


class Transport(Protocol):
    """Requests to one account at a provider: over REST, over MCP, or answered by recorded responses."""

    def json(
        self, method: str, path: str, *, operation: str, params: Params | None = None, body: Params | None = None
    ) -> dict[str, Any]:
        """Return the JSON object of a response, its numbers with a point as ``Decimal``."""

    def stream(self, path: str, *, operation: str, params: Params | None = None, most: int) -> Iterator[bytes]:
        """Yield the bytes of a response; raise ``TooLarge`` once there are more than ``most``."""

    def close(self) -> None: ...


class McpClient(ABC):
    """A tenant's account at a provider, over any transport. Call it outside of transactions.

    Raises what ``vendors.calls`` raises, ``TokenRefused`` and ``CapabilityMissing``.
    """

    provider: ClassVar[str]

    def __init__(self, source: ConnectedSource, transport: Transport) -> None:
        self.source, self.transport = source, transport

    @abstractmethod
    def begin(self, kind: str) -> dict[str, Any]:
        """Return the cursor of each stream before anything is listed: where the next delta begins.

        May be empty where the stream's own records tell the time.
        """

    @abstractmethod
    def page(self, stream: Stream, kind: str, since: Any, page_token: str | None) -> Page:
        """Return one page: of all records (``kind`` full_sync), or of those changed after ``since`` (delta_sync)."""

    def list(self, method: str, params: Mapping[str, Any] | None = None) -> Iterator[RawItem]:
        """Yield every record of a method, page after page; only HubSpot takes ``params``."""
        return self._all_items(stream_for(provider_module(self.provider).STREAMS, method))

    def _all_items(self, stream: Stream) -> Iterator[RawItem]:
        page = self.page(stream, IngestionJob.Kind.FULL, None, None)
        yield from page.items
        while page.next_page is not None:
            page = self.page(stream, IngestionJob.Kind.FULL, None, page.next_page)
            yield from page.items

    @abstractmethod
    def get(self, method: str, id: str) -> RawItem:
        """Return one record by the provider's own id, or ours. Raises ``ValueError`` for a malformed response."""

    def download(self, item: RawItem) -> Iterator[bytes]:
        """Yield the bytes of an item that ``is_pdf``; bounded by MAX_FILE_BYTES."""
        raise CapabilityMissing(f"{self.provider}.download")

    def close(self) -> None:
        self.transport.close()


class Provider(Protocol):
    """Interface of the module ``mapping`` of a provider's package: its streams, and pure functions."""

    STREAMS: Sequence[Stream]

    @property
    def ROLLUP(self) -> Rollup | None:
        """The children that ``build_client`` needs; None when no record is of a client: then it is never called."""

    def map_record(self, item: RawItem) -> Record:
        """Map an item to its stored and searchable form. Pure. Raises ``ValueError`` for an unknown payload."""

    def build_client(self, own: SourceDocument | None, children: Children) -> Client | None:
        """Return the client of a record and its children, or None when there is none.

        The documents have ``document_type``, ``external_id``, ``facts`` and ``title`` only.
        """

    def client_text(self, client: Client) -> str:
        """Return the searchable text of a client, from its own record only: no invoice changes it."""


class TokenRefused(Exception):
    """The provider refuses the access token (401): the next delivery refreshes it first."""


class CapabilityMissing(Exception):
    """The provider's MCP server lacks a tool or an argument. ``capability`` names it."""

    def __init__(self, capability: str) -> None:
        super().__init__(capability)
        self.capability = capability


def provider_module(name: str) -> Provider:
    return cast(Provider, import_module(f"{settings.INTEGRATIONS_PROVIDERS[name]}.mapping"))


def stream_for(streams: Sequence[Stream], method: str) -> Stream:
    """Return the stream that a method lists; raise ``CapabilityMissing`` without one."""
    for stream in streams:
        if stream.method == method:
            return stream
    raise CapabilityMissing(method)
