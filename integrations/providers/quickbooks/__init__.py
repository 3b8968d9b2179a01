"""QuickBooks' records: what is found of them and what they tell of a client (spec 002 §5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from integrations.models import SourceDocument
from integrations.providers import Stream
from integrations.providers.quickbooks.objects import CUSTOMERS, INVOICES
from integrations.providers.rollup_rules import Children, Rollup
from integrations.providers.values import date_at, labeled_lines, object_at, record_id, text_at
from integrations.types import Client, RawItem, Record

STREAMS: Sequence[Stream] = (
    Stream("customers", "quickbooks.customers.list", CUSTOMERS.document_type),
    Stream("invoices", "quickbooks.invoices.list", INVOICES.document_type),
)
LAST = 5  # invoices in a client's history (spec 002 §5)
_TOLD = ("number", "date", "due_date", "total", "balance")
_MONEY = ("ar_balance", "total", "balance")
ROLLUP = Rollup(INVOICES.document_type, newest="date", most=LAST, total="total")
LARGEST = 30  # digits before or behind the point: what is longer is no money, and could not be summed
PAGES = "https://app.qbo.intuit.com/app"


def map_record(item: RawItem) -> Record:
    """Map an entity to what is stored and found. Raises ``ValueError``."""
    record_id(item.payload, "Id")
    if item.document_type == CUSTOMERS.document_type:
        return _customer(item.payload)
    if item.document_type == INVOICES.document_type:
        return _invoice(item.payload)
    raise ValueError("a record of another kind")


def _customer(said: Mapping[str, Any]) -> Record:
    shown, company = text_at(said, "DisplayName"), text_at(said, "CompanyName")
    person = " ".join(filter(None, (text_at(said, "GivenName"), text_at(said, "FamilyName")))) or None
    address = _address(object_at(said, "BillAddr"))
    return Record(
        # Not its balance: each payment would have the whole record embedded again.
        text=labeled_lines(
            ("Customer", shown), ("Company", company), ("Contact", person),
            ("E-mail", text_at(object_at(said, "PrimaryEmailAddr"), "Address")),
            ("Phone", text_at(object_at(said, "PrimaryPhone"), "FreeFormNumber")),
            ("Website", text_at(object_at(said, "WebAddr"), "URI")),
            ("Billing address", address), ("Notes", text_at(said, "Notes")),
            ("Status", "inactive" if said.get("Active") is False else None),
        ),
        title=shown or company or "",
        url=f"{PAGES}/customerdetail?nameId={_digits(said)}" if _digits(said) else None,
        facts={"name": company or shown, "ar_balance": _money(said, "Balance"), "billing_address": address},
    )  # fmt: skip


def _invoice(said: Mapping[str, Any]) -> Record:
    customer, number = object_at(said, "CustomerRef"), text_at(said, "DocNumber")
    dated, due, total, balance = (
        date_at(said, "TxnDate"),
        date_at(said, "DueDate"),
        _money(said, "TotalAmt"),
        _money(said, "Balance"),
    )
    currency = text_at(object_at(said, "CurrencyRef"), "value")
    return Record(
        text=labeled_lines(
            ("Invoice", number), ("Customer", text_at(customer, "name")), ("Date", dated), ("Due", due),
            ("Total", " ".join(filter(None, (total, currency)))), ("Balance", balance), *_sold(said),
            ("Billing address", _address(object_at(said, "BillAddr"))),
            ("E-mail", text_at(object_at(said, "BillEmail"), "Address")),
            ("Message", text_at(object_at(said, "CustomerMemo"), "value")), ("Memo", text_at(said, "PrivateNote")),
        ),
        title=f"Invoice {number}" if number else "Invoice",
        url=f"{PAGES}/invoice?txnId={_digits(said)}" if _digits(said) else None,
        parent_external_id=f"{CUSTOMERS.singular}:{text_at(customer, 'value')}" if text_at(customer, "value") else None,
        facts={"number": number, "date": dated, "due_date": due, "total": total, "balance": balance},
    )  # fmt: skip


def _sold(said: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    found = said.get("Line")
    for line in found if isinstance(found, list) else []:
        if not isinstance(line, Mapping):
            raise ValueError("a line is no object")
        item = text_at(object_at(object_at(line, "SalesItemLineDetail"), "ItemRef"), "name")
        said_of_it = text_at(line, "Description") or item
        if said_of_it:
            yield "Line", " ".join(filter(None, (said_of_it, _money(line, "Amount"))))


def _address(said: Mapping[str, Any]) -> str | None:
    streets = [text_at(said, f"Line{number}") for number in range(1, 6)]
    region = " ".join(filter(None, (text_at(said, "CountrySubDivisionCode"), text_at(said, "PostalCode"))))
    return ", ".join(filter(None, (*streets, text_at(said, "City"), region, text_at(said, "Country")))) or None


def _money(said: Mapping[str, Any], name: str) -> str | None:
    """Return an amount with the digits it was told with. Raises ``ValueError`` for what is no amount."""
    found = text_at(said, name)
    try:
        amount = None if found is None else Decimal(found)
    except InvalidOperation:
        raise ValueError(f"{name} is no amount") from None
    if amount is not None and (not amount.is_finite() or abs(amount.adjusted()) > LARGEST):
        raise ValueError(f"{name} is no amount")
    return None if amount is None else format(amount, "f")


def _digits(said: Mapping[str, Any]) -> str | None:
    id = str(said["Id"])
    return id if id.isascii() and id.isdigit() else None


def build_client(own: SourceDocument | None, children: Children) -> Client | None:
    """Return what a customer with its invoices tells of a client. The lifetime value is of all of them, exactly."""
    if own is None or own.document_type != CUSTOMERS.document_type or not own.facts.get("name"):
        return None
    known = {name: own.facts[name] for name in ("ar_balance", "billing_address") if own.facts.get(name) is not None}
    history = [_amounts({name: each.facts.get(name) for name in _TOLD}) for each in children.newest]
    facts = _amounts(known) | {"invoice_history": history, "total_lifetime_value": children.total}
    return Client(own.facts["name"], key_facts=facts)


def _amounts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts with their money as numbers, as QuickBooks tells it: facts keep its digits as text."""
    return {name: Decimal(value) if name in _MONEY and value is not None else value for name, value in facts.items()}


def client_text(client: Client) -> str:
    """Return the text a client is found by: no amount, so that no invoice and no payment changes it."""
    return labeled_lines(("Client", client.client_name), ("Billing address", client.key_facts.get("billing_address")))
