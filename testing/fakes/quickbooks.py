"""Fake QuickBooks Online: customers and invoices of one company, with queries and change data capture."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from threading import RLock
from typing import Any

from testing.fakes.account_server import AccountServer, now_ms
from testing.fakes.http_messages import ErrorResponse, Request, Response, json_response

REALM = "9341452000000001"
MOST = 1000
LOOK_BACK = timedelta(days=30)
BEGAN = 1_767_571_200_000  # 2026-01-05
QUERY = re.compile(
    r"SELECT (?P<what>\*|count\(\*\)) FROM (?P<entity>\w+)(?: WHERE (?P<where>.+?))?(?: ORDERBY (?P<order>\w+))?"
    r"(?: STARTPOSITION (?P<start>\d+))?(?: MAXRESULTS (?P<most>\d+))?",
    re.IGNORECASE,
)
GATEWAY = {  # what stands before the API answers in another form than the API does
    401: ("AuthenticationFailed", "003200", "AUTHENTICATION"),
    403: ("ApplicationAuthorizationFailed", "003100", "AUTHORIZATION"),
    429: ("ThrottleExceeded", "003001", "SERVICE"),
}


def _customer(id: int, customers: int) -> dict[str, Any]:
    return {
        "DisplayName": f"Customer {id}", "CompanyName": f"Customer {id} Inc", "Active": True, "Job": False,
        "Balance": round(id * 1.37, 2), "BalanceWithJobs": round(id * 1.37, 2),
        "CurrencyRef": {"value": "USD", "name": "United States Dollar"},
        "PrimaryEmailAddr": {"Address": f"customer{id}@example.com"},
        "BillAddr": {"Id": str(id), "Line1": f"{id} Main Street", "City": "Bayshore", "CountrySubDivisionCode": "CA"},
    }  # fmt: skip


def _invoice(id: int, customers: int) -> dict[str, Any]:
    customer, amount = 1 + (id - 1) % max(1, customers), round(10 + id * 0.1, 2)
    return {
        "DocNumber": str(1000 + id), "TxnDate": f"2026-{1 + id % 12:02}-{1 + id % 28:02}", "DueDate": "2026-12-31",
        "TotalAmt": amount, "Balance": amount, "CustomerRef": {"value": str(customer), "name": f"Customer {customer}"},
        "Line": [{"Description": f"Service {id % 7}", "Amount": amount, "DetailType": "SalesItemLineDetail"}],
    }  # fmt: skip


MADE = {"Customer": _customer, "Invoice": _invoice}


class IntuitServer(AccountServer):
    """``url`` is the API's address, ``realm`` the company. ``customers``, ``invoices``: how many are made up.

    ``cdc_most``: entities in an answer of change data capture. ``by_letters``: ids are ordered as text.
    """

    name = "quickbooks"
    settings = (*AccountServer.settings, "cdc_most", "by_letters")

    def __init__(
        self,
        *,
        customers: int = 0,
        invoices: int = 0,
        realm: str = REALM,
        cdc_most: int = MOST,
        by_letters: bool = False,
        **server: Any,
    ) -> None:
        super().__init__(**server)
        self.realm, self.cdc_most, self.by_letters, self.customers = realm, cdc_most, by_letters, customers
        total = {"Customer": customers, "Invoice": invoices}
        self.modified = {
            entity: {id: BEGAN + id * 1000 for id in range(1, number + 1)} for entity, number in total.items()
        }
        self.own: dict[str, dict[int, dict[str, Any]]] = {"Customer": {}, "Invoice": {}}
        self.deleted: dict[str, dict[int, int]] = {"Customer": {}, "Invoice": {}}
        self._ids = count(max(total.values()) + 1)
        self._sorted: dict[tuple[str, bool, bool], list[int]] = {}
        self._state = RLock()
        self._acts: dict[str, Callable[[Request], Response]] = {"query": self._query, "cdc": self._cdc}

    def add(self, entity: str, fields: Mapping[str, Any], *, at: int | None = None) -> int:
        """Add an entity, changed at ``at`` in ms of the epoch (now); return its id."""
        with self._state:
            id = next(self._ids)
            self.own[entity][id], self.modified[entity][id] = dict(fields), now_ms() if at is None else at
            self._sorted.clear()
            return id

    def change(self, entity: str, id: int, *, at: int | None = None, **fields: Any) -> None:
        with self._state:
            self.own[entity][id] = {**self._fields(entity, id), **fields}
            self.modified[entity][id] = now_ms() if at is None else at
            self._sorted.clear()

    def delete(self, entity: str, id: int, *, at: int | None = None) -> None:
        """Delete an invoice; of customers QuickBooks has inactive ones only."""
        with self._state:
            del self.modified[entity][id]
            self.deleted[entity][id] = now_ms() if at is None else at
            self._sorted.clear()

    def respond_authorized(self, request: Request) -> Response:
        match = re.fullmatch(rf"GET /v3/company/{re.escape(self.realm)}/(\w+)(?:/(\d+))?", request.route)
        if not match or not request.parameter("minorversion"):
            raise ErrorResponse(self.error_response(403))
        act, id = match.groups()
        with self._state:
            return self._get(act.capitalize(), int(id)) if id else self._acts[act](request)

    def error_response(self, status: int, code: str | None = None) -> Response:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        if status in GATEWAY:
            name, number, kind = GATEWAY[status]
            reason = f"message={name}; errorCode={code or number}; statusCode={status}"
            error = {"message": reason, "detail": "", "code": (code or number).lstrip("0"), "element": None}
            return json_response(
                {"fault": {"error": [error], "type": kind}, "requestId": None, "time": now_ms()}, status
            )
        fault = {"Message": "The fake refuses.", "Detail": f"It answers {status}.", "code": code or "4000"}
        return json_response({"Fault": {"Error": [fault], "type": "ValidationFault"}, "time": now}, status)

    def _fields(self, entity: str, id: int) -> dict[str, Any]:
        fields = self.own[entity].get(id)
        return fields if fields is not None else MADE[entity](id, self.customers)

    def _shown(self, entity: str, id: int) -> dict[str, Any]:
        meta = {"CreateTime": _time(BEGAN), "LastUpdatedTime": _time(self.modified[entity][id])}
        metadata = {"domain": "QBO", "sparse": False, "Id": str(id), "SyncToken": "0", "MetaData": meta}
        return {**metadata, **self._fields(entity, id)}

    def _get(self, entity: str, id: int) -> Response:
        if id not in self.modified.get(entity, {}):
            raise ErrorResponse(self.error_response(400, "610"))
        return json_response({entity: self._shown(entity, id), "time": _time(now_ms())})

    def _query(self, request: Request) -> Response:
        match = QUERY.fullmatch(request.parameter("query") or "")
        if not match or match["entity"] not in MADE:
            raise ErrorResponse(self.error_response(400))
        entity, most, where = match["entity"], int(match["most"] or 100), match["where"]
        if most > MOST or where not in (None, "Active IN (true, false)"):
            raise ErrorResponse(self.error_response(400))
        ids = self._ordered(entity, active=entity == "Customer" and where is None)
        if match["what"] != "*":
            return json_response({"QueryResponse": {"totalCount": len(ids)}, "time": _time(now_ms())})
        start = int(match["start"] or 1)
        rows = [self._shown(entity, id) for id in ids[start - 1 : start - 1 + most]]
        answer = {entity: rows, "startPosition": start, "maxResults": len(rows)} if rows else {}
        return json_response({"QueryResponse": answer, "time": _time(now_ms())})

    def _ordered(self, entity: str, *, active: bool) -> list[int]:
        key = (entity, active, self.by_letters)
        if key not in self._sorted:
            ids = sorted(self.modified[entity], key=str if self.by_letters else None)
            self._sorted[key] = [id for id in ids if not active or self._fields(entity, id).get("Active", True)]
        return self._sorted[key]

    def _cdc(self, request: Request) -> Response:
        since = datetime.fromisoformat(request.parameter("changedSince") or "")
        if datetime.now(UTC) - since > LOOK_BACK:
            raise ErrorResponse(self.error_response(400))
        changes = [self._changed(entity, since) for entity in (request.parameter("entities") or "").split(",")]
        return json_response({"CDCResponse": [{"QueryResponse": changes}], "time": _time(now_ms())})

    def _changed(self, entity: str, since: datetime) -> dict[str, Any]:
        from_ = since.timestamp() * 1000
        rows = [self._shown(entity, id) for id, at in self.modified[entity].items() if at >= from_]
        rows += [
            {"domain": "QBO", "status": "Deleted", "Id": str(id), "MetaData": {"LastUpdatedTime": _time(at)}}
            for id, at in self.deleted[entity].items()
            if at >= from_
        ]
        rows = rows[: self.cdc_most]
        return {entity: rows, "startPosition": 1, "maxResults": len(rows)} if rows else {}


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).astimezone().isoformat(timespec="milliseconds")
