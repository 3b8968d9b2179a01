"""MCP tools of the providers, named as in their documentation, over the fakes of their APIs."""

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from email.message import Message
from typing import Any
from urllib.parse import urlencode

from integrations.providers.gmail import threads
from testing.fakes.account_server import AccountServer
from testing.fakes.google import DriveServer, GmailServer
from testing.fakes.http_messages import ErrorResponse, Request
from testing.fakes.hubspot import HubSpotServer
from testing.fakes.mcp import Tool
from testing.fakes.quickbooks import IntuitServer

WORD, NUMBER, FLAG = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
WORDS = {"type": "array", "items": WORD}
PRIMARY = "hs_primary_associated_company"


def call_api(server: AccountServer, method: str, path: str, params: Mapping[str, Any], body: Any = None) -> bytes:
    """Ask a fake without HTTP and without a token: what it answers; raises ErrorResponse."""
    query = urlencode({name: value for name, value in params.items() if value is not None})
    content = b"" if body is None else json.dumps(body).encode()
    return server.respond_authorized(Request(method, path, f"{path}?{query}", query, Message(), content)).body


# --- HubSpot: developers.hubspot.com/mcp ----------------------------------------------------------------------------
def hubspot_tools(crm: HubSpotServer) -> dict[str, Tool]:
    def row(kind: str, record: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
        properties = dict(record["properties"])
        if PRIMARY in names:
            companies = [str(id) for id, primary in crm.associations.get(int(record["id"]), []) if primary]
            properties[PRIMARY] = next(iter(companies), None)
        return {"id": int(record["id"]), "properties": properties, "urlTemplate": "https://app.hubspot.com/{id}"}

    def search(arguments: dict[str, Any]) -> dict[str, Any]:
        kind, names = arguments["objectType"], arguments.get("properties", [])
        body = {name: arguments[name] for name in ("filterGroups", "sorts", "properties", "limit") if name in arguments}
        page = json.loads(call_api(crm, "POST", f"/crm/v3/objects/{kind}/search", {}, body))
        return {"results": [row(kind, each, names) for each in page["results"]], "total": page["total"], "offset": 0}

    def get(arguments: dict[str, Any]) -> dict[str, Any]:
        kind, names, rows = arguments["objectType"], arguments.get("properties", []), []
        for id in arguments["objectIds"]:
            try:
                path = f"/crm/v3/objects/{kind}/{id}"
                rows.append(json.loads(call_api(crm, "GET", path, {"properties": ",".join(names)})))
            except ErrorResponse:
                continue
        return {"results": [row(kind, each, names) for each in rows]}

    objects = {"type": "array", "items": {"type": "object"}}
    return {
        "get_user_details": Tool({}, lambda said: {}),
        "search_crm_objects": Tool(
            {
                "objectType": WORD, "query": WORD, "filterGroups": {**objects, "maxItems": 5}, "sorts": objects,
                "properties": WORDS, "limit": {**NUMBER, "maximum": 200}, "offset": NUMBER,
            },
            search, ("objectType",),
        ),
        "get_crm_objects": Tool(
            {
                "objectType": WORD, "objectIds": {"type": "array", "items": {"type": "number"}, "maxItems": 100},
                "properties": WORDS,
            },
            get, ("objectType", "objectIds"),
        ),
    }  # fmt: skip


# --- QuickBooks: github.com/intuit/quickbooks-online-mcp-server -----------------------------------------------------
def quickbooks_tools(books: IntuitServer) -> dict[str, Tool]:
    base = f"/v3/company/{books.realm}"

    def search(entity: str, arguments: Mapping[str, Any], filters: list[dict[str, Any]]) -> list[str]:
        fields = {each["field"]: each["value"] for each in filters}
        where = " WHERE Active IN (true, false)" if "Active" in fields else ""
        query = f"SELECT * FROM {entity}{where} ORDERBY Id"
        query += f" STARTPOSITION {arguments.get('offset', 1)} MAXRESULTS {arguments.get('limit', 100)}"
        answer = json.loads(call_api(books, "GET", f"{base}/query", {"query": query, "minorversion": "75"}))
        rows = answer["QueryResponse"].get(entity, [])
        if since := fields.get("MetaData.LastUpdatedTime"):
            rows = [row for row in rows if _time(row["MetaData"]["LastUpdatedTime"]) >= _time(since)]
        return [f"Found {len(rows)} {entity.lower()}s:", *(json.dumps(row) for row in rows)]

    def customers(arguments: dict[str, Any]) -> list[str]:
        return search("Customer", arguments["params"], arguments["params"].get("criteria", []))

    def invoices(arguments: dict[str, Any]) -> list[str]:
        criteria = arguments["params"]["criteria"]
        return search("Invoice", criteria, criteria.get("filters", []))

    def customer(arguments: dict[str, Any]) -> list[str]:
        try:
            path = f"{base}/customer/{arguments['params']['id']}"
            return [
                "Customer:",
                json.dumps(json.loads(call_api(books, "GET", path, {"minorversion": "75"}))["Customer"]),
            ]
        except ErrorResponse:
            return ["Error getting customer: Object Not Found"]

    def wrapped(properties: Mapping[str, Any]) -> dict[str, Any]:
        return {"params": {"type": "object", "properties": properties}}

    criteria = {"type": "array", "items": {"type": "object"}}
    bounds = {"limit": {"type": "number"}, "offset": {"type": "number"}, "asc": WORD, "desc": WORD}
    return {
        "search_customers": Tool(wrapped({"criteria": criteria, **bounds}), customers, ("params",)),
        "search_invoices": Tool(wrapped({"criteria": {}}), invoices, ("params",)),
        "get_customer": Tool(wrapped({"id": WORD}), customer, ("params",)),
    }


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


# --- Google: developers.google.com/workspace/drive/api/reference/mcp, …/gmail/api/reference/mcp ---------------------
def google_drive_tools(google: DriveServer) -> dict[str, Tool]:
    fields = "id,name,mimeType,createdTime,modifiedTime,size,trashed,webViewLink"

    def ask(path: str, **params: Any) -> bytes:
        return call_api(google, "GET", f"{google.version}{path}", params)

    def shown(file: Mapping[str, Any]) -> dict[str, Any]:
        names = {"name": "title", "size": "fileSize", "webViewLink": "viewUrl"}
        return {names.get(name, name): value for name, value in file.items() if name != "trashed"}

    def search(arguments: dict[str, Any]) -> dict[str, Any]:
        mimes = re.findall(r"mimeType = '([^']+)'", arguments["query"])
        query = "trashed=false and (" + " or ".join(f"mimeType='{mime}'" for mime in mimes) + ")"
        paging = {"pageToken": arguments.get("pageToken"), "pageSize": arguments.get("pageSize", 10)}
        page = json.loads(ask("/files", q=query, fields=f"nextPageToken,files({fields})", **paging))
        since = re.search(r"modifiedTime > '([^']+)'", arguments["query"])
        files = [file for file in page["files"] if not since or _time(file["modifiedTime"]) > _time(since[1])]
        token = {"nextPageToken": page["nextPageToken"]} if "nextPageToken" in page else {}
        return {**({"files": [shown(file) for file in files]} if files or token else {}), **token}

    def metadata(arguments: dict[str, Any]) -> dict[str, Any]:
        return shown(json.loads(ask(f"/files/{arguments['fileId']}", fields=fields)))

    def download(arguments: dict[str, Any]) -> dict[str, Any]:
        id, mime = arguments["fileId"], arguments.get("exportMimeType")
        content = ask(f"/files/{id}/export", mimeType=mime) if mime else ask(f"/files/{id}", alt="media")
        return {"id": id, "content": b64encode(content).decode()}

    def read(arguments: dict[str, Any]) -> dict[str, Any]:
        file = json.loads(ask(f"/files/{arguments['fileId']}", fields=fields))
        mime = "text/csv" if "spreadsheet" in file["mimeType"] else "text/plain"
        return {"fileContent": ask(f"/files/{arguments['fileId']}/export", mimeType=mime).decode()}

    return {
        "search_files": Tool(
            {"query": WORD, "pageToken": WORD, "pageSize": NUMBER, "excludeContentSnippets": FLAG}, search, ("query",)
        ),
        "get_file_metadata": Tool({"fileId": WORD}, metadata, ("fileId",)),
        "download_file_content": Tool({"fileId": WORD, "exportMimeType": WORD}, download, ("fileId",)),
        "read_file_content": Tool({"fileId": WORD}, read, ("fileId",)),
    }


def gmail_tools(google: GmailServer, *, days: bool = False) -> dict[str, Tool]:
    """``days``: a message's time is told by its day, as the documentation says."""

    def ask(path: str, **params: Any) -> Any:
        return json.loads(call_api(google, "GET", f"{google.version}/users/me{path}", params))

    def shown(message: Mapping[str, Any]) -> dict[str, Any]:
        moment = datetime.fromtimestamp(int(message["internalDate"]) / 1000, UTC)
        return {
            "id": message["id"],
            "snippet": message["body_text"][:100],
            "subject": message["subject"],
            "sender": message["from"],
            "toRecipients": message["to"].split(", "),
            "ccRecipients": message["cc"].split(", ") if message.get("cc") else [],
            "date": f"{moment:%Y-%m-%d}" if days else moment.isoformat(),
            "plaintextBody": message["body_text"],
        }

    def get(arguments: dict[str, Any]) -> dict[str, Any]:
        thread = threads.thread_payload(ask(f"/threads/{arguments['threadId']}", format="full"))
        assert thread
        return {"id": thread["id"], "messages": [shown(message) for message in thread["messages"]]}

    def search(arguments: dict[str, Any]) -> dict[str, Any]:
        paging = {"pageToken": arguments.get("pageToken"), "maxResults": arguments.get("pageSize", 20)}
        page = ask("/threads", **paging)
        since = re.fullmatch(r"after:(\d+)", arguments.get("query", ""))
        ids = [each["id"] for each in page.get("threads", []) if not since or newest(each["id"]) >= int(since[1])]
        token = {"nextPageToken": page["nextPageToken"]} if "nextPageToken" in page else {}
        return {**({"threads": [{"id": id} for id in ids]} if ids or token else {}), **token}

    def newest(id: str) -> float:
        return max(int(each["internalDate"]) for each in ask(f"/threads/{id}", format="full")["messages"]) / 1000

    return {
        "search_threads": Tool({"query": WORD, "pageToken": WORD, "pageSize": NUMBER, "includeTrash": FLAG}, search),
        "get_thread": Tool(
            {"threadId": WORD, "messageFormat": {"enum": ["MINIMAL", "FULL_CONTENT"]}}, get, ("threadId",)
        ),
    }
