"""HubSpot: contacts, companies and deals; companies and contacts become clients (spec 002 §5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from integrations.models import SourceDocument
from integrations.providers import Children, Client, RawItem, Record, Rollup, Stream
from integrations.providers.hubspot.objects import COMPANIES, CONTACTS, DEALS, company_id, record_properties
from integrations.providers.payload import date_at, labeled_lines, record_id, text_at

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
