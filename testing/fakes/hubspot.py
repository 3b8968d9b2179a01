"""Fake HubSpot: contacts, companies and deals with listing, search, archive and associations."""

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
from testing.fakes.http_messages import ErrorResponse, Request, Response, json_response

KINDS = ("contacts", "companies", "deals")
MAX_PAGE_SIZE = 100  # of a listing; a search may have 200
FIRST_CHANGE_MS = (
    1_767_571_200_000  # 2026-01-05: records that are made up changed a second after each other from then on
)
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


GENERATORS: dict[str, Callable[[int, Mapping[str, int]], dict[str, Any]]] = {
    "contacts": _contact,
    "companies": _company,
    "deals": _deal,
}


class RecordStore:
    """Records of one kind: those made up from their ids take no room until they are changed."""

    def __init__(self, kind: str, total: Mapping[str, int]) -> None:
        self.kind, self.total = kind, total
        self.modified = {
            id: FIRST_CHANGE_MS + id * 1000 for id in range(1, total[kind] + 1)
        }  # in the order of their ids
        self.binned: dict[int, int] = {}
        self._sorted: list[int] | None = None
        self.own: dict[int, dict[str, Any]] = {}
        self.clock = "lastmodifieddate" if kind == "contacts" else "hs_lastmodifieddate"

    def put(self, id: int, at: int) -> None:
        if id not in self.modified:
            self._sorted = None
        self.modified[id] = at

    def remove(self, id: int) -> None:
        del self.modified[id]
        self._sorted = None

    def ids_from(self, after: int, most: int) -> list[int]:
        """Return ids from ``after`` on."""
        if self._sorted is None:
            self._sorted = sorted(self.modified)
        start = bisect_left(self._sorted, after)
        return self._sorted[start : start + most]

    def properties(self, id: int) -> dict[str, Any]:
        properties = self.own.get(id)
        return properties if properties is not None else GENERATORS[self.kind](id, self.total)

    def to_json(self, id: int, names: Iterable[str]) -> dict[str, Any]:
        created, changed = format_time(FIRST_CHANGE_MS), format_time(self.modified.get(id, FIRST_CHANGE_MS))
        values = {**self.properties(id), "createdate": created, self.clock: changed, "hs_object_id": str(id)}
        properties = {
            name: values[name] for name in (*names, "createdate", self.clock, "hs_object_id") if name in values
        }
        record = {"id": str(id), "properties": properties, "createdAt": created, "updatedAt": changed}
        if id in self.binned:
            return {**record, "archived": True, "archivedAt": format_time(self.binned[id])}
        return {**record, "archived": False}


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
        self.stores = {kind: RecordStore(kind, total) for kind in KINDS}
        self.associations = {
            id: [(1 + (id - 1) % companies, True)] if companies else [] for id in self.stores["deals"].modified
        }
        self._ids = count(max(total.values()) + 1)
        self._state = RLock()
        object_ = rf"{re.escape(objects_path)}/(\w+)"
        batch = rf"{re.escape(associations_path)}/deals/companies/batch/read"
        self._routes: list[tuple[re.Pattern[str], Callable[..., Response]]] = [
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
            id, shelf = next(self._ids), self.stores[kind]
            shelf.own[id] = dict(properties)
            shelf.put(id, now_ms() if at is None else at)
            if company is not None:
                self.associations[id] = [(company, True)]
            return id

    def change(self, kind: str, id: int, *, at: int | None = None, **properties: Any) -> None:
        with self._state:
            shelf = self.stores[kind]
            shelf.own[id] = {**shelf.properties(id), **properties}
            shelf.put(id, now_ms() if at is None else at)

    def archive(self, kind: str, id: int, *, at: int | None = None) -> None:
        with self._state:
            shelf = self.stores[kind]
            shelf.own[id] = shelf.properties(id)
            shelf.binned[id] = now_ms() if at is None else at
            shelf.remove(id)

    def merge(self, kind: str, winner: int, loser: int) -> None:
        with self._state:
            self.stores[kind].remove(loser)
            merged_ids = self.stores[kind].properties(winner).get("hs_merged_object_ids")
            self.change(kind, winner, hs_merged_object_ids=";".join(filter(None, (merged_ids, str(loser)))))

    def respond_authorized(self, request: Request) -> Response:
        for route, act in self._routes:
            if match := route.fullmatch(request.route):
                with self._state:
                    return act(request, *match.groups())
        raise ErrorResponse(self.error_response(404))

    def error_response(self, status: int, code: str | None = None) -> Response:
        body = {"status": "error", "message": f"The fake answers {status}.", "correlationId": str(uuid.uuid4())}
        body["category"] = code or CATEGORIES.get(status, "INTERNAL_ERROR")
        if status == 429:
            body |= {"errorType": "RATE_LIMIT", "policyName": "TEN_SECONDLY_ROLLING"}
        return json_response(body, status, self._pace())

    def _pace(self) -> dict[str, str]:
        if not self.limit:
            return {}
        return {
            "X-HubSpot-RateLimit-Max": str(self.limit),
            "X-HubSpot-RateLimit-Remaining": str(max(0, self.limit - len(self._calls))),
            "X-HubSpot-RateLimit-Interval-Milliseconds": str(int(self.window * 1000)),
        }

    def _store(self, kind: str) -> RecordStore:
        if kind not in self.stores:
            raise ErrorResponse(self.error_response(404))
        return self.stores[kind]

    def _list(self, request: Request, kind: str) -> Response:
        shelf, limit = self._store(kind), int(request.parameter("limit") or 10)
        if not 1 <= limit <= MAX_PAGE_SIZE:
            raise ErrorResponse(self.error_response(400))
        after = int(request.parameter("after") or 0)
        if request.parameter("archived") == "true":
            ids = sorted(id for id in shelf.binned if id >= after)[: limit + 1]
        else:
            ids = shelf.ids_from(after, limit + 1)
        rows = [self._row(shelf, request, id) for id in ids[:limit]]
        onward = str(ids[limit]) if len(ids) > limit else None
        return json_response({"results": rows, **self._paging(request, onward)}, headers=self._pace())

    def _get(self, request: Request, kind: str, id: str) -> Response:
        shelf = self._store(kind)
        if int(id) not in shelf.modified:
            raise ErrorResponse(self.error_response(404))
        return json_response(self._row(shelf, request, int(id)))

    def _row(self, shelf: RecordStore, request: Request, id: int) -> dict[str, Any]:
        row = shelf.to_json(id, (request.parameter("properties") or "").split(","))
        companies = self.associations.get(id) if shelf.kind == "deals" else None
        if not companies or request.parameter("associations") != "companies":
            return row
        kinds = [(company, NAMES[type]) for company, primary in companies for type, _ in reversed(TYPES[primary])]
        return {**row, "associations": {"companies": {"results": [{"id": str(c), "type": t} for c, t in kinds]}}}

    def _paging(self, request: Request, after: str | None) -> dict[str, Any]:
        if after is None:
            return {}
        return {"paging": {"next": {"after": after, "link": f"{self.url}{request.path}?after={after}"}}}

    def _search(self, request: Request, kind: str) -> Response:
        shelf, params = self._store(kind), json.loads(request.body)
        limit, start, sorts = params.get("limit", 10), int(params.get("after") or 0), params.get("sorts", [])
        if not 1 <= limit <= 2 * MAX_PAGE_SIZE or start + limit > self.cap or len(sorts) > 1:
            raise ErrorResponse(self.error_response(400))
        filters = [each for group in params.get("filterGroups", []) for each in group["filters"]]
        latest = now_ms() - int(self.lag * 1000)
        ids = [id for id, at in shelf.modified.items() if at <= latest and self._fits(shelf, id, at, filters)]
        order = sorts[0]["propertyName"] if sorts else "hs_object_id"
        # Those that are equal come in any order, and in another one next time.
        ids.sort(
            key=lambda id: (shelf.modified[id] if order == shelf.clock else id, (id * 7919 + self.requests) % 1009)
        )
        rows = [shelf.to_json(id, params.get("properties", [])) for id in ids[start : start + limit]]
        onward = str(start + limit) if start + limit < len(ids) else None
        return json_response(
            {"total": len(ids), "results": rows, **self._paging(request, onward)}, headers=self._pace()
        )

    def _fits(self, shelf: RecordStore, id: int, at: int, filters: list[dict[str, str]]) -> bool:
        numbers = {shelf.clock: at, "hs_object_id": id}
        compare: dict[str, Callable[[int, int], bool]] = {
            "GTE": int.__ge__, "GT": int.__gt__, "LTE": int.__le__, "LT": int.__lt__, "EQ": int.__eq__,
        }  # fmt: skip
        return all(compare[each["operator"]](numbers[each["propertyName"]], int(each["value"])) for each in filters)

    def _associated(self, request: Request) -> Response:
        results, errors = [], []
        for deal in json.loads(request.body)["inputs"]:
            to = [
                {
                    "toObjectId": company,
                    "associationTypes": [
                        {"category": "HUBSPOT_DEFINED", "typeId": type, "label": label}
                        for type, label in TYPES[primary]
                    ],
                }
                for company, primary in self.associations.get(int(deal["id"]), [])
            ]
            if to:
                results.append({"from": {"id": deal["id"]}, "to": to})
            else:
                errors.append(_no_association_error(deal["id"]))
        now = format_time(now_ms())
        body = {"status": "COMPLETE", "results": results, "startedAt": now, "completedAt": now}
        return (
            json_response({**body, "errors": errors, "numErrors": len(errors)}, 207) if errors else json_response(body)
        )


def _no_association_error(deal: str) -> dict[str, Any]:
    context = {"fromObjectId": [deal], "fromObjectType": ["deal"], "toObjectType": ["company"]}
    return {
        "status": "error",
        "category": "OBJECT_NOT_FOUND",
        "subCategory": "crm.associations.NO_ASSOCIATIONS_FOUND",
        "message": f"No company is associated with deal {deal}.",
        "context": context,
    }


def format_time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
