"""QuickBooks' entity types, and the parsing of their records, the same for both transports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from integrations.providers import RawItem
from integrations.providers.payload import object_at, record_id, time_at


@dataclass(frozen=True, slots=True)
class EntityType:
    """``entity`` is QuickBooks' own name, ``where`` the condition that its query needs to return them all."""

    name: str
    entity: str
    singular: str
    where: str = ""

    @property
    def document_type(self) -> str:
        return f"quickbooks.{self.singular}"


# Without the condition a query omits inactive customers; deactivating is how QuickBooks deletes them.
CUSTOMERS = EntityType("customers", "Customer", "customer", where=" WHERE Active IN (true, false)")
INVOICES = EntityType("invoices", "Invoice", "invoice")
ENTITY_TYPES = {kind.name: kind for kind in (CUSTOMERS, INVOICES)}


def parse_item(kind: EntityType, payload: Any) -> RawItem:
    """Return the item of an entity, deleted when a delta says so. Raises ``ValueError``."""
    id = record_id(payload, "Id")
    meta, is_deleted = object_at(payload, "MetaData"), payload.get("status") == "Deleted"
    return RawItem(
        external_id=f"{kind.singular}:{id}",
        document_type=kind.document_type,
        payload={} if is_deleted else payload,
        source_created_at=time_at(meta, "CreateTime"),
        source_updated_at=time_at(meta, "LastUpdatedTime"),
        deleted=is_deleted,
    )
