"""QuickBooks' entities, and the items made of them by either transport."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from integrations.providers.values import identity, part, time
from integrations.types import Failed, RawItem

UNREADABLE = "ITEM_UNREADABLE"


@dataclass(frozen=True, slots=True)
class Kind:
    """``entity`` is QuickBooks' own name, ``where`` what its query needs to show them all."""

    name: str
    entity: str
    one: str
    where: str = ""

    @property
    def document_type(self) -> str:
        return f"quickbooks.{self.one}"


# Without the condition a query leaves out the customers that were made inactive, which is how QuickBooks deletes them.
CUSTOMERS = Kind("customers", "Customer", "customer", where=" WHERE Active IN (true, false)")
INVOICES = Kind("invoices", "Invoice", "invoice")
KINDS = {kind.name: kind for kind in (CUSTOMERS, INVOICES)}


def item(kind: Kind, payload: Any) -> RawItem:
    """Return the item of an entity as QuickBooks shows it, gone when a delta says so. Raises ``ValueError``."""
    id = identity(payload, "Id")
    meta, gone = part(payload, "MetaData"), payload.get("status") == "Deleted"
    return RawItem(
        external_id=f"{kind.one}:{id}",
        document_type=kind.document_type,
        payload={} if gone else payload,
        source_created_at=time(meta, "CreateTime"),
        source_updated_at=time(meta, "LastUpdatedTime"),
        deleted=gone,
    )


def items(kind: Kind, payloads: Sequence[Any]) -> tuple[list[RawItem], list[Failed]]:
    """Return the items of a page, and which of its entities cannot be read."""
    found: list[RawItem] = []
    failed: list[Failed] = []
    for payload in payloads:
        try:
            found.append(item(kind, payload))
        except ValueError:
            failed.append(Failed(f"{kind.one}:{id_of(payload) or '?'}", UNREADABLE))
    return found, failed


def id_of(payload: Any) -> str | None:
    try:
        return identity(payload, "Id")
    except ValueError:
        return None
