"""The search page shows records of connected systems beside passages, and leads to the provider's page only."""

from __future__ import annotations

import pytest

from portal.tests.conftest import signed_in
from testing.findable import findable
from testing.people import Person
from testing.records import client, connected, record

pytestmark = pytest.mark.django_db


def shown(person: Person, query: str, **more: str) -> str:
    answer = signed_in(person).post("/find", {"query": query, "mode": "text", **more})
    assert answer.status_code == 200
    return str(answer.content.decode())


def test_records_stand_below_the_passages_with_system_title_words_and_link(ana: Person) -> None:
    findable(ana.id, ["apples in the plan"])
    record(connected(ana.id), "company:1", "Northwind grows apples", title="North & wind", url="https://a.example/1")
    client(ana.id, "Tailspin", "buys apples")

    page = shown(ana, "apples")

    assert "1 passage found" in page
    assert "2 records of connected systems" in page
    assert '<a href="https://a.example/1" target="_blank" rel="noopener noreferrer">' in page
    assert "North &amp; wind" in page
    assert "HubSpot" in page
    assert "Northwind grows <mark>apples</mark>" in page
    assert "Tailspin" in page
    assert "Client" in page


def test_a_link_that_is_no_web_page_is_not_made_one(ana: Person) -> None:
    source = connected(ana.id)
    for number, url in enumerate(("javascript:alert(1)", "http://a.example", "//a.example", "HTTPS", None)):
        record(source, f"company:{number}", "apples", title="North", url=url)

    page = shown(ana, "apples")

    assert "5 records found" in page
    assert "noopener" not in page


def test_who_asks_one_document_asks_no_system_and_another_tenant_finds_nothing(ana: Person, ben: Person) -> None:
    document = findable(ana.id, ["pears in the plan"])
    record(connected(ana.id), "company:1", "apples", title="North")

    assert "Nothing was found" in shown(ana, "apples", document=str(document))
    assert "Nothing was found" in shown(ben, "apples")
