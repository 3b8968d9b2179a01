"""The providers behind one face: what each has to tell, and what is made of it (spec 002 §5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from integrations.models import SourceDocument
from integrations.providers.rollup_rules import Children, Rollup
from integrations.types import Client, Page, RawItem, Record


@dataclass(frozen=True, slots=True)
class Stream:
    """One kind of object of a provider, listed by one method (spec 002 §5)."""

    name: str  # "contacts"
    method: str  # "hubspot.crm.contacts.list"
    document_type: str  # "hubspot.contact"; of most of what it brings
    full: bool = True  # part of a full sync
    delta: bool = True  # part of a delta
    # A record that changes moves to the front of the listing, behind whoever has read the front: what a full sync did
    # not see, the changes since it began may show.
    moves: bool = False


class McpClient(Protocol):
    """A tenant's account at a provider, over either transport. Call it outside of transactions.

    Raises what ``vendors.guard`` raises, ``TokenRefused`` and ``CapabilityMissing``.
    """

    @property
    def provider(self) -> str: ...

    def begin(self, kind: str) -> dict[str, Any]:
        """Return, before anything is listed, where each stream stands: the next delta's cursor by stream's name.

        May be empty where the stream's own records tell the time.
        """
        ...

    def page(self, stream: Stream, kind: str, since: Any, following: str | None) -> Page:
        """Return one page: of all records (``kind`` full_sync), or of what changed after ``since`` (delta_sync)."""
        ...

    def list(self, method: str, params: Mapping[str, Any] | None = None) -> Iterator[RawItem]:
        """Yield every record of a method, page after page."""
        ...

    def get(self, method: str, id: str) -> RawItem: ...

    def download(self, item: RawItem) -> Iterator[bytes]:
        """Yield the bytes of an item that ``is_pdf``; bounded by MAX_FILE_BYTES."""
        ...

    def close(self) -> None: ...


class Provider(Protocol):
    """A module of ``integrations.providers``: pure functions, and the clients of both transports."""

    STREAMS: Sequence[Stream]

    @property
    def ROLLUP(self) -> Rollup | None:
        """What ``client`` is to be told of the records that count for one; None: nothing counts for any."""
        ...

    def map_record(self, item: RawItem) -> Record:
        """Map an item to what is stored and found. Pure. Raises ``ValueError`` for a payload of another shape."""
        ...

    def build_client(self, own: SourceDocument | None, children: Children) -> Client | None:
        """Return what a client's own record and those that count for it tell; None when no client is told, or ``own``.

        These have ``document_type``, ``external_id``, ``facts`` and ``title`` only.
        """
        ...

    def client_text(self, client: Client) -> str:
        """Return the text that a client is found by: of what its own record tells, so that no invoice changes it."""
        ...


class TokenRefused(Exception):
    """The provider refuses the access token (401): the next delivery refreshes it first."""


class CapabilityMissing(Exception):
    """The provider's MCP server has no tool, or no argument, that is needed. ``capability`` names it."""

    def __init__(self, capability: str) -> None:
        super().__init__(capability)
        self.capability = capability
