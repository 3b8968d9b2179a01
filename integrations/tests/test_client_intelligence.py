"""Rollup of a client's children in SQL: equal to a Python reference, exact, bounded."""

from dataclasses import asdict, replace
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from integrations.models import ConnectedSource, SourceDocument
from integrations.providers.hubspot import mapping as hubspot
from integrations.providers.quickbooks import mapping as quickbooks
from integrations.records import client_rollup
from integrations.records.jsonb_codec import dump_json, load_json
from integrations.records.prepared_sql import execute
from integrations.tests import python_rollup
from testing.personas import Person

pytestmark = pytest.mark.django_db

NAME = {"name": "Acme", "ar_balance": "362.10"}
BOOKS = ("quickbooks", quickbooks, "customer:1", "quickbooks.customer", "quickbooks.invoice")
HUBSPOT = ("hubspot", hubspot, "company:1", "hubspot.company", "hubspot.deal")
AMOUNTS = st.none() | st.decimals(-(10**20), 10**20, places=2).map(str) | st.sampled_from(["0.10", "5", "1e2", "-0"])
DAYS = st.sampled_from([None, "", "2026-01-01", "2026-01-02", "2026-01-01T00:00:00.5", "é", "Z"])
FACTS = st.fixed_dictionaries(
    {"total": AMOUNTS, "date": DAYS, "changed": DAYS, "open": st.sampled_from([True, True, False, None, "true?"])},
    optional={"number": st.sampled_from(["7", 'a "b"']), "name": st.just("x"), "amount": AMOUNTS, "stage": st.none()},
)
CHILDREN = st.dictionaries(st.integers(1, 120), st.tuples(FACTS, st.sampled_from(range(9))), max_size=12)


def document(source: ConnectedSource, external_id: str, kind: str, facts: Any, **params: Any) -> SourceDocument:
    return SourceDocument(
        user_id=source.user_id, source=source, external_id=external_id, document_type=kind, facts=facts,
        raw_payload={}, **params,
    )  # fmt: skip


def key_facts(source: ConnectedSource, key: str) -> Any:
    """Return them with their numbers as they are stored."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT key_facts::text FROM client_intelligence WHERE source_id = %s AND external_id = %s",
            [source.pk, key],
        )
        return load_json(cursor.fetchone()[0])


@pytest.mark.slow
@pytest.mark.parametrize("of", [BOOKS, HUBSPOT], ids=["quickbooks", "hubspot"])
@given(payload=CHILDREN)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_sql_rollup_equals_the_python_rollup(of: Any, payload: dict[int, Any], ana: Person) -> None:
    slug, provider, key, kind, child = of
    source = ConnectedSource.objects.create(user_id=ana.id, provider=slug, account=str(ConnectedSource.objects.count()))
    own = document(source, key, kind, NAME)
    gone = {7: {"deleted_at": source.created_at}}
    other = {8: {"parent_external_id": f"{key}0"}}
    created = [
        document(source, f"x:{id}", f"{child}.other" if odd == 6 else child, facts,
                 **({"parent_external_id": key} | gone.get(odd, {}) | other.get(odd, {})))
        for id, (facts, odd) in payload.items()
    ]  # fmt: skip
    SourceDocument.objects.bulk_create([own, *created])
    counted = [each for each, (_, odd) in zip(created, payload.values(), strict=True) if odd < 7]
    few = _with_few(provider)

    client_rollup.recompute_clients(source, few, [key])

    client = provider.build_client(own, python_rollup.rollup_children(few.ROLLUP, counted))
    assert key_facts(source, key) == load_json(dump_json(client.key_facts))


def _with_few(provider: Any) -> Any:
    """Show three only, so that a dozen are too many."""

    class Few:
        ROLLUP = replace(provider.ROLLUP, most=3)
        build_client, client_text = staticmethod(provider.build_client), staticmethod(provider.client_text)

    return Few


def test_money_is_kept_as_numbers_to_the_last_digit(ana: Person) -> None:
    source = ConnectedSource.objects.create(user_id=ana.id, provider="quickbooks")
    totals = ["0.1", "99999999999999999999.01", "-5.30"]
    SourceDocument.objects.bulk_create(
        [document(source, "customer:1", "quickbooks.customer", NAME)]
        + [
            document(source, f"invoice:{n}", "quickbooks.invoice", {"total": total}, parent_external_id="customer:1")
            for n, total in enumerate(totals)
        ]
    )

    client_rollup.recompute_clients(source, quickbooks, ["customer:1"])

    payload = key_facts(source, "customer:1")
    assert (payload["ar_balance"], payload["total_lifetime_value"]) == (
        Decimal("362.10"),
        Decimal("99999999999999999993.81"),
    )


def test_a_hundred_open_deals_are_shown_and_all_are_counted(ana: Person) -> None:
    source = ConnectedSource.objects.create(user_id=ana.id, provider="hubspot")
    facts = [{"name": f"{n}", "open": n != 5, "changed": f"2026-01-01T{n:04}"} for n in range(104)]
    SourceDocument.objects.bulk_create(
        [document(source, "company:1", "hubspot.company", NAME)]
        + [
            document(source, f"deal:{n}", "hubspot.deal", payload, parent_external_id="company:1")
            for n, payload in enumerate(facts)
        ]
    )

    client_rollup.recompute_clients(source, hubspot, ["company:1"])

    payload = key_facts(source, "company:1")
    assert [each["name"] for each in payload["open_deals"]] == [str(n) for n in range(103, 5, -1)] + ["4", "3"]
    assert payload["open_deals_count"] == 103


def test_no_more_children_are_read_than_are_shown(ana: Person, source: ConnectedSource) -> None:
    """And they are found by their client, so that other clients' children cost nothing."""
    SourceDocument.objects.bulk_create(
        [document(source, "customer:1", "quickbooks.customer", NAME)]
        + [
            document(source, f"invoice:{n}", "quickbooks.invoice", {}, parent_external_id=f"customer:{n % 40}")
            for n in range(800)
        ]
    )
    params = {"source": source.pk, "keys": ["customer:1"], **asdict(quickbooks.ROLLUP)}
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE source_documents")
    (row,) = execute(client_rollup.READ, params)
    plan = "\n".join(line[0] for line in execute(f"EXPLAIN {client_rollup.READ}", params))

    assert len(load_json(row.newest)) == quickbooks.LAST
    assert plan.count("ix_source_documents_parent") == 2
    assert "Seq Scan" not in plan
