"""HubSpot: contacts, companies and deals, listed, searched and put into the bin."""

from __future__ import annotations

import json
import re
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import count
from threading import RLock
from typing import Any

from testing.fakes.account_server import AccountServer, now_ms
from testing.fakes.http_messages import Answer, Refusal, Request, as_json

KINDS = ("contacts", "companies", "deals")
MOST = 100  # of a listing; a search may have 200
BEGAN = 1_767_571_200_000  # 2026-01-05: records that are made up changed a second after each other from then on
CATEGORIES = {
    401: "EXPIRED_AUTHENTICATION", 403: "MISSING_SCOPES", 404: "OBJECT_NOT_FOUND", 429: "RATE_LIMITS",
    400: "VALIDATION_ERROR",
}  # fmt: skip
TYPES: dict[bool, list[tuple[int, str | None]]] = {True: [(341, None), (5, "Primary")], False: [(341, None)]}
NAMES = {5: "deal_to_company", 341: "deal_to_company_unlabeled"}
INDUSTRIES = ("HOSPITAL_HEALTH_CARE", "CONSTRUCTION", "COMPUTER_SOFTWARE", "RETAIL", "FOOD_BEVERAGES")
STAGES = ("appointmentscheduled", "presentationscheduled", "contractsent", "closedwon", "closedlost")


def _contact(id: int, total: Mapping[str, int]) -> dict[str, Any]:
    return {
        "firstname": f"First{id}", "lastname": f"Last{id}", "email": f"contact{id}@example.com",
        "company": f"Company {id} Ltd", "jobtitle": "Buyer", "lifecyclestage": "lead", "industry": None,
    }  # fmt: skip


def _company(id: int, total: Mapping[str, int]) -> dict[str, Any]:
    return {
        "name": f"Company {id} Ltd", "domain": f"company{id}.example.com", "industry": INDUSTRIES[id % 5],
        "numberofemployees": str(10 + id % 990), "annualrevenue": str(100_000 + id * 17),
        "description": f"Company number {id} supplies towns and clinics with part {id % 97} of the plan.",
    }  # fmt: skip


def _deal(id: int, total: Mapping[str, int]) -> dict[str, Any]:
    stage = STAGES[id % 5]
    return {
        "dealname": f"Deal {id}", "amount": f"{500 + id % 40_000}.00", "dealstage": stage, "pipeline": "default",
        "closedate": "2026-12-31T00:00:00Z", "hs_is_closed": str(stage.startswith("closed")).lower(),
    }  # fmt: skip


MADE: dict[str, Callable[[int, Mapping[str, int]], dict[str, Any]]] = {
    "contacts": _contact,
    "companies": _company,
    "deals": _deal,
}


class Shelf:
    """Records of one kind: those made up from their ids take no room until they are changed."""

    def __init__(self, kind: str, total: Mapping[str, int]) -> None:
        self.kind, self.total = kind, total
        self.modified = {id: BEGAN + id * 1000 for id in range(1, total[kind] + 1)}  # in the order of their ids
        self.binned: dict[int, int] = {}
        self._sorted: list[int] | None = None
        self.own: dict[int, dict[str, Any]] = {}
        self.clock = "lastmodifieddate" if kind == "contacts" else "hs_lastmodifieddate"

    def put(self, id: int, at: int) -> None:
        if id not in self.modified:
            self._sorted = None
        self.modified[id] = at

    def take(self, id: int) -> None:
        del self.modified[id]
        self._sorted = None

    def beyond(self, after: int, most: int) -> list[int]:
        """Return ids from ``after`` on."""
        if self._sorted is None:
            self._sorted = sorted(self.modified)
        start = bisect_left(self._sorted, after)
        return self._sorted[start : start + most]

    def properties(self, id: int) -> dict[str, Any]:
        found = self.own.get(id)
        return found if found is not None else MADE[self.kind](id, self.total)

    def shown(self, id: int, names: Iterable[str]) -> dict[str, Any]:
        created, changed = iso(BEGAN), iso(self.modified.get(id, BEGAN))
        known = {**self.properties(id), "createdate": created, self.clock: changed, "hs_object_id": str(id)}
        said = {name: known[name] for name in (*names, "createdate", self.clock, "hs_object_id") if name in known}
        found = {"id": str(id), "properties": said, "createdAt": created, "updatedAt": changed}
        if id in self.binned:
            return {**found, "archived": True, "archivedAt": iso(self.binned[id])}
        return {**found, "archived": False}


