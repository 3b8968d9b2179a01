"""Test personas with API clients (Ana owns, Ben must see nothing, Sam supports) and helpers that run their jobs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection
from django.test import Client

from accounts import api_tokens
from accounts.models import User
from embeddings.embedders.registry import Vectors
from jobs import claims, services, worker
from jobs.claims import Claim
from jobs.models import UploadJob
from jobs.outcomes import Retryable
from testing.embedders import InstantEmbedder
from testing.error_codes import error_code
from testing.pdfs import text_pdf


class Person:
    """Somebody who calls the API with a token of their own."""

    def __init__(self, name: str, *, scopes: Collection[str] = api_tokens.TENANT_SCOPES, staff: bool = False) -> None:
        email = f"{name}@example.org"
        self.user = User.objects.create_user(email, email, is_staff=staff)
        self.id: UUID = self.user.pk
        self.token = api_tokens.create_token(self.user, name="test", scopes=scopes)
        self.client = Client(headers={"authorization": f"Bearer {self.token}"}, raise_request_exception=False)

    def get(self, path: str, **query: Any) -> Any:
        return self.client.get(path, query)

    def post(self, path: str, body: object = None, **headers: Any) -> Any:
        return self.client.post(path, json.dumps(body or {}), content_type="application/json", **headers)

    def patch(self, path: str, body: object) -> Any:
        return self.client.patch(path, json.dumps(body), content_type="application/json")

    def delete(self, path: str) -> Any:
        return self.client.delete(path)

    def request_upload(self, content: bytes, **fields: Any) -> Any:
        return self.post("/upload", upload_request(content) | fields)

    def upload(self, content: bytes, **fields: Any) -> Upload:
        """Declare a file and put its bytes to the signed URL."""
        answer = self.request_upload(content, **fields)
        assert answer.status_code == 200, answer.content
        put = self.client.put(answer.json()["signed_url"], content, content_type="application/pdf")
        assert put.status_code == 200, put.content
        return Upload(UUID(answer.json()["job_id"]), UUID(answer.json()["document_id"]))

    def ingest(self, content: bytes, **fields: Any) -> Upload:
        """Upload a file and let a worker carry it to its end."""
        uploaded = self.upload(content, **fields)
        worker.drain()
        return uploaded


@dataclass(frozen=True)
class Upload:
    job_id: UUID
    document_id: UUID

    @property
    def job(self) -> UploadJob:
        return UploadJob.objects.get(pk=self.job_id)

    @property
    def failure(self) -> str:
        """The stable code of its dead letter."""
        job = self.job
        assert job.state == "deadletter", (job.stage, job.state, job.last_error)
        return str((job.last_error or {})["code"])


def upload_request(content: bytes) -> dict[str, Any]:
    sha256 = hashlib.sha256(content).hexdigest()
    return {"filename": "plan.pdf", "bytes_len": len(content), "mime": "application/pdf", "sha256": sha256}


def plan_pdf(*subjects: str, lines: int = 45) -> bytes:
    """Return a PDF with a page for each subject, long enough for a few passages each."""
    sentence = "The plan pays {} percent of {} after deductible number {} in your network."
    return text_pdf(*("\n".join(sentence.format(n, subject, n * 7) for n in range(lines)) for subject in subjects))


def run_stages() -> Iterator[Claim]:
    """Claim the next job and carry it as a worker does, pausing before each try."""
    claim = claims.claim_next("test:1:1")
    assert claim is not None, "nothing is due"
    while True:
        yield claim
        if not claim.settle(worker.run_stage(claim)):
            return


def claim_at_stage(stage: str) -> Claim:
    """Carry the next due job to ``stage`` and return the claim that still holds it."""
    return next(claim for claim in run_stages() if claim.job.stage == stage)


def make_parked_jobs_due() -> None:
    """Make what is parked due, as if its time had come."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE upload_jobs SET run_after = clock_timestamp() WHERE run_after IS NOT NULL")
    services.requeue_due_and_expired()


def age_first_use(interval: str) -> None:
    """Make the first use of each rate limit older by ``interval``, in a span of its own."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH first AS (
                SELECT DISTINCT ON (key) key, expires_at, used_at FROM rate_windows ORDER BY key, expires_at
            ), fewer AS (
                UPDATE rate_windows w SET uses = uses - 1 FROM first f
                WHERE (w.key, w.expires_at) = (f.key, f.expires_at)
            )
            INSERT INTO rate_windows
            SELECT key, expires_at - %(by)s::interval, used_at - %(by)s::interval, 1 FROM first""",
            {"by": interval},
        )


def run_all_jobs(tries: int = 6) -> None:
    """Let a worker run everything that is due, now and after each pause."""
    for _ in range(tries):
        make_parked_jobs_due()
        worker.drain()


class FailingEmbedder(InstantEmbedder):
    """Remembers what it was asked, and fails once after so many calls."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.calls_until_failure = 0

    def embed(self, texts: Sequence[str]) -> Vectors:
        if self.calls_until_failure == 0:
            self.calls_until_failure = -1
            raise Retryable(error_code("EMBEDDER_AWAY"), "The embedder is away.")
        self.calls_until_failure -= 1
        self.seen += texts
        return super().embed(texts)


class BrokenEmbedder(InstantEmbedder):
    """Never answers."""

    model = "broken"

    def embed(self, texts: Sequence[str]) -> Vectors:
        raise Retryable(error_code("EMBEDDER_AWAY"), "The embedder is away.")


class NarrowEmbedder(InstantEmbedder):
    """Answers vectors of another width."""

    model = "narrow"

    def embed(self, texts: Sequence[str]) -> Vectors:
        return super().embed(texts)[:, :256]
