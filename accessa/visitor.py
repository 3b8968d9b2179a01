"""A tenant's way through the HTTP API, with nothing but the standard library: declare, put, watch, ask, delete."""

from __future__ import annotations

import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from documents.limits import MIME
from documents.watching import Seen

TIMEOUT = 60.0


class Answered(Exception):
    """The API said no: a stable code and a sentence."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Visitor:
    url: str
    token: str

    def upload(self, file: Path) -> UUID:
        """Declare a file and put its bytes where the API says; return the job's id."""
        with file.open("rb") as content:
            sha256 = hashlib.file_digest(content, "sha256").hexdigest()
        length = file.stat().st_size
        declared = self._ask(
            "POST",
            "/upload",
            {"filename": file.name, "bytes_len": length, "mime": MIME, "sha256": sha256, "ocr": False},
        )
        with file.open("rb") as content:
            headers = {"Content-Length": str(length), "Content-Type": MIME}
            request = urllib.request.Request(declared["signed_url"], content, headers, method="PUT")  # noqa: S310
            _open(request).close()
        return UUID(declared["job_id"])

    def jobs(self) -> Iterator[Seen]:
        """Look at all jobs in one call a page."""
        address: str | None = f"{self.url}/jobs?page_size=200"
        while address:
            page = self._ask("GET", address.removeprefix(self.url))
            for job in page["results"]:
                failure = (job["last_error"] or {}).get("code") if job["state"] == "deadletter" else None
                pct = job["progress"]["total_pct"]
                yield Seen(UUID(job["job_id"]), job["stage"], job["state"], pct, failure)
            address = page["next"]

    def forget(self) -> None:
        """Delete every document."""
        while page := self._ask("GET", "/documents?page_size=200")["results"]:
            for document in page:
                self._ask("DELETE", f"/documents/{document['document_id']}")

    def search(self, query: str, k: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._ask("POST", "/search", {"query": query, "k": k})["passages"]
        return found

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, content, headers, method=method)  # noqa: S310
        with _open(request) as response:
            answer = response.read()
        return json.loads(answer) if answer else None


def _open(request: urllib.request.Request) -> Any:
    try:
        return urllib.request.urlopen(request, timeout=TIMEOUT)  # noqa: S310
    except urllib.error.HTTPError as error:
        try:
            answer = json.loads(error.read())
            raise Answered(answer["code"], answer["detail"]) from None
        except (ValueError, KeyError):
            raise Answered("UNKNOWN", f"HTTP {error.code}") from None
