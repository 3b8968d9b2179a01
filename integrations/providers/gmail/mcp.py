"""Gmail over Google's MCP server: developers.google.com/workspace/gmail/api/reference/mcp.

It tells a message's day where the REST API tells its millisecond, and plain text only. What was deleted is found by
full syncs only.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, cast

from django.conf import settings

from integrations.models import ConnectedSource
from integrations.providers import CapabilityMissing
from integrations.providers.gmail import rest
from integrations.transports.mcp_adapter import McpRestAdapter, Params
from integrations.transports.rest import RestTransport
from vendors.guard import InvalidResponse, VendorRefused

SEARCH, GET = "search_threads", "get_thread"
PAGE = 50  # the tool's most
CURSOR = re.compile(r"at(\d{1,12})", re.ASCII)


class Client(rest.Client):
    """A tenant's mail, asked for by the tools of Google's server."""

    def __init__(self, source: ConnectedSource, tools: Any) -> None:
        super().__init__(source, cast(RestTransport, GmailMcpAdapter(source, tools)))


class GmailMcpAdapter(McpRestAdapter):
    TOOLS = (SEARCH, GET)
    ROUTES = (
        ("GET", r"/users/me/profile", "now"),
        ("GET", r"/users/me/history", "changed"),
        ("GET", r"/users/me/threads", "listed"),
        ("GET", r"/users/me/threads/([^/]+)", "one"),
    )

    def now(self, operation: str, asked: Params) -> dict[str, Any]:
        return {"historyId": _now()}

    def listed(self, operation: str, asked: Params) -> dict[str, Any]:
        return self._search(operation, None, asked["pageToken"], asked["maxResults"])

    def changed(self, operation: str, asked: Params) -> dict[str, Any]:
        since = CURSOR.fullmatch(asked["startHistoryId"])
        if since is None:
            # The cursor is the REST API's: this source was fetched over that before.
            raise VendorRefused(HTTPStatus.NOT_FOUND, None)
        query = f"after:{max(0, int(since[1]) - settings.INGESTION_OVERLAP_SECONDS)}"
        began = _now()
        found = self._search(operation, query, asked["pageToken"], asked["maxResults"])
        added = [{"messagesAdded": [{"message": {"threadId": thread["id"]}}]} for thread in found.pop("threads")]
        return {"history": added, "historyId": began, **found}

    def one(self, operation: str, asked: Params, id: str) -> dict[str, Any]:
        whole = "FULL_CONTENT" if self.takes(GET, "messageFormat") else None
        return self.call(GET, {"threadId": id, "messageFormat": whole}, operation, _thread)

    def _search(self, operation: str, query: str | None, token: str | None, size: int) -> dict[str, Any]:
        if not self.takes(SEARCH, "pageToken"):
            raise CapabilityMissing(f"{SEARCH}.pageToken")
        wanted = {"query": query, "pageToken": token, "pageSize": min(PAGE, size)}
        return self.call(SEARCH, wanted, operation, _threads)


def _threads(body: Mapping[str, Any]) -> dict[str, Any]:
    threads = body.get("threads", [] if body == {} else None)  # Google leaves out what is empty
    if not isinstance(threads, list) or not all(isinstance(each, dict) and "id" in each for each in threads):
        raise InvalidResponse("A tool told no list of threads.")
    token = body.get("nextPageToken")
    return {"threads": threads, **({"nextPageToken": token} if token else {})}


def _thread(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a thread as the REST API shows it."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidResponse("A tool told no thread.")
    return {"id": body.get("id"), "messages": [_message(message) for message in messages]}


def _message(message: Any) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise InvalidResponse("A tool told no message.")
    names = message.get("attachments")
    headers = {
        "From": message.get("sender"),
        "To": _people(message, "toRecipients"),
        "Cc": _people(message, "ccRecipients"),
        "Subject": message.get("subject"),
    }
    text = urlsafe_b64encode(str(message.get("plaintextBody") or "").encode("utf-8", "replace")).decode()
    return {
        "id": message.get("id"),
        "snippet": message.get("snippet", ""),
        "internalDate": _moment(message.get("date")),
        "payload": {
            "mimeType": "multipart/mixed",
            "headers": [{"name": name, "value": value} for name, value in headers.items() if value],
            "parts": [
                {"mimeType": "text/plain", "body": {"data": text}},
                *({"filename": _name(each)} for each in (names if isinstance(names, list) else [])),
            ],
        },
    }


def _people(message: Mapping[str, Any], name: str) -> str:
    found = message.get(name)
    return ", ".join(str(each) for each in found) if isinstance(found, list) else ""


def _name(attachment: Any) -> str:
    return str(attachment.get("filename", "")) if isinstance(attachment, Mapping) else ""


def _moment(told: Any) -> str:
    try:
        moment = datetime.fromisoformat(str(told))
    except ValueError:
        raise InvalidResponse("A tool told no time.") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return str(max(0, round(moment.timestamp() * 1000)))


def _now() -> str:
    return f"at{int(datetime.now(UTC).timestamp())}"
