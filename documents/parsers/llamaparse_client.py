"""LlamaParse client: upload a file, submit a tagged job, get its pages. One call a method, no retries inside."""

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
from llama_cloud import DefaultHttpxClient, LlamaCloud, omit

from documents.parsers.pdf_parser import parse_timeout
from documents.parsers.registry import Status, VendorParse
from vendors import http_deadline
from vendors.call_failures import InvalidResponse
from vendors.webhook_secrets import webhook_secrets

TERMINAL_EVENTS = ["parse.success", "parse.error", "parse.partial_success", "parse.cancelled"]
STATUSES: dict[str, Status] = {
    "PENDING": "pending", "RUNNING": "pending", "COMPLETED": "completed", "FAILED": "failed", "CANCELLED": "cancelled",
}  # fmt: skip
CONNECT_SECONDS = 5.0
MAX_TIMEOUT_SECONDS = 7200.0  # of `base_in_seconds`; PARSE_SECONDS_MOST may be more


class _Client(DefaultHttpxClient):
    def __del__(self) -> None:  # as in the library's own client, which accepts no transport
        with suppress(Exception):
            self.close()


class LlamaParse:
    """https://developers.llamaindex.ai/llamaparse: the v2 API, by ``llama-cloud`` without its retries.

    They would send a submit up to six times without an idempotency key: six parses bought.
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
        """Upload a file under ``key``, not under the tenant's file name; return the vendor's id of it."""
        with path.open("rb") as content:
            response = self._client.files.create(
                file=(f"{key}.pdf", content, "application/pdf"), purpose="parse", external_file_id=key
            )
        return _response_id(response)

    def find_file(self, key: str) -> str | None:
        files = _iterate_list(self._client.files.list(external_file_id=key))
        return next((_response_id(file) for file in files if getattr(file, "external_file_id", None) == key), None)

    def submit(self, file_id: str, *, tags: dict[str, str], ocr: bool, pages: int) -> str:
        """Buy a parse of an uploaded file; return the vendor's id of the job."""
        webhooks: Any = omit
        if settings.LLAMAPARSE_CALLBACK_URL:  # the terminal events, signed, as JSON: the default is JSON in a string
            webhook = {
                "webhook_url": settings.LLAMAPARSE_CALLBACK_URL,
                "webhook_events": TERMINAL_EVENTS,
                "webhook_output_format": "json",
                "webhook_signing_secret": webhook_secrets()[0],
            }
            webhooks = [webhook]
        response = self._client.parsing.create(
            file_id=file_id,
            tier=settings.LLAMAPARSE_TIER,
            version=settings.LLAMAPARSE_VERSION,
            user_metadata=tags,
            processing_options={"ignore": {"ignore_text_in_image": not ocr}},
            processing_control={"timeouts": {"base_in_seconds": int(min(parse_timeout(pages), MAX_TIMEOUT_SECONDS))}},
            webhook_configurations=webhooks,
        )
        return _response_id(response)

    def find_job(self, tags: dict[str, str], since: datetime) -> str | None:
        """Return the newest job with these ``tags`` that was made since, if any."""
        # The API cannot search by tags; it lists the newest first, so all jobs since then are compared.
        jobs = _iterate_list(self._client.parsing.list(created_at_on_or_after=since, page_size=100))
        return next((_response_id(job) for job in jobs if (job.user_metadata or {}).items() >= tags.items()), None)

    def get_parse(self, vendor_job_id: str, pages: int) -> VendorParse:
        try:
            response = self._client.parsing.get(vendor_job_id, expand=["markdown"])
        except llama_cloud.NotFoundError:
            return VendorParse("lost", {})
        job = getattr(response, "job", None)
        status = STATUSES.get(str(getattr(job, "status", None)))
        if job is None or status is None or _response_id(job) != vendor_job_id:
            raise InvalidResponse("a job without a status, or another one than was asked for")
        credits = getattr(getattr(job, "usage", None), "credits", None)
        if status != "completed":
            return VendorParse(status, {}, credits=credits)
        markdown = getattr(response.markdown, "pages", None)
        if not isinstance(markdown, list) or not markdown:
            raise InvalidResponse("a completed job without its pages")
        return _completed_parse(markdown, pages, credits)

    def cancel(self, vendor_job_id: str) -> None:
        try:
            _require_job(self._client.parsing.cancel(vendor_job_id), vendor_job_id)
        except llama_cloud.APIStatusError as error:
            if error.status_code not in (400, 404, 409):
                raise

    def delete_parse(self, *, vendor_job_id: str | None, file_id: str | None) -> bool:
        """Delete a job's result and a file at the vendor, if they exist; False when the job has yet to end."""
        if vendor_job_id:
            self.cancel(vendor_job_id)
            with suppress(llama_cloud.NotFoundError):
                try:
                    _require_job(self._client.parsing.delete(vendor_job_id), vendor_job_id)
                except llama_cloud.ConflictError:
                    return False
        if file_id:
            with suppress(llama_cloud.NotFoundError):
                deleted = self._client.files.with_raw_response.delete(file_id)
                if deleted.status_code != HTTPStatus.NO_CONTENT:
                    raise InvalidResponse("a deletion that is not confirmed")
        return True


def _response_id(response: object) -> str:
    """Return the id in a response; the SDK does not check it."""
    vendor_id = getattr(response, "id", None)
    if not isinstance(vendor_id, str) or not vendor_id:
        raise InvalidResponse("an answer without an id")
    return vendor_id


def _require_job(response: object, vendor_job_id: str) -> None:
    """Raise unless the response names the job: a proxy answers 200 to anything."""
    if _response_id(response) != vendor_job_id:
        raise InvalidResponse("an answer about another job")


def _iterate_list(first: Any) -> Iterator[Any]:
    """Yield the items of a list, page by page; a page without its items is no empty list."""
    for page in first.iter_pages():
        if not isinstance(getattr(page, "items", None), list):
            raise InvalidResponse("a list without its items")
        yield from page.items


def _completed_parse(markdown: Iterable[object], count: int, credits: float | None) -> VendorParse:
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
