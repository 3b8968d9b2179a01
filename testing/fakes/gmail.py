"""Fake Gmail threads: a few that tests create, and any number of generated ones."""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from testing.fakes.google_drive import Found
from testing.fakes.http_messages import ErrorResponse, Request, Response, json_response

FIRST = 0x18C0000000000000  # of the generated threads' ids; the higher, the newer
NEWEST = 1_763_683_200_000  # ms


class Mail:
    """``put``, ``label`` and ``remove`` are what happens to threads; each is a record of the history."""

    def __init__(self, no: Callable[..., ErrorResponse], *, generated: int = 0) -> None:
        self.no, self.generated = no, generated
        self.threads: dict[str, dict[str, Any]] = {}
        self.gone: set[str] = set()
        self.history: list[dict[str, Any]] = []  # a record's number is its place
        self.oldest = 0  # the first startHistoryId that is still known
        self.most = 500  # a page is never longer, whatever is asked

    def put(self, thread_id: str, *messages: dict[str, Any]) -> None:
        """Add messages (of ``message``) to a thread, which makes it the newest."""
        former = self._whole(thread_id) if self._is_there(thread_id) else {"id": thread_id, "messages": []}
        added = [{**each, "threadId": thread_id, "historyId": self._number()} for each in messages]
        self.threads.pop(thread_id, None)
        self.threads[thread_id] = {**former, "messages": [*former["messages"], *added], "historyId": self._number()}
        self.gone.discard(thread_id)
        self._note("messagesAdded", thread_id, [])

    def label(self, thread_id: str, *labels: str) -> None:
        """Put labels on all messages of a thread: TRASH, SPAM, STARRED."""
        thread = self._whole(thread_id)
        for message in thread["messages"]:
            message["labelIds"] = [*message["labelIds"], *labels]
        self.threads[thread_id] = thread
        self._note("labelsAdded", thread_id, list(labels))

    def remove(self, thread_id: str) -> None:
        self.threads.pop(thread_id, None)
        self.gone.add(thread_id)
        self._note("messagesDeleted", thread_id, [])

    def forget_history(self) -> None:
        """Know no history any more before now."""
        self.history.append({})
        self.oldest = len(self.history)

    def answer(self, parts: list[str], request: Request) -> Found:
        match parts:
            case ["users", "me", "profile"]:
                return Found(json_response({"emailAddress": "ana@example.com", "historyId": self._number()}))
            case ["users", "me", "threads"]:
                return Found(self._list(request))
            case ["users", "me", "threads", thread_id]:
                return Found(json_response(self._thread(thread_id)), f"thread:{thread_id}")
            case ["users", "me", "history"]:
                return Found(self._history(request))
        raise self.no(404)

    def _list(self, request: Request) -> Response:
        size = min(int(request.parameter("maxResults") or 100), self.most)
        start = int(request.parameter("pageToken") or 0)
        ids = list(islice(self._ids(), start, start + size + 1))
        body: dict[str, Any] = {"resultSizeEstimate": self.generated + len(self.threads)}
        if ids[:size]:  # the key is absent when there are none
            number = self._number()
            body["threads"] = [{"id": each, "snippet": f"of {each}", "historyId": number} for each in ids[:size]]
        if len(ids) > size:
            body["nextPageToken"] = str(start + size)
        return json_response(body)

    def _ids(self) -> Iterator[str]:
        for thread_id in reversed(self.threads):
            if not all({"TRASH", "SPAM"} & set(each["labelIds"]) for each in self.threads[thread_id]["messages"]):
                yield thread_id
        for number in range(self.generated - 1, -1, -1):
            thread_id = f"{FIRST + number:x}"
            if thread_id not in self.threads and thread_id not in self.gone:
                yield thread_id

    def _is_there(self, thread_id: str) -> bool:
        if thread_id in self.threads:
            return True
        try:
            number = int(thread_id, 16) - FIRST
        except ValueError:
            return False
        return 0 <= number < self.generated and thread_id not in self.gone

    def _whole(self, thread_id: str) -> dict[str, Any]:
        if thread_id in self.threads:
            return self.threads[thread_id]
        number = int(thread_id, 16) - FIRST
        moment = NEWEST - (self.generated - number) * 1000
        text = f"Message {number} about policy {number * 7}: the premium is due."
        return {"id": thread_id, "historyId": "1", "messages": [message(text, f"Policy {number * 7}", moment=moment)]}

    def _thread(self, thread_id: str) -> dict[str, Any]:
        if not self._is_there(thread_id):
            raise self.no(404)
        return self._whole(thread_id)

    def _history(self, request: Request) -> Response:
        start = request.parameter("startHistoryId") or ""
        if not start.isdigit():
            raise self.no(400)
        if int(start) - 1 < self.oldest:
            raise self.no(404)
        # A page token is of the history as it was when the first page was told: "from-upto".
        at, upto = map(int, (request.parameter("pageToken") or f"{int(start) - 1}-{len(self.history)}").split("-"))
        end = min(at + min(int(request.parameter("maxResults") or 100), self.most), upto)
        records = [record for record in self.history[at:end] if record]
        body: dict[str, Any] = {"historyId": self._number()}
        if records:  # the key is absent when there are none
            body["history"] = records
        if end < upto:
            body["nextPageToken"] = f"{end}-{upto}"
        return json_response(body)

    def _number(self) -> str:
        return str(len(self.history) + 1)

    def _note(self, kind: str, thread_id: str, labels: list[str]) -> None:
        message: dict[str, Any] = {"id": f"m{thread_id}", "threadId": thread_id, "labelIds": labels or ["INBOX"]}
        change = {"message": message, **({"labelIds": labels} if labels else {})}
        self.history.append({"id": self._number(), "messages": [message], kind: [change]})


def message(text: str, subject: str = "Renewal", *, moment: int = NEWEST, **more: Any) -> dict[str, Any]:
    """Return a message of one part as Gmail tells it; ``payload`` replaces what is in it."""
    headers = [
        {"name": "From", "value": more.pop("sender", "Bo Broker <bo@example.com>")},
        {"name": "To", "value": "Ana <ana@example.com>"},
        {"name": "Subject", "value": subject},
    ]
    payload = {"partId": "", "filename": "", **more.pop("payload", text_part(text))}
    return {
        "id": f"m{moment}",
        "threadId": "",
        "labelIds": ["INBOX"],
        "snippet": text[:100],
        "historyId": "1",
        "internalDate": str(moment),
        "sizeEstimate": len(text),
        "payload": {**payload, "headers": [*headers, *payload.get("headers", [])]},
        **more,
    }


def text_part(text: str | bytes, *, mime: str = "text/plain", charset: str = "UTF-8") -> dict[str, Any]:
    content = text.encode() if isinstance(text, str) else text
    data = urlsafe_b64encode(content).rstrip(b"=").decode()
    headers = [{"name": "Content-Type", "value": f'{mime}; charset="{charset}"'}]
    return {"mimeType": mime, "filename": "", "headers": headers, "body": {"size": len(content), "data": data}}


def multipart(*parts: dict[str, Any], kind: str = "alternative") -> dict[str, Any]:
    return {"mimeType": f"multipart/{kind}", "filename": "", "headers": [], "body": {"size": 0}, "parts": list(parts)}


def attachment(name: str, mime: str = "application/pdf") -> dict[str, Any]:
    return {"mimeType": mime, "filename": name, "headers": [], "body": {"attachmentId": "ANGj-1", "size": 34567}}
