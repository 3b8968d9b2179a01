"""Client of the API: uploads, jobs, documents, search, answers, webhook endpoints."""

from __future__ import annotations

import base64
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self
from urllib.parse import parse_qs, urlsplit

import httpx

JSON = dict[str, Any]
PDF = "application/pdf"
DEFAULT_URL = "http://127.0.0.1:8000"
TRIES = 5  # of a GET that is answered 429 or 503
LONGEST_WAIT_SECONDS = 60.0
PAGE_SIZE = 200
ENDED = ("done", "deadletter")


class AccessaError(Exception):
    """A request that was refused or could not be made. ``code`` is stable; ``status`` is 0 without a response."""

    def __init__(self, code: str, detail: str, *, status: int = 0, field: str | None = None) -> None:
        super().__init__(f"{code}: {detail}")
        self.code, self.detail, self.status, self.field = code, detail, status, field


@dataclass(frozen=True, slots=True)
class Upload:
    """A declared file whose bytes have arrived; its job makes it searchable."""

    document_id: str
    job_id: str
    filename: str


@dataclass(frozen=True, slots=True)
class Job:
    """A document's job. ``error`` is the code of a failed one, ``percent`` is of the whole job."""

    job_id: str
    document_id: str
    stage: str
    state: str
    status: str
    percent: float
    error: str | None = None

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def is_searchable(self) -> bool:
        return self.state == "done"

    @classmethod
    def parse(cls, row: Mapping[str, Any]) -> Job:
        names = ("job_id", "document_id", "stage", "state", "status")
        error = (row["last_error"] or {}).get("code") if row["state"] == "deadletter" else None
        return cls(**{name: row[name] for name in names}, percent=row["progress"]["total_pct"], error=error)


