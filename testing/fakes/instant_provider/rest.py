"""Generated records of the instant connector, page by page; nothing is kept in memory."""

import os
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings

from integrations.models import ConnectedSource
from integrations.providers.interface import McpClient, Page, RawItem, Stream

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
INDUSTRIES = ("INSURANCE", "CONSTRUCTION", "HOSPITAL_HEALTH_CARE", "LOGISTICS_AND_SUPPLY_CHAIN", "FARMING")
SHARES = {"contacts": 0.5, "companies": 0.25, "deals": 0.25}


class Client(McpClient):
    """``INSTANT_RECORDS`` of them, half contacts, a quarter companies, a quarter deals of these."""

    provider = "hubspot"

    def __init__(self, source: ConnectedSource, transport: Any) -> None:
        super().__init__(source, transport)
        self.records = int(os.environ.get("INSTANT_RECORDS", "2000"))

    def begin(self, kind: str) -> dict[str, Any]:
        return {}

    def page(self, stream: Stream, kind: str, since: Any, page_token: str | None) -> Page:
        first, last = int(page_token or 0), int(self.records * SHARES[stream.name])
        until = min(last, first + settings.INGESTION_PAGE_SIZE)
        items = [self._made(stream, number) for number in range(first, until)]
        return Page(items, next_page=str(until) if until < last else None)

    def _made(self, stream: Stream, number: int) -> RawItem:
        changed = BEGAN + timedelta(seconds=number)
        payload: dict[str, Any] = {"id": str(number), "properties": _PROPERTIES[stream.name](number), "archived": False}
        if stream.name == "deals":
            company = str(number % max(1, int(self.records * SHARES["companies"])))
            payload["associations"] = {"companies": {"results": [{"id": company, "type": "deal_to_company"}]}}
        return RawItem(
            f"{stream.document_type.partition('.')[2]}:{number}", stream.document_type, payload, BEGAN, changed
        )

    def get(self, method: str, id: str) -> RawItem:
        raise NotImplementedError


def _contact(number: int) -> dict[str, str]:
    return {
        "firstname": f"First{number}",
        "lastname": f"Last{number}",
        "email": f"first{number}@example.com",
        "company": f"Company {number // 2}",
        "jobtitle": "Benefits manager",
        "lifecyclestage": "customer",
    }


def _company(number: int) -> dict[str, str]:
    return {
        "name": f"Company {number}",
        "domain": f"company{number}.example",
        "industry": INDUSTRIES[number % len(INDUSTRIES)],
        "numberofemployees": str(10 + number % 500),
        "annualrevenue": str(100_000 + number),
        "description": f"Company {number} insures {number % 97} plants in the north and renews its plans every spring.",
    }


def _deal(number: int) -> dict[str, str]:
    return {
        "dealname": f"Renewal {number}",
        "amount": f"{1000 + number}.50",
        "dealstage": "presentationscheduled",
        "pipeline": "default",
        "closedate": "2026-12-01T00:00:00Z",
        "hs_is_closed": "false",
    }


_PROPERTIES = {"contacts": _contact, "companies": _company, "deals": _deal}
