"""ApiClient: an HTTP client of the API, as a tenant would write one."""

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import httpx
from django.conf import settings

from documents.cli_progress import JobStatus
from documents.storage.buckets import MIME

TIMEOUT = 60.0


class ApiClientError(Exception):
    """An error response: its stable code and its sentence."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(f"{code}: {sentence}")
        self.code = code


class ApiClient:
    def __init__(self, url: str, token: str) -> None:
        headers, limits = {"Authorization": f"Bearer {token}"}, httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT, limits=limits)

    def upload(self, file: Path) -> UUID:
        """Declare a file and put its bytes to the signed URL; return the job's id."""
        length = file.stat().st_size
        with file.open("rb") as content:
            sha256 = hashlib.file_digest(content, "sha256").hexdigest()
            body = {"filename": file.name, "bytes_len": length, "mime": MIME, "sha256": sha256, "ocr": False}
            upload = self.call("POST", "/upload", body)
            content.seek(0)
            headers = {"Content-Length": str(length), **upload_headers(upload["signed_url"], sha256)}
            # Without our own headers: the signature in the URL is the permission.
            _check(httpx.put(upload["signed_url"], content=content, headers=headers, timeout=TIMEOUT))
        return UUID(upload["job_id"])

    def jobs(self) -> Iterator[JobStatus]:
        for job in self.rows("/jobs"):
            failure = (job["last_error"] or {}).get("code") if job["state"] == "deadletter" else None
            yield JobStatus(UUID(job["job_id"]), job["stage"], job["state"], job["progress"]["total_pct"], failure)

    def delete_documents(self) -> None:
        while page := self.call("GET", "/documents?page_size=200")["results"]:
            for document in page:
                self.call("DELETE", f"/documents/{document['document_id']}")

    def search(self, query: str, k: int, **options: Any) -> dict[str, Any]:
        """Return the response: ``passages``, ``records`` and ``laws``. ``options`` are fields of the request."""
        response: dict[str, Any] = self.call("POST", "/search", {"query": query, "k": k, **options})
        return response

    def parsed_text(self, document_id: str) -> str:
        """Return the markdown of a document."""
        link = self.call("GET", f"/documents/{document_id}/parsed")["signed_url"]
        return _check(httpx.get(link, timeout=TIMEOUT)).text

    def answer(self, question: str) -> dict[str, Any]:
        response: dict[str, Any] = self.call("POST", "/answer", {"question": question})
        return response

    def rows(self, path: str) -> Iterator[dict[str, Any]]:
        url: str | None = f"{path}?page_size=200"
        while url:
            page = self.call("GET", url)
            yield from page["results"]
            url = page["next"]

    def call(self, method: str, path: str, body: object = None) -> Any:
        response = _check(self._http.request(method, path, json=body))
        return response.json() if response.content else None


def _check(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    try:
        error = response.json()
        code, sentence = error["code"], error["detail"]
    except (ValueError, KeyError, TypeError):
        code, sentence = "UNKNOWN", f"HTTP {response.status_code}"
    raise ApiClientError(code, sentence)


def upload_headers(url: str, sha256: str) -> dict[str, str]:
    """Return the headers of an upload: S3 requires each header that it signed, and refuses others of its own."""
    ours = {"content-type": MIME, "x-amz-checksum-sha256": base64.b64encode(bytes.fromhex(sha256)).decode()}
    encryption = {
        "x-amz-server-side-encryption": settings.S3_ENCRYPTION,
        "x-amz-server-side-encryption-aws-kms-key-id": settings.S3_KMS_KEY_ID,
    }
    signed = parse_qs(urlsplit(url).query).get("X-Amz-SignedHeaders")
    if signed is None:
        return ours
    return {name: header for name, header in (ours | encryption).items() if name in signed[0].split(";")}