class HubSpotServer(AccountServer):
    """``url`` is the API's address. ``contacts``, ``companies``, ``deals``: how many are made up.

    ``cap``: a search shows so many of its results. ``lag``: seconds until a search knows of a change.
    """

    name = "hubspot"
    settings = (*AccountServer.settings, "cap", "lag")

    def __init__(
        self,
        *,
        contacts: int = 0,
        companies: int = 0,
        deals: int = 0,
        cap: int = 10_000,
        lag: float = 0.0,
        objects_path: str = "/crm/v3/objects",
        associations_path: str = "/crm/v4/associations",
        **server: Any,
    ) -> None:
        super().__init__(**server)
        self.cap, self.lag = cap, lag
        total = {"contacts": contacts, "companies": companies, "deals": deals}
        self.shelves = {kind: Shelf(kind, total) for kind in KINDS}
        self.associations = {
            id: [(1 + (id - 1) % companies, True)] if companies else [] for id in self.shelves["deals"].modified
        }
        self._ids = count(max(total.values()) + 1)
        self._state = RLock()
        object_ = rf"{re.escape(objects_path)}/(\w+)"
        batch = rf"{re.escape(associations_path)}/deals/companies/batch/read"
        self._routes: list[tuple[re.Pattern[str], Callable[..., Answer]]] = [
            (re.compile(rf"GET {object_}"), self._list),
            (re.compile(rf"GET {object_}/(\d+)"), self._get),
            (re.compile(rf"POST {object_}/search"), self._search),
            (re.compile(rf"POST {batch}"), self._associated),
        ]

    def add(
        self, kind: str, properties: Mapping[str, Any], *, at: int | None = None, company: int | None = None
    ) -> int:
        """Add a record, changed at ``at`` in ms of the epoch (now); return its id."""
        with self._state:
            id, shelf = next(self._ids), self.shelves[kind]
            shelf.own[id] = dict(properties)
            shelf.put(id, now_ms() if at is None else at)
            if company is not None:
                self.associations[id] = [(company, True)]
            return id

    def change(self, kind: str, id: int, *, at: int | None = None, **properties: Any) -> None:
        with self._state:
            shelf = self.shelves[kind]
            shelf.own[id] = {**shelf.properties(id), **properties}
            shelf.put(id, now_ms() if at is None else at)

    def archive(self, kind: str, id: int, *, at: int | None = None) -> None:
        with self._state:
            shelf = self.shelves[kind]
            shelf.own[id] = shelf.properties(id)
            shelf.binned[id] = now_ms() if at is None else at
            shelf.take(id)

    def merge(self, kind: str, winner: int, loser: int) -> None:
        with self._state:
            self.shelves[kind].take(loser)
            known = self.shelves[kind].properties(winner).get("hs_merged_object_ids")
            self.change(kind, winner, hs_merged_object_ids=";".join(filter(None, (known, str(loser)))))

    def account(self, request: Request) -> Answer:
        for route, act in self._routes:
            if found := route.fullmatch(request.route):
                with self._state:
                    return act(request, *found.groups())
        raise Refusal(self.error(404))

    def error(self, status: int, code: str | None = None) -> Answer:
        said = {"status": "error", "message": f"The stand-in answers {status}.", "correlationId": str(uuid.uuid4())}
        said["category"] = code or CATEGORIES.get(status, "INTERNAL_ERROR")
        if status == 429:
            said |= {"errorType": "RATE_LIMIT", "policyName": "TEN_SECONDLY_ROLLING"}
        return as_json(said, status, self._pace())

    def _pace(self) -> dict[str, str]:
        if not self.limit:
            return {}
        return {
            "X-HubSpot-RateLimit-Max": str(self.limit),
            "X-HubSpot-RateLimit-Remaining": str(max(0, self.limit - len(self._calls))),
            "X-HubSpot-RateLimit-Interval-Milliseconds": str(int(self.window * 1000)),
        }

    def _shelf(self, kind: str) -> Shelf:
        if kind not in self.shelves:
            raise Refusal(self.error(404))
        return self.shelves[kind]

    def _list(self, request: Request, kind: str) -> Answer:
        shelf, limit = self._shelf(kind), int(request.parameter("limit") or 10)
        if not 1 <= limit <= MOST:
            raise Refusal(self.error(400))
        after = int(request.parameter("after") or 0)
        if request.parameter("archived") == "true":
            ids = sorted(id for id in shelf.binned if id >= after)[: limit + 1]
        else:
            ids = shelf.beyond(after, limit + 1)
        rows = [self._row(shelf, request, id) for id in ids[:limit]]
        onward = str(ids[limit]) if len(ids) > limit else None
        return as_json({"results": rows, **self._paging(request, onward)}, headers=self._pace())

    def _get(self, request: Request, kind: str, id: str) -> Answer:
        shelf = self._shelf(kind)
        if int(id) not in shelf.modified:
            raise Refusal(self.error(404))
        return as_json(self._row(shelf, request, int(id)))

    def _row(self, shelf: Shelf, request: Request, id: int) -> dict[str, Any]:
        row = shelf.shown(id, (request.parameter("properties") or "").split(","))
        found = self.associations.get(id) if shelf.kind == "deals" else None
        if not found or request.parameter("associations") != "companies":
            return row
        kinds = [(company, NAMES[type]) for company, primary in found for type, _ in reversed(TYPES[primary])]
        return {**row, "associations": {"companies": {"results": [{"id": str(c), "type": t} for c, t in kinds]}}}

    def _paging(self, request: Request, after: str | None) -> dict[str, Any]:
        if after is None:
            return {}
        return {"paging": {"next": {"after": after, "link": f"{self.url}{request.path}?after={after}"}}}

    def _search(self, request: Request, kind: str) -> Answer:
        shelf, asked = self._shelf(kind), json.loads(request.body)
        limit, start, sorts = asked.get("limit", 10), int(asked.get("after") or 0), asked.get("sorts", [])
        if not 1 <= limit <= 2 * MOST or start + limit > self.cap or len(sorts) > 1:
            raise Refusal(self.error(400))
        filters = [each for group in asked.get("filterGroups", []) for each in group["filters"]]
        known = now_ms() - int(self.lag * 1000)
        ids = [id for id, at in shelf.modified.items() if at <= known and self._fits(shelf, id, at, filters)]
        order = sorts[0]["propertyName"] if sorts else "hs_object_id"
        # Those that are equal come in any order, and in another one next time.
        ids.sort(
            key=lambda id: (shelf.modified[id] if order == shelf.clock else id, (id * 7919 + self.requests) % 1009)
        )
        rows = [shelf.shown(id, asked.get("properties", [])) for id in ids[start : start + limit]]
        onward = str(start + limit) if start + limit < len(ids) else None
        return as_json({"total": len(ids), "results": rows, **self._paging(request, onward)}, headers=self._pace())

    def _fits(self, shelf: Shelf, id: int, at: int, filters: list[dict[str, str]]) -> bool:
        numbers = {shelf.clock: at, "hs_object_id": id}
        compare: dict[str, Callable[[int, int], bool]] = {
            "GTE": int.__ge__, "GT": int.__gt__, "LTE": int.__le__, "LT": int.__lt__, "EQ": int.__eq__,
        }  # fmt: skip
        return all(compare[each["operator"]](numbers[each["propertyName"]], int(each["value"])) for each in filters)

    def _associated(self, request: Request) -> Answer:
        results, errors = [], []
        for asked in json.loads(request.body)["inputs"]:
            to = [
                {
                    "toObjectId": company,
                    "associationTypes": [
                        {"category": "HUBSPOT_DEFINED", "typeId": type, "label": label}
                        for type, label in TYPES[primary]
                    ],
                }
                for company, primary in self.associations.get(int(asked["id"]), [])
            ]
            if to:
                results.append({"from": {"id": asked["id"]}, "to": to})
            else:
                errors.append(_nobody(asked["id"]))
        now = iso(now_ms())
        body = {"status": "COMPLETE", "results": results, "startedAt": now, "completedAt": now}
        return as_json({**body, "errors": errors, "numErrors": len(errors)}, 207) if errors else as_json(body)


def _nobody(deal: str) -> dict[str, Any]:
    context = {"fromObjectId": [deal], "fromObjectType": ["deal"], "toObjectType": ["company"]}
    return {
        "status": "error",
        "category": "OBJECT_NOT_FOUND",
        "subCategory": "crm.associations.NO_ASSOCIATIONS_FOUND",
        "message": f"No company is associated with deal {deal}.",
        "context": context,
    }


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
