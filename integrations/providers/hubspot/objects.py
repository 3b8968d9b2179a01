"""HubSpot's object types, and the parsing of their records, the same for both transports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from integrations.providers import RawItem
from integrations.providers.payload import record_id, text_at, time_at

MERGED = "hs_merged_object_ids"
# "deal_to_company" is the primary company's; each one has the unlabeled type too. By the type ids of v4:
# developers.hubspot.com/docs/api-reference/crm-associations-v4/guide
COMPANY_TYPES = {5: "deal_to_company", 341: "deal_to_company_unlabeled"}
_PRIMARY = ("deal_to_company", "deal_to_primary_company")


@dataclass(frozen=True, slots=True)
class ObjectType:
    """``name`` is used in paths, ``singular`` in our ids; ``modified`` is the property with the time of change."""

    name: str
    singular: str
    properties: tuple[str, ...]
    modified: str = "hs_lastmodifieddate"
    associations: str | None = None

    @property
    def document_type(self) -> str:
        return f"hubspot.{self.singular}"

    @property
    def requested_properties(self) -> list[str]:
        """The properties to request: those of spec 002 §5, and those needed to follow a record."""
        return [*self.properties, "createdate", self.modified, MERGED]


CONTACTS = ObjectType(
    "contacts",
    "contact",
    ("firstname", "lastname", "email", "company", "jobtitle", "lifecyclestage", "industry"),
    modified="lastmodifieddate",
)
COMPANIES = ObjectType(
    "companies", "company", ("name", "domain", "industry", "numberofemployees", "annualrevenue", "description")
)
DEALS = ObjectType(
    "deals",
    "deal",
    ("dealname", "amount", "dealstage", "closedate", "pipeline", "hs_is_closed"),
    associations="companies",
)
OBJECT_TYPES = {kind.name: kind for kind in (CONTACTS, COMPANIES, DEALS)}


def record_properties(payload: Any) -> Mapping[str, Any]:
    """Return a record's properties; raise ``ValueError`` without them."""
    properties = payload.get("properties") if isinstance(payload, Mapping) else None
    if not isinstance(properties, Mapping):
        raise ValueError("a record without properties")
    return properties


def parse_item(kind: ObjectType, payload: Any) -> RawItem:
    """Return the item of a record. Raises ``ValueError``."""
    properties = record_properties(payload)
    return RawItem(
        external_id=f"{kind.singular}:{record_id(payload, 'id')}",
        document_type=kind.document_type,
        payload=payload,
        source_created_at=time_at(payload, "createdAt") or time_at(properties, "createdate"),
        source_updated_at=time_at(payload, "updatedAt") or time_at(properties, kind.modified),
    )


def archived_item(kind: ObjectType, payload: Any) -> RawItem:
    """Return the deletion of an archived record. Raises ``ValueError``."""
    return RawItem(
        external_id=f"{kind.singular}:{record_id(payload, 'id')}",
        document_type=kind.document_type,
        payload={},
        source_updated_at=time_at(payload, "archivedAt"),
        deleted=True,
    )


def merged_items(kind: ObjectType, winner: RawItem) -> Iterator[RawItem]:
    """Yield the deletions of the records that were merged into one: they vanish without being archived."""
    for lost in (text_at(record_properties(winner.payload), MERGED) or "").split(";"):
        external_id = f"{kind.singular}:{lost.strip()}"
        if lost.strip() and external_id != winner.external_id:
            yield RawItem(external_id, kind.document_type, {}, source_updated_at=winner.source_updated_at, deleted=True)


def company_id(payload: Mapping[str, Any]) -> str | None:
    """Return the id of a deal's company: the primary one, or else the one with the lowest id."""
    associations = payload.get("associations")
    companies = associations.get("companies") if isinstance(associations, Mapping) else None
    results = companies.get("results") if isinstance(companies, Mapping) else None
    known = [each for each in results or [] if isinstance(each, Mapping) and text_at(each, "id")]
    primary = [each for each in known if each.get("type") in _PRIMARY]
    ids = sorted((str(each["id"]) for each in primary or known), key=lambda id: (len(id), id))
    return ids[0] if ids else None
