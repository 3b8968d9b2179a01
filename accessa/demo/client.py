"""A tenant's way through the HTTP API, with nothing but the standard library: declare, put, watch, ask, delete."""

from __future__ import annotations

import base64
import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from django.conf import settings

from documents.cli_progress import JobStatus
from documents.validation import MIME

TIMEOUT = 60.0


class ApiClientError(Exception):
    """The API said no: a stable code and a sentence."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


@dataclass(frozen=True, slots=True)
class ApiClient:
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
            headers = {"Content-Length": str(length), **upload_headers(declared["signed_url"], sha256)}
            request = urllib.request.Request(declared["signed_url"], content, headers, method="PUT")  # noqa: S310
            _open(request).close()
        return UUID(declared["job_id"])

    def jobs(self) -> Iterator[JobStatus]:
        """Look at all jobs in one call a page."""
        for job in self._all("/jobs"):
            failure = (job["last_error"] or {}).get("code") if job["state"] == "deadletter" else None
            pct = job["progress"]["total_pct"]
            yield JobStatus(UUID(job["job_id"]), job["stage"], job["state"], pct, failure)

    def bill(self) -> Iterator[tuple[str, ...]]:
        """Yield for each document its name, pages, cents, tokens, cents, the sum of both and what was predicted."""
        for document in self._all("/documents"):
            own = f"/{document['document_id']}"
            parse, embedding = {"quantity": 0, "cents": 0.0}, {"quantity": 0, "cents": 0.0}
            for bought in self._all(f"/documents{own}/purchases"):
                column = parse if bought["unit"] == "pages" else embedding
                column["quantity"] += bought["quantity"]
                column["cents"] += bought["cents"]
            predicted = self._ask("GET", f"/jobs{own}")["predicted_cents"]
            counts = (parse["quantity"], parse["cents"], embedding["quantity"], embedding["cents"])
            shown = (f"{count:,.4f}" if isinstance(count, float) else f"{count:,}" for count in counts)
            yield document["filename"], *shown, f"{parse['cents'] + embedding['cents']:,.4f}", f"{predicted:,.4f}"

    def _all(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield every row of a list, page by page."""
        address: str | None = f"{self.url}{path}?page_size=200"
        while address:
            page = self._ask("GET", address.removeprefix(self.url))
            yield from page["results"]
            address = page["next"]

    def forget(self) -> None:
        """Delete every document."""
        while page := self._ask("GET", "/documents?page_size=200")["results"]:
            for document in page:
                self._ask("DELETE", f"/documents/{document['document_id']}")

    def search(self, query: str, k: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._ask("POST", "/search", {"query": query, "k": k})["passages"]
        return found

    def records(self, query: str, sources: list[str], k: int) -> list[dict[str, Any]]:
        """Search connected systems."""
        found: list[dict[str, Any]] = self._ask("POST", "/search", {"query": query, "k": k, "sources": sources})[
            "records"
        ]
        return found

    def laws(self, query: str, k: int, *, mode: str = "hybrid") -> list[dict[str, Any]]:
        """Search the statutes, which are everybody's; each result has the ``citation`` of its place."""
        asked = {"query": query, "k": k, "mode": mode, "sources": ["statutes"]}
        found: list[dict[str, Any]] = self._ask("POST", "/search", asked)["laws"]
        return found

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, content, headers, method=method)  # noqa: S310
        with _open(request) as response:
            answer = response.read()
        return json.loads(answer) if answer else None


def upload_headers(url: str, sha256: str) -> dict[str, str]:
    """Return what to send along with the bytes: S3 wants each header that it signed, and refuses others of its own."""
    offered = {"content-type": MIME, "x-amz-checksum-sha256": base64.b64encode(bytes.fromhex(sha256)).decode()}
    encryption = {
        "x-amz-server-side-encryption": settings.S3_SERVER_SIDE_ENCRYPTION,
        "x-amz-server-side-encryption-aws-kms-key-id": settings.S3_KMS_KEY_ID,
    }
    signed = parse_qs(urlsplit(url).query).get("X-Amz-SignedHeaders")
    if signed is None:
        return offered
    return {name: value for name, value in (offered | encryption).items() if name in signed[0].split(";")}


def _open(request: urllib.request.Request) -> Any:
    try:
        return urllib.request.urlopen(request, timeout=TIMEOUT)  # noqa: S310
    except urllib.error.HTTPError as error:
        try:
            answer = json.loads(error.read())
            raise ApiClientError(answer["code"], answer["detail"]) from None
        except (ValueError, KeyError):
            raise ApiClientError("UNKNOWN", f"HTTP {error.code}") from None
