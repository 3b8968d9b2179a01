"""Gmail over Google's MCP server: developers.google.com/workspace/gmail/api/reference/mcp.

It returns a message's day where the REST API returns its millisecond, and plain text only. Deletions are found by full
syncs only.
"""

import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from django.conf import settings

from integrations.providers.interface import CapabilityMissing, Params
from integrations.transports.mcp import McpTransport
from vendors.call_failures import InvalidResponse
from vendors.calls import VendorRefused

SEARCH, GET = "search_threads", "get_thread"
PAGE = 50  # the tool's maximum
CURSOR = re.compile(r"at(\d{1,12})", re.ASCII)


class Transport(McpTransport):
    TOOLS = (SEARCH, GET)
    ROUTES = (
        ("GET", r"/users/me/profile", "profile"),
        ("GET", r"/users/me/history", "history"),
        ("GET", r"/users/me/threads", "threads"),
        ("GET", r"/users/me/threads/([^/]+)", "thread"),
    )

    def profile(self, operation: str, params: Params) -> dict[str, Any]:
        return {"historyId": _now()}

    def threads(self, operation: str, params: Params) -> dict[str, Any]:
        return self._search(operation, None, params["pageToken"], params["maxResults"])

    def history(self, operation: str, params: Params) -> dict[str, Any]:
        since = CURSOR.fullmatch(params["startHistoryId"])
        if since is None:
            # A cursor of the REST API: this source was fetched over that before.
            raise VendorRefused(HTTPStatus.NOT_FOUND, None)
        query = f"after:{max(0, int(since[1]) - settings.INGESTION_OVERLAP_SECONDS)}"
        began = _now()
        page = self._search(operation, query, params["pageToken"], params["maxResults"])
        added = [{"messagesAdded": [{"message": {"threadId": thread["id"]}}]} for thread in page.pop("threads")]
        return {"history": added, "historyId": began, **page}

    def thread(self, operation: str, params: Params, id: str) -> dict[str, Any]:
        format = "FULL_CONTENT" if self.takes(GET, "messageFormat") else None
        return self.call_fitting(GET, {"threadId": id, "messageFormat": format}, operation, _thread)

    def _search(self, operation: str, query: str | None, token: str | None, size: int) -> dict[str, Any]:
        if not self.takes(SEARCH, "pageToken"):
            raise CapabilityMissing(f"{SEARCH}.pageToken")
        arguments = {"query": query, "pageToken": token, "pageSize": min(PAGE, size)}
        return self.call_fitting(SEARCH, arguments, operation, _threads)


def _threads(body: Mapping[str, Any]) -> dict[str, Any]:
    threads = body.get("threads", [] if body == {} else None)  # Google omits an empty list
    if not isinstance(threads, list) or not all(isinstance(each, dict) and "id" in each for each in threads):
        raise InvalidResponse("A tool returned no list of threads.")
    token = body.get("nextPageToken")
    return {"threads": threads, **({"nextPageToken": token} if token else {})}


def _thread(body: Mapping[str, Any]) -> dict[str, Any]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidResponse("A tool returned no thread.")
    return {"id": body.get("id"), "messages": [_message(message) for message in messages]}


def _message(message: Any) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise InvalidResponse("A tool returned no message.")
    try:
        time = datetime.fromisoformat(str(message.get("date")))
    except ValueError:
        raise InvalidResponse("A tool returned no time.") from None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    attachments = message.get("attachments")
    headers = {
        "From": message.get("sender"),
        "To": _recipients(message, "toRecipients"),
        "Cc": _recipients(message, "ccRecipients"),
        "Subject": message.get("subject"),
    }
    text = urlsafe_b64encode(str(message.get("plaintextBody") or "").encode("utf-8", "replace")).decode()
    return {
        "id": message.get("id"),
        "snippet": message.get("snippet", ""),
        "internalDate": str(max(0, round(time.timestamp() * 1000))),
        "payload": {
            "mimeType": "multipart/mixed",
            "headers": [{"name": name, "value": header} for name, header in headers.items() if header],
            "parts": [
                {"mimeType": "text/plain", "body": {"data": text}},
                *(
                    {"filename": str(each.get("filename", "")) if isinstance(each, Mapping) else ""}
                    for each in (attachments if isinstance(attachments, list) else [])
                ),
            ],
        },
    }


def _recipients(message: Mapping[str, Any], name: str) -> str:
    addresses = message.get(name)
    return ", ".join(str(each) for each in addresses) if isinstance(addresses, list) else ""


def _now() -> str:
    return f"at{int(datetime.now(UTC).timestamp())}"
