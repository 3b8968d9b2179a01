"""Tests of the HubSpot and QuickBooks fakes: error formats, limits, generated records."""

import json
import urllib.request
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode

import pytest

from testing.fakes.hubspot import HubSpotServer
from testing.fakes.quickbooks import REALM, IntuitServer

TOKEN = "a-token"


def ask(url: str, body: Any = None, *, token: str = TOKEN, **query: str) -> tuple[int, Any]:
    request = urllib.request.Request(f"{url}?{urlencode(query)}", headers={"Authorization": f"Bearer {token}"})
    if body is not None:
        request.data = json.dumps(body).encode()
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, json.load(response)
    except HTTPError as error:
        return error.code, json.load(error)


def query(server: IntuitServer, text: str) -> Any:
    return ask(f"{server.url}/v3/company/{REALM}/query", query=text, minorversion="75")


def test_hubspot_shows_no_more_of_a_search_than_its_cap() -> None:
    with HubSpotServer(companies=30, cap=10) as server:
        url = f"{server.url}/crm/v3/objects/companies/search"
        first, last, beyond = (ask(url, {"limit": 5, "after": after}) for after in ("0", "5", "10"))
        two_rules = ask(url, {"sorts": [{"propertyName": "name"}, {"propertyName": "domain"}]})

    assert (first[0], first[1]["total"], first[1]["paging"]["next"]["after"]) == (200, 30, "5")
    assert [last[0], beyond[0], two_rules[0]] == [200, 400, 400]
    assert beyond[1]["category"] == "VALIDATION_ERROR"


def test_hubspot_lists_a_hundred_thousand_that_take_no_room() -> None:
    with HubSpotServer(companies=100_000) as server:
        _, body = ask(f"{server.url}/crm/v3/objects/companies", limit="2", after="99999", properties="name,domain")
        status, _ = ask(f"{server.url}/crm/v3/objects/companies", limit="101")

    assert [row["properties"]["name"] for row in body["results"]] == ["Company 99999 Ltd", "Company 100000 Ltd"]
    assert "paging" not in body
    assert status == 400
    assert server.stores["companies"].own == {}


def test_a_token_that_was_taken_back_is_refused_in_each_vendors_own_words() -> None:
    tokens = {TOKEN}
    with HubSpotServer(contacts=1, tokens=tokens) as hubspot, IntuitServer(customers=1, tokens=tokens) as intuit:
        assert ask(f"{hubspot.url}/crm/v3/objects/contacts")[0] == 200
        tokens.clear()
        refused = ask(f"{hubspot.url}/crm/v3/objects/contacts"), query(intuit, "SELECT * FROM Customer")

    assert [status for status, _ in refused] == [401, 401]
    assert refused[0][1]["category"] == "EXPIRED_AUTHENTICATION"
    assert refused[1][1]["fault"]["type"] == "AUTHENTICATION"


def test_a_limit_counts_the_calls_of_its_window() -> None:
    with IntuitServer(customers=1, limit=2, window=600) as server:
        answers = [query(server, "SELECT * FROM Customer") for _ in range(3)]

    assert [status for status, _ in answers] == [200, 200, 429]
    assert "003001" in answers[2][1]["fault"]["error"][0]["message"]
    assert server.control_fields()["refused"] == 1


def test_a_change_comes_right_after_the_answer_it_was_told_for() -> None:
    with HubSpotServer(companies=2) as server:
        server.schedule_change("GET */companies", lambda: server.archive("companies", 1), after=2)
        seen = [len(ask(f"{server.url}/crm/v3/objects/companies")[1]["results"]) for _ in range(3)]

    assert seen == [2, 2, 1]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT * FROM Customer", 2),  # the inactive one is left out
        ("SELECT * FROM Customer WHERE Active IN (true, false) ORDERBY Id", 3),
        ("SELECT * FROM Customer WHERE Active IN (true, false) ORDERBY Id STARTPOSITION 3 MAXRESULTS 10", 1),
        ("SELECT * FROM Customer STARTPOSITION 9 MAXRESULTS 10", 0),
    ],
)
def test_quickbooks_answers_a_query_by_position(text: str, found: int) -> None:
    with IntuitServer(customers=3) as server:
        server.change("Customer", 2, Active=False)
        status, body = query(server, text)

    assert status == 200
    assert len(body["QueryResponse"].get("Customer", [])) == found


@pytest.mark.parametrize("text", ["", "SELECT * FROM Vendor", "SELECT * FROM Customer MAXRESULTS 1001", "DROP TABLE x"])
def test_quickbooks_refuses_another_query(text: str) -> None:
    with IntuitServer() as server:
        status, body = query(server, text)

    assert status == 400
    assert body["Fault"]["type"] == "ValidationFault"
