"""Fake LlamaParse: files, parse jobs that really read the PDF, callbacks and a ledger."""

import json
import re
import uuid
from collections.abc import Callable
from datetime import datetime
from threading import RLock
from typing import Any

from testing.fakes import pdf_text
from testing.fakes.http_messages import ErrorResponse, Request, Response, json_response
from testing.fakes.llamaparse_callbacks import (
    Callback,
    CallbackSender,
    build_callback,
    build_contract_callback,
    contract_payload,
    event,
)
from testing.fakes.parse_jobs import CREDITS, FINAL_STATUSES, Job, Source
from testing.fakes.scheduler import Scheduler
from testing.fakes.server import Server, sleep

KEY = "llx-stand-in"
PURPOSES = {"user_data", "parse", "extract", "split", "classify", "sheet", "agent_app"}
PAGE_SIZE, LARGEST_PAGE = 50, 1000
MESSAGES = {401: "Invalid API Key", 402: "You've exceeded the maximum number of credits", 429: "Rate limit exceeded"}


class LlamaParseServer(Server):
    """``url`` is the base URL.

    ``delay``: seconds from the submit to the end of a job; ``answer_delay``: seconds each call takes.
    ``contract``: "lc" for the vendor's real callbacks, "002" for those of context 002 §4, signed with the submit's
    webhook_signing_secret or ``standard_secret``. ``cache``: the same bytes and options are sold once.
    ``failed_pages``: numbers of pages that fail inside a job; ``fails``: jobs end as FAILED.
    """

    name = "llamaparse"
    settings = (
        *("delay", "answer_delay", "key", "contract", "standard_secret", "cache", "failed_pages", "fails"),
        *("p_lost", "p_doubled", "backoff_factor"),
    )

    def __init__(
        self,
        *,
        key: str = KEY,
        contract: str = "lc",
        standard_secret: str = "",
        p_lost: float = 0.0,
        p_doubled: float = 0.0,
        seed: int = 0,
        backoff_factor: float = 1.0,
        **server: Any,
    ) -> None:
        super().__init__(**server)
        self.key, self.contract, self.standard_secret = key, contract, standard_secret
        self.answer_delay, self.cache, self.fails = 0.0, False, False
        self.failed_pages: list[int] = []
        self.files: dict[str, Source] = {}
        self.jobs: dict[str, Job] = {}
        self.project = str(uuid.uuid4())
        self._cached: dict[str, list[str]] = {}
        self._state = RLock()
        self._later = Scheduler()
        self.postman = CallbackSender(self._later, seed=seed, backoff_factor=backoff_factor)
        self.p_lost, self.p_doubled = p_lost, p_doubled

    @property
    def p_lost(self) -> float:
        return self.postman.p_lost

    @p_lost.setter
    def p_lost(self, probability: float) -> None:
        self.postman.p_lost = probability

    @property
    def p_doubled(self) -> float:
        return self.postman.p_doubled

    @p_doubled.setter
    def p_doubled(self, probability: float) -> None:
        self.postman.p_doubled = probability

    @property
    def backoff_factor(self) -> float:
        return self.postman.backoff_factor

    @backoff_factor.setter
    def backoff_factor(self, factor: float) -> None:
        self.postman.backoff_factor = factor

    def close(self) -> None:
        super().close()
        self._later.stop()

    def respond(self, request: Request) -> Response:
        if request.bearer != self.key:
            raise ErrorResponse(self.error_response(401))
        sleep(self.answer_delay)
        for route, call in ROUTES:
            if match := route.fullmatch(request.route):
                with self._state:
                    return call(self, request, *match.groups())
        raise self._refusal(404, "Not Found")

    def error_response(self, status: int, code: str | None = None) -> Response:
        return json_response({"detail": code or MESSAGES.get(status, f"The fake answers {status}.")}, status)

    def control_fields(self) -> dict[str, Any]:
        with self._state:
            statuses = [job.status for job in self.jobs.values()]
        return {
            "files": len(self.files),
            "jobs": {status: statuses.count(status) for status in sorted(set(statuses))},
            "callbacks": {
                "attempts": len(self.postman.deliveries),
                "accepted": sum(200 <= delivery.status < 300 for delivery in list(self.postman.deliveries)),
                "lost": len(self.postman.lost),
                "doubled": len(self.postman.doubled),
            },
        }

    # --- files -------------------------------------------------------------------------------------------------------

    def _upload(self, request: Request) -> Response:
        form = request.form()
        if "file" not in form or (part := form.get("purpose")) is None or part.content.decode() not in PURPOSES:
            raise self._refusal(422, "file and purpose are required")
        external = form["external_file_id"].content.decode() if "external_file_id" in form else None
        source = Source(
            form["file"].filename or "file", form["file"].content, external, form["purpose"].content.decode()
        )
        self.files[source.id] = source
        return json_response(source.to_json(self.project))

    def _list_files(self, request: Request) -> Response:
        external, name = request.parameter("external_file_id"), request.parameter("file_name")
        files = [
            source.to_json(self.project)
            for source in self.files.values()
            if external in (None, source.external_file_id) and name in (None, source.name)
        ]
        return self._page(request, files)

    def _show_file(self, request: Request, file_id: str) -> Response:
        return json_response(self._file(file_id).to_json(self.project))

    def _delete_file(self, request: Request, file_id: str) -> Response:
        del self.files[self._file(file_id).id]
        return Response(204)

    def _file(self, file_id: str) -> Source:
        if file_id not in self.files:
            raise self._refusal(404, f"File {file_id} not found")
        return self.files[file_id]

    # --- jobs --------------------------------------------------------------------------------------------------------

    def _submit(self, request: Request) -> Response:
        job = Job.from_options(self._file, self._options(request))
        try:
            job.pages = pdf_text.read_pages(job.source.content)
            job.numbers = pdf_text.parse_page_ranges(job.options.get("page_ranges"), len(job.pages))
        except ValueError:
            job.error_response = "The file could not be read."
        self._charge(job)
        self.jobs[job.id] = job
        self._notify(job, "parse.pending")
        response = json_response(job.to_json(self.project))
        if self.delay:
            self._later.call_later(0.0, lambda: self._run(job))
        else:
            self._run(job)  # in this request: done whenever it is polled next
        return response

    def _options(self, request: Request) -> dict[str, Any]:
        try:
            options = json.loads(request.body)
        except ValueError:
            options = None
        if not isinstance(options, dict) or options.get("tier") not in CREDITS or not options.get("version"):
            raise self._refusal(422, "tier and version are required")
        if not options.get("file_id"):
            raise self._refusal(422, "file_id is required: this fake fetches no source_url")
        metadata = options.get("user_metadata") or {}
        if not all(isinstance(value, str) for pair in metadata.items() for value in pair):
            raise self._refusal(422, "user_metadata maps strings to strings")
        return options

    def _charge(self, job: Job) -> None:
        key = job.cache_key
        if self.cache and key in self._cached and not job.options.get("disable_cache"):
            return
        self._cached[key] = job.pages
        job.credits = CREDITS[job.tier] * len(job.numbers)
        self.ledger.sell([job.metadata.get("parse_id", job.id)], pages=len(job.numbers), credits=job.credits)

    def _run(self, job: Job) -> None:
        with self._state:
            if job.status == "PENDING":
                job.move("RUNNING")
                self._notify(job, "parse.running")
        if self.delay:
            self._later.call_later(self.delay, lambda: self._finish(job))
        else:
            self._finish(job)

    def _finish(self, job: Job) -> None:
        with self._state:
            if job.status != "RUNNING" or job.id not in self.jobs:
                return
            job.failed = set(self.failed_pages) & set(job.numbers)
            if self.fails or job.error_response or (job.numbers and len(job.failed) == len(job.numbers)):
                job.error_response = job.error_response or "The parse failed."
                job.move("FAILED")
                self._notify(job, "parse.error")
            else:
                job.move("COMPLETED")
                self._notify(job, "parse.partial_success" if job.failed else "parse.success")

    def _list_jobs(self, request: Request) -> Response:
        ids, status = request.parameters.get("job_ids"), request.parameter("status")
        since, until = request.parameter("created_at_on_or_after"), request.parameter("created_at_on_or_before")
        jobs = [
            job.to_json(self.project)
            for job in reversed(self.jobs.values())
            if (ids is None or job.id in ids)
            and status in (None, job.status)
            and (since is None or job.created_at >= datetime.fromisoformat(since))
            and (until is None or job.created_at <= datetime.fromisoformat(until))
        ]
        return self._page(request, jobs)

    def _show_job(self, request: Request, job_id: str) -> Response:
        job = self._job(job_id)
        return json_response(
            {"job": job.to_json(self.project), **job.results(set(request.parameters.get("expand", [])))}
        )

    def _cancel(self, request: Request, job_id: str) -> Response:
        job = self._job(job_id)
        if job.status in FINAL_STATUSES:
            raise self._refusal(400, f"Job is already {job.status}")
        job.move("CANCELLED")
        self._notify(job, "parse.cancelled")
        return json_response(job.to_json(self.project))

    def _delete_job(self, request: Request, job_id: str) -> Response:
        job = self._job(job_id)
        if job.status not in FINAL_STATUSES:
            raise self._refusal(409, "Cancel the job before deleting it")
        del self.jobs[job_id]
        return json_response({"id": job_id, "project_id": self.project})

    def _job(self, job_id: str) -> Job:
        if job_id not in self.jobs:
            raise self._refusal(404, f"Job {job_id} not found")
        return self.jobs[job_id]

    # --- what they share ---------------------------------------------------------------------------------------------

    def _page(self, request: Request, rows: list[dict[str, Any]]) -> Response:
        size = min(int(request.parameter("page_size") or PAGE_SIZE), LARGEST_PAGE)
        token = request.parameter("page_token")
        start = next((at for at, item in enumerate(rows) if item["id"] == token), len(rows)) if token else 0
        following = rows[start + size]["id"] if start + size < len(rows) else None
        return json_response(
            {"items": rows[start : start + size], "next_page_token": following, "total_size": len(rows)}
        )

    def _refusal(self, status: int, detail: str) -> ErrorResponse:
        return ErrorResponse(self.error_response(status, detail))

    def _notify(self, job: Job, kind: str) -> None:
        payload = event(job.id, kind)
        for to in job.options.get("webhook_configurations") or []:
            if to.get("webhook_url") and kind in (to.get("webhook_events") or [kind]):
                written = (
                    self._by_contract(job, kind, to) if self.contract == "002" else build_callback(job.id, to, payload)
                )
                if written:
                    self.postman.send(written, luck=job.seed)

    def _by_contract(self, job: Job, kind: str, to: dict[str, Any]) -> Callback | None:
        if job.status not in FINAL_STATUSES:
            return None
        secret = to.get("webhook_signing_secret") or self.standard_secret
        payload = contract_payload(job.metadata, job.markdown(), job.version, ok=job.status == "COMPLETED")
        return build_contract_callback(job.id, kind, to, payload, secret)


ROUTES: list[tuple[re.Pattern[str], Callable[..., Response]]] = [
    (re.compile(r"POST /api/v1/beta/files"), LlamaParseServer._upload),
    (re.compile(r"GET /api/v1/beta/files"), LlamaParseServer._list_files),
    (re.compile(r"GET /api/v1/beta/files/([^/]+)"), LlamaParseServer._show_file),
    (re.compile(r"DELETE /api/v1/beta/files/([^/]+)"), LlamaParseServer._delete_file),
    (re.compile(r"POST /api/v2/parse"), LlamaParseServer._submit),
    (re.compile(r"GET /api/v2/parse"), LlamaParseServer._list_jobs),
    (re.compile(r"GET /api/v2/parse/([^/]+)"), LlamaParseServer._show_job),
    (re.compile(r"POST /api/v2/parse/([^/]+)/cancel"), LlamaParseServer._cancel),
    (re.compile(r"DELETE /api/v2/parse/([^/]+)"), LlamaParseServer._delete_job),
]
