"""HubSpot: object types, parsing and mapping of contacts, companies and deals, and their clients (spec 002 §5)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from integrations.models import SourceDocument
from integrations.providers.interface import Children, Client, RawItem, Record, Rollup, Stream
from integrations.providers.payload_fields import date_at, labeled_lines, record_id, text_at, time_at

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

STREAMS: Sequence[Stream] = (
    Stream("contacts", "hubspot.crm.contacts.list", CONTACTS.document_type),
    Stream("companies", "hubspot.crm.companies.list", COMPANIES.document_type),
    Stream("deals", "hubspot.crm.deals.list", DEALS.document_type),
)
SHOWN = 100  # open deals of a client, the newest; all of them are counted
ROLLUP = Rollup(DEALS.document_type, newest="changed", most=SHOWN, first="open")
CLOSED = ("closedwon", "closedlost")  # of the default pipeline; HubSpot's own flag covers all others


def map_record(item: RawItem) -> Record:
    mapper = _MAPPERS.get(item.document_type)
    if mapper is None:
        raise ValueError("a record of another kind")
    record_id(item.payload, "id")
    return mapper(item, record_properties(item.payload))


def _map_contact(item: RawItem, properties: Mapping[str, Any]) -> Record:
    name = " ".join(filter(None, (text_at(properties, "firstname"), text_at(properties, "lastname")))) or None
    email, company, role = text_at(properties, "email"), text_at(properties, "company"), text_at(properties, "jobtitle")
    lifecycle, industry = text_at(properties, "lifecyclestage"), text_at(properties, "industry")
    return Record(
        text=labeled_lines(
            ("Contact", name), ("E-mail", email), ("Company", company),
            ("Role", role), ("Lifecycle stage", lifecycle), ("Industry", industry),
        ),
        title=name or email or "",
        url=_url(item),
        facts={"name": company, "industry": industry, "contact_role": role, "lifecycle": lifecycle},
    )  # fmt: skip


def _map_company(item: RawItem, properties: Mapping[str, Any]) -> Record:
    name, domain, industry = text_at(properties, "name"), text_at(properties, "domain"), text_at(properties, "industry")
    employees, revenue = text_at(properties, "numberofemployees"), text_at(properties, "annualrevenue")
    description = text_at(properties, "description")
    return Record(
        text=labeled_lines(
            ("Company", name), ("Domain", domain), ("Industry", industry), ("Employees", employees),
            ("Annual revenue", revenue), ("Description", description),
        ),
        title=name or domain or "",
        url=_url(item),
        facts={
            "name": name or domain, "industry": industry, "summary": description,
            "employees": employees, "revenue": revenue, "domain": domain,
        },
    )  # fmt: skip


def _map_deal(item: RawItem, properties: Mapping[str, Any]) -> Record:
    name, amount, stage = (text_at(properties, key) for key in ("dealname", "amount", "dealstage"))
    pipeline, closes = text_at(properties, "pipeline"), date_at(properties, "closedate")
    company, changed = company_id(item.payload), item.source_updated_at
    flag = (text_at(properties, "hs_is_closed") or "").lower()
    is_closed = flag == "true" if flag else stage in CLOSED
    return Record(
        text=labeled_lines(
            ("Deal", name), ("Amount", amount), ("Stage", stage), ("Pipeline", pipeline), ("Close date", closes),
        ),
        title=name or "",
        url=_url(item),
        parent_external_id=f"{COMPANIES.singular}:{company}" if company else None,
        facts={
            "name": name, "amount": amount, "stage": stage, "close_date": closes,
            "open": not is_closed, "changed": changed.isoformat() if changed else "",
        },
    )  # fmt: skip


_MAPPERS: dict[str, Callable[[RawItem, Mapping[str, Any]], Record]] = {
    CONTACTS.document_type: _map_contact,
    COMPANIES.document_type: _map_company,
    DEALS.document_type: _map_deal,
}


def _url(item: RawItem) -> str | None:
    url = item.payload.get("url")
    return url if isinstance(url, str) and url.startswith("https://") else None


def build_client(own: SourceDocument | None, children: Children) -> Client | None:
    """Return the client of a company with its deals, or of a contact.

    ``deal_stage`` and ``deal_amount`` are of the open deal that changed last; of any deal when none is open.
    """
    if own is None or not own.facts.get("name"):
        return None
    name, industry = own.facts["name"], own.facts.get("industry")
    if own.document_type == CONTACTS.document_type:
        return Client(name, industry=industry, key_facts=_without_nulls(own.facts, "contact_role", "lifecycle"))
    if own.document_type != COMPANIES.document_type:
        return None
    open_deals = [each.facts for each in children.newest if each.facts.get("open")]
    facts = _without_nulls(own.facts, "employees", "revenue", "domain")
    facts["open_deals"] = [_without_nulls(deal, "name", "stage", "amount", "close_date") for deal in open_deals]
    if children.count > len(open_deals):
        facts["open_deals_count"] = children.count
    if children.newest:  # the open ones come first
        last = children.newest[0].facts
        facts |= {"deal_stage": last.get("stage"), "deal_amount": last.get("amount")}
    return Client(name, industry=industry, summary=own.facts.get("summary"), key_facts=facts)


def _without_nulls(facts: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: facts[name] for name in names if facts.get(name) is not None}


def client_text(client: Client) -> str:
    """Return the searchable text of a client, without its deals, so that none of them changes it."""
    facts = client.key_facts
    return labeled_lines(
        ("Client", client.client_name),
        ("Industry", client.industry),
        ("Contact's role", facts.get("contact_role")),
        ("Lifecycle stage", facts.get("lifecycle")),
        ("Domain", facts.get("domain")),
        ("Employees", facts.get("employees")),
        ("Annual revenue", facts.get("revenue")),
        ("Summary", client.summary),
    )


# --- parsing, the same for both transports --------------------------------------------------------------------------
def record_properties(payload: Any) -> Mapping[str, Any]:
    properties = payload.get("properties") if isinstance(payload, Mapping) else None
    if not isinstance(properties, Mapping):
        raise ValueError("a record without properties")
    return properties


def parse_item(kind: ObjectType, payload: Any) -> RawItem:
    properties = record_properties(payload)
    return RawItem(
        external_id=f"{kind.singular}:{record_id(payload, 'id')}",
        document_type=kind.document_type,
        payload=payload,
        source_created_at=time_at(payload, "createdAt") or time_at(properties, "createdate"),
        source_updated_at=time_at(payload, "updatedAt") or time_at(properties, kind.modified),
    )


def archived_item(kind: ObjectType, payload: Any) -> RawItem:
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
