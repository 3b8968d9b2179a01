"""What comes from a provider, and what is made of it: the same whichever transport brought it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class RawItem:
    """A record as the provider told it (spec 002 §7). ``payload`` is stored verbatim, NULs apart."""

    external_id: str  # "contact:512"
    document_type: str  # "hubspot.contact"
    payload: Mapping[str, Any]
    source_created_at: datetime | None = None
    source_updated_at: datetime | None = None
    deleted: bool = False  # gone at the provider: only ``external_id`` and ``document_type`` are meant
    # Asked for by its id just now, so newer than what is stored whatever its time says: that goes back when a file's
    # older revision is restored, or a thread's last message is thrown away. A listing may lag, and its time decides.
    current: bool = False


@dataclass(frozen=True, slots=True)
class FailedItem:
    """A record that could not be read, where its page could. ``code`` is one of ours."""

    external_id: str  # "company:?" when not even its id can be read
    code: str
    retry: bool = False  # may go well another time: the next delta tries it. Only of listings that are read ahead

    @property
    def is_nameless(self) -> bool:
        return self.external_id.endswith(":?")


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a stream. ``following`` is where the next begins, or None after the last."""

    items: list[RawItem]
    following: str | None = None
    failed: list[FailedItem] = field(default_factory=list)
    # The listing stopped at a cap or could not be complete: what it has not shown may still be there.
    capped: bool = False
    # What to fetch instead when the delta's cursor is too old at the provider (Drive 410, Gmail 404).
    expired: bool = False
    # The stream's cursor as of this page; unless it is None, whoever closes the page puts it into the job's cursor
    # under the stream's name, in place of what ``begin`` told (Drive tells the next one with its last page only).
    cursor: Any = None


@dataclass(frozen=True, slots=True)
class Client:
    """What a record, or several, tell of a client: the columns of ``client_intelligence``."""

    client_name: str
    industry: str | None = None
    summary: str | None = None
    key_facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """What is made of an item: the text to find it by, and what it tells of a client."""

    text: str  # "" is not embedded
    title: str = ""
    url: str | None = None
    parent_external_id: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    # Bytes of a PDF that goes through the upload pipeline instead of being embedded here.
    is_pdf: bool = False
