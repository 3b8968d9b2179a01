"""ApiClient: an HTTP client of the API, with the standard library alone."""

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
from documents.storage import MIME

TIMEOUT = 60.0


class ApiClientError(Exception):
    """An error response: its stable code and its sentence."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


@dataclass(frozen=True, slots=True)
class ApiClient:
    url: str
    token: str

    def upload(self, file: Path) -> UUID:
        """Declare a file and put its bytes to the signed URL; return the job's id."""
        length = file.stat().st_size
        with file.open("rb") as content:
            sha256 = hashlib.file_digest(content, "sha256").hexdigest()
            body = {"filename": file.name, "bytes_len": length, "mime": MIME, "sha256": sha256, "ocr": False}
            upload = self._call("POST", "/upload", body)
            content.seek(0)
            headers = {"Content-Length": str(length), **upload_headers(upload["signed_url"], sha256)}
            request = urllib.request.Request(upload["signed_url"], content, headers, method="PUT")  # noqa: S310
            _open(request).close()
        return UUID(upload["job_id"])

    def jobs(self) -> Iterator[JobStatus]:
        for job in self._list("/jobs"):
            failure = (job["last_error"] or {}).get("code") if job["state"] == "deadletter" else None
            yield JobStatus(UUID(job["job_id"]), job["stage"], job["state"], job["progress"]["total_pct"], failure)

    def bill(self) -> Iterator[str]:
        """Yield a line for each document: the pages and tokens bought, their price, and the predicted price."""
        for document in self._list("/documents"):
            path = document["document_id"]
            bought: dict[str, float] = {"pages": 0, "tokens": 0}
            cents = 0.0
            for purchase in self._list(f"/documents/{path}/purchases"):
                bought["pages" if purchase["unit"] == "pages" else "tokens"] += purchase["quantity"]
                cents += purchase["cents"]
            predicted = self._call("GET", f"/jobs/{path}")["predicted_cents"]
            counts = f"{bought['pages']:,} pages, {bought['tokens']:,} tokens"
            yield f"{document['filename']}: {counts}, {cents:,.4f} cents (predicted {predicted:,.4f})"

    def delete_documents(self) -> None:
        while page := self._call("GET", "/documents?page_size=200")["results"]:
            for document in page:
                self._call("DELETE", f"/documents/{document['document_id']}")

    def search(self, query: str, k: int, **options: Any) -> dict[str, Any]:
        """Return the response: ``passages``, ``records`` and ``laws``. ``options`` are fields of the request."""
        response: dict[str, Any] = self._call("POST", "/search", {"query": query, "k": k, **options})
        return response

    def _list(self, path: str) -> Iterator[dict[str, Any]]:
        url: str | None = f"{self.url}{path}?page_size=200"
        while url:
            page = self._call("GET", url.removeprefix(self.url))
            yield from page["results"]
            url = page["next"]

    def _call(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, content, headers, method=method)  # noqa: S310
        with _open(request) as response:
            text = response.read()
        return json.loads(text) if text else None


def upload_headers(url: str, sha256: str) -> dict[str, str]:
    """Return the headers of an upload: S3 requires each header that it signed, and refuses others of its own."""
    ours = {"content-type": MIME, "x-amz-checksum-sha256": base64.b64encode(bytes.fromhex(sha256)).decode()}
    encryption = {
        "x-amz-server-side-encryption": settings.S3_SERVER_SIDE_ENCRYPTION,
        "x-amz-server-side-encryption-aws-kms-key-id": settings.S3_KMS_KEY_ID,
    }
    signed = parse_qs(urlsplit(url).query).get("X-Amz-SignedHeaders")
    if signed is None:
        return ours
    return {name: header for name, header in (ours | encryption).items() if name in signed[0].split(";")}


def _open(request: urllib.request.Request) -> Any:
    try:
        return urllib.request.urlopen(request, timeout=TIMEOUT)  # noqa: S310
    except urllib.error.HTTPError as error:
        try:
            body = json.loads(error.read())
            raise ApiClientError(body["code"], body["detail"]) from None
        except (ValueError, KeyError):
            raise ApiClientError("UNKNOWN", f"HTTP {error.code}") from None
