"""Fake provider: companies, and deals that count for them."""

from integrations.models import SourceDocument
from integrations.providers.interface import Children, Client, RawItem, Record, Rollup, Stream

STREAMS = (
    Stream("companies", "invented.companies.list", "invented.company"),
    Stream("deals", "invented.deals.list", "invented.deal"),
)
ROLLUP = Rollup("invented.deal", newest="name", most=20, first="open", total="amount")
BUG = "a bug in the rollup"
UNREADABLE = "unreadable when it is rolled up"


def map_record(item: RawItem) -> Record:
    payload = item.payload
    if "name" not in payload:
        raise ValueError("a record without a name")
    return Record(
        text=payload.get("text", f"{item.document_type} {payload['name']}"),
        title=payload["name"],
        parent_external_id=payload.get("company"),
        facts={name: payload[name] for name in ("name", "amount", "note") if name in payload},
        is_pdf=payload.get("is_pdf", False),
    )


def build_client(own: SourceDocument | None, children: Children) -> Client | None:
    if own is None or own.document_type != "invented.company":
        return None
    if any(each.facts["name"] == BUG for each in children.newest):
        raise RuntimeError(BUG)
    if any(each.facts["name"] == UNREADABLE for each in children.newest):
        raise ValueError(UNREADABLE)
    facts = {"deals": sorted(each.facts["name"] for each in children.newest), "total": children.total}
    return Client(own.facts["name"], summary=own.facts.get("note"), key_facts=facts)


def client_text(client: Client) -> str:
    return f"Client: {client.client_name}. {client.summary or ''}"
