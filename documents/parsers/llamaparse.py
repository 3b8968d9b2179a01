"""LlamaParse: files first, then the job with our tags on it, then its pages. One call a method, no retries inside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpcore
import httpx
import llama_cloud
from django.conf import settings
from llama_cloud import DefaultHttpxClient, LlamaCloud

from documents.parsers import parse_timeout
from documents.parsers.registry import Status, VendorParse
from vendors import http_deadline
from vendors.guard import InvalidResponse
from vendors.webhook_secrets import webhook_secrets

TERMINAL_EVENTS = ["parse.success", "parse.error", "parse.partial_success", "parse.cancelled"]
STATUSES: dict[str, Status] = {
    "PENDING": "pending", "RUNNING": "pending", "COMPLETED": "completed", "FAILED": "failed", "CANCELLED": "cancelled",
}  # fmt: skip
CONNECT_SECONDS = 5.0


class _Client(DefaultHttpxClient):
    def __del__(self) -> None:  # as the library's own does, which cannot be given a transport
        with suppress(Exception):
            self.close()


class LlamaParse:
    """https://developers.llamaindex.ai/llamaparse: the v2 API, by ``llama-cloud`` with its own retries switched off.

    Those send a submit up to six times, without an idempotency key: six parses bought.
    """

    @cached_property
    def _client(self) -> LlamaCloud:
        seconds = settings.VENDOR_TIMEOUT_SECONDS
        timeout = httpx.Timeout(seconds, connect=CONNECT_SECONDS)
        return LlamaCloud(
            api_key=settings.LLAMAPARSE_API_KEY,
            base_url=settings.LLAMAPARSE_BASE_URL,
            timeout=timeout,
            max_retries=0,
            http_client=_Client(
                transport=http_deadline.deadline_transport(httpx, httpcore, seconds),
                timeout=timeout,
                follow_redirects=False,
            ),
        )

    def upload(self, path: Path, key: str) -> str:
        """Upload a file under ``key`` and return the vendor's id of it. The name of the tenant's file stays here."""
        with path.open("rb") as content:
            made = self._client.files.create(
                file=(f"{key}.pdf", content, "application/pdf"), purpose="parse", external_file_id=key
            )
        return _id(made)

    def find_file(self, key: str) -> str | None:
        """Return the id of the file that was uploaded under ``key``, if one was."""
        found = _listed(self._client.files.list(external_file_id=key))
        return next((_id(file) for file in found if getattr(file, "external_file_id", None) == key), None)

    def submit(self, file_id: str, *, tags: dict[str, str], ocr: bool, pages: int) -> str:
        """Buy a parse of an uploaded file; return the vendor's id of the job."""
        made = self._client.parsing.create(
            file_id=file_id,
            tier=settings.LLAMAPARSE_TIER,
            version=settings.LLAMAPARSE_VERSION,
            user_metadata=tags,
            processing_options={"ignore": {"ignore_text_in_image": not ocr}},
            processing_control={"timeouts": {"base_in_seconds": int(parse_timeout(pages))}},
            **_callback(),
        )
        return _id(made)

    def find_job(self, tags: dict[str, str], since: datetime) -> str | None:
        """Return the job that carries ``tags``, if one was made since: the newest, should there be several."""
        # The tags cannot be searched for, and the list is the vendor's newest first: so all since then are looked at.
        jobs = _listed(self._client.parsing.list(created_at_on_or_after=since, page_size=100))
        return next((_id(job) for job in jobs if (job.user_metadata or {}).items() >= tags.items()), None)

    def get_parse(self, vendor_job_id: str, pages: int) -> VendorParse:
        """Return how far a job is, and what came of it."""
        try:
            answer = self._client.parsing.get(vendor_job_id, expand=["markdown"])
        except llama_cloud.NotFoundError:
            return VendorParse("lost", {})
        job = getattr(answer, "job", None)
        status = STATUSES.get(str(getattr(job, "status", None)))
        if job is None or status is None or _id(job) != vendor_job_id:
            raise InvalidResponse("a job without a status, or another one than was asked for")
        usage = getattr(job, "usage", None)
        credits = getattr(usage, "credits", None)
        if status != "completed":
            return VendorParse(status, {}, credits=credits)
        markdown = getattr(answer.markdown, "pages", None)
        if not isinstance(markdown, list) or not markdown:
            raise InvalidResponse("a completed job without its pages")
        return _completed(markdown, pages, credits)

    def cancel(self, vendor_job_id: str) -> None:
        """Stop a job; one that has ended meanwhile is left as it is."""
        try:
            _echoed(self._client.parsing.cancel(vendor_job_id), vendor_job_id)
        except llama_cloud.APIStatusError as error:
            if error.status_code not in (400, 404, 409):
                raise

    def delete_parse(self, *, vendor_job_id: str | None, file_id: str | None) -> bool:
        """Delete a job's result and a file at the vendor's; False when the job has yet to end.

        What is gone already is well.
        """
        if vendor_job_id:
            self.cancel(vendor_job_id)
            with suppress(llama_cloud.NotFoundError):
                try:
                    _echoed(self._client.parsing.delete(vendor_job_id), vendor_job_id)
                except llama_cloud.ConflictError:
                    return False
        if file_id:
            with suppress(llama_cloud.NotFoundError):
                deleted = self._client.files.with_raw_response.delete(file_id)
                if deleted.status_code != HTTPStatus.NO_CONTENT:
                    raise InvalidResponse("a deletion that is not confirmed")
        return True


def _callback() -> dict[str, Any]:
    """Return the webhook of a job: the terminal events, as JSON (not the default, a string of it), signed."""
    if not settings.LLAMAPARSE_CALLBACK_URL:
        return {}
    webhook = {
        "webhook_url": settings.LLAMAPARSE_CALLBACK_URL,
        "webhook_events": TERMINAL_EVENTS,
        "webhook_output_format": "json",
        "webhook_signing_secret": webhook_secrets()[0],
    }
    return {"webhook_configurations": [webhook]}


def _id(made: object) -> str:
    """Return the id of what the vendor answered; its SDK does not check what it is given."""
    found = getattr(made, "id", None)
    if not isinstance(found, str) or not found:
        raise InvalidResponse("an answer without an id")
    return found


def _echoed(made: object, vendor_job_id: str) -> None:
    """Believe what was done to a job only when the answer names it: a portal in between answers 200 to anything."""
    if _id(made) != vendor_job_id:
        raise InvalidResponse("an answer about another job")


def _listed(first: Any) -> Iterator[Any]:
    """Yield what a list holds, page by page; a page without its items is no empty list."""
    for page in first.iter_pages():
        if not isinstance(getattr(page, "items", None), list):
            raise InvalidResponse("a list without its items")
        yield from page.items


def _completed(markdown: Iterable[object], count: int, credits: float | None) -> VendorParse:
    """Sort the pages of a completed job into those that went well and those that the vendor gave up on."""
    pages: dict[int, str] = {}
    failed: set[int] = set(range(1, count + 1))
    for page in markdown:
        number, text = getattr(page, "page_number", None), getattr(page, "markdown", None)
        if not isinstance(number, int) or not 1 <= number <= count or number in pages:
            return VendorParse("malformed", {}, credits=credits)
        if getattr(page, "success", None) is not False and isinstance(text, str):
            pages[number] = text
            failed.discard(number)
    return VendorParse("completed", pages, tuple(sorted(failed)), credits)
