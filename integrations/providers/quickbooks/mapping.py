"""QuickBooks: entity types, parsing and mapping of customers and invoices, and their clients (spec 002 §5)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from integrations.models import SourceDocument
from integrations.providers.interface import Children, Client, RawItem, Record, Rollup, Stream
from integrations.providers.payload_fields import date_at, labeled_lines, object_at, record_id, text_at, time_at


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

STREAMS: Sequence[Stream] = (
    Stream("customers", "quickbooks.customers.list", CUSTOMERS.document_type),
    Stream("invoices", "quickbooks.invoices.list", INVOICES.document_type),
)
LAST = 5  # invoices in a client's history (spec 002 §5)
_HISTORY = ("number", "date", "due_date", "total", "balance")
_AMOUNTS = ("ar_balance", "total", "balance")
ROLLUP = Rollup(INVOICES.document_type, newest="date", most=LAST, total="total")
LARGEST = 30  # digits before or behind the point: a longer number is no amount, and could not be summed
PAGES = "https://app.qbo.intuit.com/app"


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


def map_record(item: RawItem) -> Record:
    record_id(item.payload, "Id")
    if item.document_type == CUSTOMERS.document_type:
        return _map_customer(item.payload)
    if item.document_type == INVOICES.document_type:
        return _map_invoice(item.payload)
    raise ValueError("a record of another kind")


def _map_customer(entity: Mapping[str, Any]) -> Record:
    display_name, company = text_at(entity, "DisplayName"), text_at(entity, "CompanyName")
    person = " ".join(filter(None, (text_at(entity, "GivenName"), text_at(entity, "FamilyName")))) or None
    address = _address(object_at(entity, "BillAddr"))
    return Record(
        # Without its balance: each payment would have the whole record embedded again.
        text=labeled_lines(
            ("Customer", display_name), ("Company", company), ("Contact", person),
            ("E-mail", text_at(object_at(entity, "PrimaryEmailAddr"), "Address")),
            ("Phone", text_at(object_at(entity, "PrimaryPhone"), "FreeFormNumber")),
            ("Website", text_at(object_at(entity, "WebAddr"), "URI")),
            ("Billing address", address), ("Notes", text_at(entity, "Notes")),
            ("Status", "inactive" if entity.get("Active") is False else None),
        ),
        title=display_name or company or "",
        url=_url("customerdetail?nameId", entity),
        facts={"name": company or display_name, "ar_balance": _amount(entity, "Balance"), "billing_address": address},
    )  # fmt: skip


def _map_invoice(entity: Mapping[str, Any]) -> Record:
    customer, number = object_at(entity, "CustomerRef"), text_at(entity, "DocNumber")
    date, due = date_at(entity, "TxnDate"), date_at(entity, "DueDate")
    total, balance = _amount(entity, "TotalAmt"), _amount(entity, "Balance")
    currency = text_at(object_at(entity, "CurrencyRef"), "value")
    customer_id = text_at(customer, "value")
    return Record(
        text=labeled_lines(
            ("Invoice", number), ("Customer", text_at(customer, "name")), ("Date", date), ("Due", due),
            ("Total", " ".join(filter(None, (total, currency)))), ("Balance", balance), *_invoice_lines(entity),
            ("Billing address", _address(object_at(entity, "BillAddr"))),
            ("E-mail", text_at(object_at(entity, "BillEmail"), "Address")),
            ("Message", text_at(object_at(entity, "CustomerMemo"), "value")), ("Memo", text_at(entity, "PrivateNote")),
        ),
        title=f"Invoice {number}" if number else "Invoice",
        url=_url("invoice?txnId", entity),
        parent_external_id=f"{CUSTOMERS.singular}:{customer_id}" if customer_id else None,
        facts={"number": number, "date": date, "due_date": due, "total": total, "balance": balance},
    )  # fmt: skip


def _invoice_lines(entity: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    lines = entity.get("Line")
    for line in lines if isinstance(lines, list) else []:
        if not isinstance(line, Mapping):
            raise ValueError("a line is no object")
        item = text_at(object_at(object_at(line, "SalesItemLineDetail"), "ItemRef"), "name")
        if description := text_at(line, "Description") or item:
            yield "Line", " ".join(filter(None, (description, _amount(line, "Amount"))))


def _address(address: Mapping[str, Any]) -> str | None:
    streets = [text_at(address, f"Line{number}") for number in range(1, 6)]
    region = " ".join(filter(None, (text_at(address, "CountrySubDivisionCode"), text_at(address, "PostalCode"))))
    return ", ".join(filter(None, (*streets, text_at(address, "City"), region, text_at(address, "Country")))) or None


def _amount(entity: Mapping[str, Any], name: str) -> str | None:
    """Return an amount with the digits it was sent with. Raises ``ValueError`` for anything else."""
    text = text_at(entity, name)
    if text is None:
        return None
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{name} is no amount") from None
    if not amount.is_finite() or abs(amount.adjusted()) > LARGEST:
        raise ValueError(f"{name} is no amount")
    return format(amount, "f")


def _url(path: str, entity: Mapping[str, Any]) -> str | None:
    id = str(entity["Id"])
    return f"{PAGES}/{path}={id}" if id.isascii() and id.isdigit() else None


def build_client(own: SourceDocument | None, children: Children) -> Client | None:
    """Return the client of a customer with its invoices. The lifetime value sums all of them, exactly."""
    if own is None or own.document_type != CUSTOMERS.document_type or not own.facts.get("name"):
        return None
    known = {name: own.facts[name] for name in ("ar_balance", "billing_address") if own.facts.get(name) is not None}
    history = [_with_numbers({name: each.facts.get(name) for name in _HISTORY}) for each in children.newest]
    facts = _with_numbers(known) | {"invoice_history": history, "total_lifetime_value": children.total}
    return Client(own.facts["name"], key_facts=facts)


def _with_numbers(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts with their amounts as numbers, as QuickBooks sends them: facts keep the digits as text."""
    return {name: Decimal(fact) if name in _AMOUNTS and fact is not None else fact for name, fact in facts.items()}


def client_text(client: Client) -> str:
    """Return the searchable text of a client, without amounts, so that no invoice and no payment changes it."""
    return labeled_lines(("Client", client.client_name), ("Billing address", client.key_facts.get("billing_address")))
