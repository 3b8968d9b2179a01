"""QuickBooks' entities, and the items made of them by either transport."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from integrations.providers.values import object_at, record_id, time_at
from integrations.types import FailedItem, RawItem

UNREADABLE = "ITEM_UNREADABLE"


@dataclass(frozen=True, slots=True)
class EntityType:
    """``entity`` is QuickBooks' own name, ``where`` what its query needs to show them all."""

    name: str
    entity: str
    singular: str
    where: str = ""

    @property
    def document_type(self) -> str:
        return f"quickbooks.{self.singular}"


# Without the condition a query leaves out the customers that were made inactive, which is how QuickBooks deletes them.
CUSTOMERS = EntityType("customers", "Customer", "customer", where=" WHERE Active IN (true, false)")
INVOICES = EntityType("invoices", "Invoice", "invoice")
ENTITY_TYPES = {kind.name: kind for kind in (CUSTOMERS, INVOICES)}


def parse_item(kind: EntityType, payload: Any) -> RawItem:
    """Return the item of an entity as QuickBooks shows it, gone when a delta says so. Raises ``ValueError``."""
    id = record_id(payload, "Id")
    meta, gone = object_at(payload, "MetaData"), payload.get("status") == "Deleted"
    return RawItem(
        external_id=f"{kind.singular}:{id}",
        document_type=kind.document_type,
        payload={} if gone else payload,
        source_created_at=time_at(meta, "CreateTime"),
        source_updated_at=time_at(meta, "LastUpdatedTime"),
        deleted=gone,
    )


def parse_items(kind: EntityType, payloads: Sequence[Any]) -> tuple[list[RawItem], list[FailedItem]]:
    """Return the items of a page, and which of its entities cannot be read."""
    found: list[RawItem] = []
    failed: list[FailedItem] = []
    for payload in payloads:
        try:
            found.append(parse_item(kind, payload))
        except ValueError:
            failed.append(FailedItem(f"{kind.singular}:{entity_id(payload) or '?'}", UNREADABLE))
    return found, failed


def entity_id(payload: Any) -> str | None:
    try:
        return record_id(payload, "Id")
    except ValueError:
        return None