class Client:
    """Calls the API at ``url`` (ACCESSA_URL) with ``token`` (ACCESSA_TOKEN). A context manager.

    A GET that is answered 429 or 503 is repeated after ``Retry-After``. Every method raises ``AccessaError``.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 60.0,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        url = url or os.environ.get("ACCESSA_URL") or DEFAULT_URL
        token = token or os.environ.get("ACCESSA_TOKEN")
        if not token:
            raise AccessaError("NO_TOKEN", "Set ACCESSA_TOKEN, or give a token.")
        if not (token.isascii() and token.isprintable()):
            raise AccessaError("INVALID_TOKEN", "The token is not valid: it has characters that tokens do not have.")
        headers = {"Authorization": f"Bearer {token}", "User-Agent": "accessa-python"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout, transport=transport)
        # For signed URLs, which may be on another host: the signature is the permission, no token may go there.
        self._storage = httpx.Client(timeout=timeout, transport=transport)
        self._sleep = sleep

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()
        self._storage.close()

    # --- files ------------------------------------------------------------------------------------------------------
    def upload(
        self, file: str | os.PathLike[str], *, ocr: bool = False, headers: Mapping[str, str] | None = None
    ) -> Upload:
        """Declare a PDF and send its bytes. The same bytes again answer the same ids.

        ``headers`` are those that the store wants besides, for one that encrypts by a key of its own.
        """
        path = Path(file)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise AccessaError("FILE_UNREADABLE", f"{path} cannot be read: {error.strerror}.") from error
        sha256 = hashlib.sha256(content).hexdigest()
        body = {"filename": path.name, "bytes_len": len(content), "mime": PDF, "sha256": sha256, "ocr": ocr}
        declared = self._call("POST", "/upload", json=body)
        signed = _signed_headers(declared["signed_url"], sha256, headers or {})
        _checked(lambda: self._storage.put(declared["signed_url"], content=content, headers=signed))
        return Upload(declared["document_id"], declared["job_id"], path.name)

    def documents(self) -> Iterator[JSON]:
        """Yield your documents, the newest first."""
        return self._pages("/documents")

    def document(self, document_id: str) -> JSON:
        return self._call("GET", f"/documents/{document_id}")

    def delete_document(self, document_id: str) -> None:
        self._call("DELETE", f"/documents/{document_id}")

    def export(self, file: str | os.PathLike[str]) -> int:
        """Download all that you have stored into the ZIP ``file``; return its bytes. Takes the scope ``export``."""
        path = Path(file)
        part = path.with_name(f"{path.name}.part")  # half a download never has the name of a whole one
        try:
            with part.open("wb") as target:
                _checked(lambda: self._download("/export", target))
            part.replace(path)
        except OSError as error:
            raise AccessaError("FILE_UNWRITABLE", f"{path} cannot be written: {error.strerror}.") from error
        finally:
            part.unlink(missing_ok=True)
        return path.stat().st_size

    def _download(self, path: str, target: BinaryIO) -> httpx.Response:
        with self._http.stream("POST", path) as response:
            if response.is_success:
                for piece in response.iter_bytes():
                    target.write(piece)
            else:
                response.read()
            return response

    # --- jobs -------------------------------------------------------------------------------------------------------
    def jobs(self, *, active: bool = False) -> Iterator[Job]:
        """Yield your jobs, the newest first; with ``active`` those that have not ended."""
        return (Job.parse(row) for row in self._pages("/jobs", **({"active": "true"} if active else {})))

    def watch(self, job_ids: Iterable[str], *, seconds: float = 3600.0, every: float = 1.0) -> Iterator[list[Job]]:
        """Yield the jobs that have changed until all have ended; raise ``AccessaError`` TIMEOUT after ``seconds``."""
        waiting, last = set(job_ids), dict[str, Job]()
        until = time.monotonic() + seconds
        while waiting:
            seen = self._find_jobs(waiting)
            changed = [job for job in seen if last.get(job.job_id) != job]
            last.update({job.job_id: job for job in changed})
            if changed:
                yield changed
            waiting -= {job.job_id for job in seen if job.has_ended}
            if waiting and time.monotonic() > until:
                raise AccessaError("TIMEOUT", f"{len(waiting)} jobs have not ended within {seconds:g} seconds.")
            if waiting:
                self._sleep(every)

    def _find_jobs(self, job_ids: set[str]) -> list[Job]:
        """Return the jobs by their list, which is not limited to ten polls a minute."""
        left, seen = set(job_ids), []
        for job in self.jobs():
            if job.job_id in left:
                left.discard(job.job_id)
                seen.append(job)
            if not left:
                return seen
        raise AccessaError("NOT_FOUND", f"{len(left)} of the jobs are not there.", status=404)

    # --- questions --------------------------------------------------------------------------------------------------
    def search(self, query: str, *, k: int = 10, **options: Any) -> JSON:
        """Return ``passages``, ``records``, ``laws`` and ``nearest``. ``options`` are fields of POST /search."""
        return self._call("POST", "/search", json={"query": query, "k": k, **options})

    def answer(self, question: str, **options: Any) -> JSON:
        """Return ``answered`` and ``sentences`` with their citations. ``options`` are fields of POST /answer."""
        return self._call("POST", "/answer", json={"question": question, **options})

    # --- webhooks ---------------------------------------------------------------------------------------------------
    def webhook_endpoints(self) -> Iterator[JSON]:
        return self._pages("/webhook-endpoints")

    def create_webhook_endpoint(self, url: str, events: Sequence[str] | None = None) -> JSON:
        """Create an endpoint; only this response has its ``secret``. Without ``events`` it hears of all."""
        return self._call(
            "POST", "/webhook-endpoints", json={"url": url, **({"events": list(events)} if events else {})}
        )

    def delete_webhook_endpoint(self, endpoint_id: str) -> None:
        self._call("DELETE", f"/webhook-endpoints/{endpoint_id}")

    def webhook_deliveries(self, endpoint_id: str) -> Iterator[JSON]:
        return self._pages(f"/webhook-endpoints/{endpoint_id}/deliveries")

    def resend_webhook(self, endpoint_id: str, delivery_id: str) -> JSON:
        return self._call("POST", f"/webhook-endpoints/{endpoint_id}/deliveries/{delivery_id}/resend")

    # --- requests ---------------------------------------------------------------------------------------------------
    def _pages(self, path: str, **query: str) -> Iterator[JSON]:
        """Yield the rows of a list, page after page."""
        page = self._call("GET", path, params={"page_size": str(PAGE_SIZE), **query})
        while True:
            yield from page["results"]
            if not page["next"]:
                return
            page = self._call("GET", path, params=dict(httpx.URL(page["next"]).params))

    def _call(self, method: str, path: str, **options: Any) -> JSON:
        for tried in range(1, TRIES + 1):
            try:
                response = _checked(lambda: self._http.request(method, path, **options))
            except _Later as later:
                if method != "GET" or tried == TRIES or later.seconds(tried) > LONGEST_WAIT_SECONDS:
                    raise later.error from None
                self._sleep(later.seconds(tried))
            else:
                return _json(response) if response.content else {}
        raise AssertionError  # the last try returns or raises


class _Later(AccessaError):
    """A 429 or 503: the same request may succeed in a moment."""

    def __init__(self, error: AccessaError, retry_after: str | None) -> None:
        super().__init__(error.code, error.detail, status=error.status, field=error.field)
        self.error, self._retry_after = error, retry_after

    def seconds(self, tried: int) -> float:
        try:
            return max(0.0, float(self._retry_after or ""))
        except ValueError:
            return float(2 ** (tried - 1))


def _checked(send: Callable[[], httpx.Response]) -> httpx.Response:
    try:
        response = send()
    except httpx.TimeoutException as error:
        raise AccessaError("TIMEOUT", "The server did not answer in time.") from error
    except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise AccessaError("UNREACHABLE", "The server's address is not a URL such as https://example.org.") from error
    except httpx.HTTPError as error:
        raise AccessaError("UNREACHABLE", f"The server cannot be reached ({type(error).__name__}).") from error
    if response.is_success:
        return response
    error_response = _error(response)
    if response.status_code in (429, 503):
        raise _Later(error_response, response.headers.get("Retry-After"))
    raise error_response


def _error(response: httpx.Response) -> AccessaError:
    try:
        body = response.json()
        return AccessaError(body["code"], body["detail"], status=response.status_code, field=body.get("field"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return AccessaError("UNKNOWN", f"HTTP {response.status_code}.", status=response.status_code)


def _json(response: httpx.Response) -> JSON:
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise AccessaError("UNKNOWN", "The response is no JSON object: is this Accessa's address?")
    return body


def _signed_headers(url: str, sha256: str, more: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of an upload: S3 wants each header that it signed, and refuses others of its own."""
    ours = {"content-type": PDF, "x-amz-checksum-sha256": base64.b64encode(bytes.fromhex(sha256)).decode()}
    ours |= {name.lower(): text for name, text in more.items()}
    signed = parse_qs(urlsplit(url).query).get("X-Amz-SignedHeaders")
    return ours if signed is None else {name: text for name, text in ours.items() if name in signed[0].split(";")}
