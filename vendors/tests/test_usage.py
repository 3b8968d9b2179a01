"""Usage API: a tenant sees its own spending and purchases only."""

import uuid
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from accounts.rls import as_tenant
from testing.personas import Person
from vendors import ledger
from vendors.models import Budget, Purchase

pytestmark = pytest.mark.django_db

DOCUMENT = uuid.UUID(int=5)


def buy(person: Person, cents: int, document_id: UUID = DOCUMENT, **fields: Any) -> UUID:
    bought: dict[str, Any] = {"vendor": "openai", "model": "m", "unit": "tokens", "quantity": 100, "stage": "embedding"}
    return ledger.reserve(user_id=person.id, cents=Decimal(cents), document_id=document_id, **(bought | fields))


def spent(cents: float, settled: float, unsettled: float) -> dict[str, float]:
    return {"cents": cents, "settled_cents": settled, "unsettled_cents": unsettled}


def test_nothing_was_spent_yet(ana: Person) -> None:
    assert ana.get("/usage").json() == {
        "today": spent(0, 0, 0),
        "month": spent(0, 0, 0),
        "budget_cents_per_day": None,
        "left_today_cents": None,
        "bought_this_month": [],
    }


def test_usage_shows_settled_and_unsettled_apart_and_what_is_left(ana: Person, ben: Person) -> None:
    Budget.objects.create(user_id=ana.id, cents_per_day=20)
    ledger.settle(buy(ana, 5), quantity=80, cents=Decimal(4))
    buy(ana, 3, vendor="llamaparse", unit="pages", quantity=2, stage="parsing")
    buy(ben, 11)

    usage = ana.get("/usage").json()

    assert usage["today"] == usage["month"] == spent(7, 4, 3)
    assert (usage["budget_cents_per_day"], usage["left_today_cents"]) == (20, 13)
    assert [(row["vendor"], row["unit"], row["quantity"], row["calls"]) for row in usage["bought_this_month"]] == [
        ("llamaparse", "pages", 2, 1),
        ("openai", "tokens", 80, 1),
    ]


def test_a_campaigns_purchases_are_hidden(ana: Person) -> None:
    buy(ana, 5)
    buy(ana, 7, campaign_id=uuid.uuid4())

    assert ana.get("/usage").json()["month"] == spent(5, 0, 5)
    assert [row["cents"] for row in ana.get(f"/documents/{DOCUMENT}/purchases").json()["results"]] == [5]
    with as_tenant(ana.id):
        assert Purchase.objects.count() == 1, "the policy hides it too"


def test_last_months_purchases_are_not_this_months(ana: Person) -> None:
    buy(ana, 5)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE purchases SET created_at = created_at - interval '32 days'")

    usage = ana.get("/usage").json()

    assert usage["month"]["cents"] == 0


def test_a_documents_purchases_are_its_owners(ana: Person, ben: Person) -> None:
    ledger.settle(buy(ana, 5), quantity=80, cents=Decimal(4))

    (shown,) = ana.get(f"/documents/{DOCUMENT}/purchases").json()["results"]

    assert shown.pop("created_at")
    assert shown == {
        "stage": "embedding",
        "vendor": "openai",
        "model": "m",
        "unit": "tokens",
        "quantity": 80,
        "cents": 4.0,
        "state": "settled",
    }
    assert ben.get(f"/documents/{DOCUMENT}/purchases").json()["results"] == []


def test_a_foreign_and_an_unknown_document_look_the_same(ana: Person, ben: Person) -> None:
    buy(ana, 5)

    foreign, unknown = (ben.get(f"/documents/{id_}/purchases") for id_ in (DOCUMENT, uuid.uuid4()))

    assert foreign.status_code == unknown.status_code == 200
    assert foreign.json() == unknown.json()


def test_purchases_are_paged_the_newest_first(ana: Person) -> None:
    for cents in range(5):
        buy(ana, cents)

    first = ana.get(f"/documents/{DOCUMENT}/purchases", page_size=3).json()
    rest = ana.client.get(first["next"]).json()

    assert [row["cents"] for row in [*first["results"], *rest["results"]]] == [4, 3, 2, 1, 0]


def test_usage_requires_a_token(ana: Person, client: Any) -> None:
    assert client.get("/usage").status_code == 401
    assert client.get(f"/documents/{DOCUMENT}/purchases").status_code == 401


def test_the_database_itself_hides_other_tenants_money(ana: Person, ben: Person) -> None:
    buy(ana, 5)
    Budget.objects.create(user_id=ana.id, cents_per_day=20)

    with as_tenant(ben.id), connection.cursor() as cursor:
        cursor.execute("SELECT row_security_active('purchases'), row_security_active('tenant_budgets')")
        assert cursor.fetchone() == (True, True)
        assert not Purchase.objects.exists()
        assert not Budget.objects.exists()
    with as_tenant(ana.id):
        assert Purchase.objects.count() == Budget.objects.count() == 1


@pytest.mark.parametrize("table", ["vendor_rate_limits", "vendor_breakers"])
def test_a_tenant_cannot_read_what_belongs_to_the_vendors_keys(table: str, ana: Person) -> None:
    with as_tenant(ana.id), connection.cursor() as cursor:
        cursor.execute("SELECT has_table_privilege(%s, 'SELECT')", [table])
        assert cursor.fetchone() == (False,)
