"""HubSpot's records: what is found of them and what they tell of a client (spec 002 §5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from integrations.models import SourceDocument
from integrations.providers import Stream
from integrations.providers.hubspot.objects import COMPANIES, CONTACTS, DEALS, company_id, record_properties
from integrations.providers.rollup_rules import Children, Rollup
from integrations.providers.values import date_at, labeled_lines, record_id, text_at
from integrations.types import Client, RawItem, Record

STREAMS: Sequence[Stream] = (
    Stream("contacts", "hubspot.crm.contacts.list", CONTACTS.document_type),
    Stream("companies", "hubspot.crm.companies.list", COMPANIES.document_type),
    Stream("deals", "hubspot.crm.deals.list", DEALS.document_type),
)
SHOWN = 100  # open deals of a client, the newest; all of them are counted
ROLLUP = Rollup(DEALS.document_type, newest="changed", most=SHOWN, first="open")
CLOSED = ("closedwon", "closedlost")  # of the default pipeline; HubSpot's own flag knows all others


def map_record(item: RawItem) -> Record:
    """Map a record to what is stored and found. Raises ``ValueError``."""
    told = _MAPS.get(item.document_type)
    if told is None:
        raise ValueError("a record of another kind")
    record_id(item.payload, "id")
    return told(item, record_properties(item.payload))


def _contact(item: RawItem, said: Mapping[str, Any]) -> Record:
    name = " ".join(filter(None, (text_at(said, "firstname"), text_at(said, "lastname")))) or None
    email, company, role = text_at(said, "email"), text_at(said, "company"), text_at(said, "jobtitle")
    lifecycle, industry = text_at(said, "lifecyclestage"), text_at(said, "industry")
    return Record(
        text=labeled_lines(
            ("Contact", name), ("E-mail", email), ("Company", company),
            ("Role", role), ("Lifecycle stage", lifecycle), ("Industry", industry),
        ),
        title=name or email or "",
        url=_url(item),
        facts={"name": company, "industry": industry, "contact_role": role, "lifecycle": lifecycle},
    )  # fmt: skip


def _company(item: RawItem, said: Mapping[str, Any]) -> Record:
    name, domain, industry = text_at(said, "name"), text_at(said, "domain"), text_at(said, "industry")
    employees, revenue = text_at(said, "numberofemployees"), text_at(said, "annualrevenue")
    description = text_at(said, "description")
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


def _deal(item: RawItem, said: Mapping[str, Any]) -> Record:
    name, amount, stage = text_at(said, "dealname"), text_at(said, "amount"), text_at(said, "dealstage")
    pipeline, closes, company = text_at(said, "pipeline"), date_at(said, "closedate"), company_id(item.payload)
    changed = item.source_updated_at
    return Record(
        text=labeled_lines(
            ("Deal", name), ("Amount", amount), ("Stage", stage), ("Pipeline", pipeline), ("Close date", closes),
        ),
        title=name or "",
        url=_url(item),
        parent_external_id=f"{COMPANIES.singular}:{company}" if company else None,
        facts={
            "name": name, "amount": amount, "stage": stage, "close_date": closes,
            "open": not _closed(said, stage), "changed": changed.isoformat() if changed else "",
        },
    )  # fmt: skip


_MAPS: dict[str, Callable[[RawItem, Mapping[str, Any]], Record]] = {
    CONTACTS.document_type: _contact,
    COMPANIES.document_type: _company,
    DEALS.document_type: _deal,
}


def _closed(said: Mapping[str, Any], stage: str | None) -> bool:
    flag = (text_at(said, "hs_is_closed") or "").lower()
    return flag == "true" if flag else stage in CLOSED


def _url(item: RawItem) -> str | None:
    said = item.payload.get("url")
    return said if isinstance(said, str) and said.startswith("https://") else None


def build_client(own: SourceDocument | None, children: Children) -> Client | None:
    """Return what a company with its deals, or a contact, tells of a client.

    ``deal_stage`` and ``deal_amount`` are of the open deal that changed last; of any deal when none is open.
    """
    if own is None or not own.facts.get("name"):
        return None
    told = own.facts
    if own.document_type == CONTACTS.document_type:
        facts = _known(told, "contact_role", "lifecycle")
        return Client(told["name"], industry=told.get("industry"), key_facts=facts)
    if own.document_type != COMPANIES.document_type:
        return None
    facts = _known(told, "employees", "revenue", "domain") | _deals(children)
    return Client(told["name"], industry=told.get("industry"), summary=told.get("summary"), key_facts=facts)


def _known(facts: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: facts[name] for name in names if facts.get(name) is not None}


def _deals(deals: Children) -> dict[str, Any]:
    opened = [each.facts for each in deals.newest if each.facts.get("open")]
    told: dict[str, Any] = {"open_deals": [_known(each, "name", "stage", "amount", "close_date") for each in opened]}
    if deals.count > len(opened):
        told["open_deals_count"] = deals.count
    if deals.newest:  # the open ones come first
        last = deals.newest[0].facts
        told |= {"deal_stage": last.get("stage"), "deal_amount": last.get("amount")}
    return told


def client_text(client: Client) -> str:
    """Return the text a client is found by: nothing of its deals, so that none of them changes it."""
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
