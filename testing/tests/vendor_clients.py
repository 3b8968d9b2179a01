"""Vendor SDK clients of the fakes."""

import time
from collections.abc import Callable
from typing import Any

from llama_cloud import LlamaCloud
from openai import OpenAI

from testing.fakes import llamaparse, openai
from testing.fakes.llamaparse import LlamaParseServer
from testing.fakes.openai import OpenAIServer
from testing.fakes.server import Server
from testing.pdfs import text_pdf

SHORT = 0.5  # a client's patience with a server that hangs
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PDF = text_pdf("Deductible $500", "Copay $20", "Referral")


def embedder(server: OpenAIServer, timeout: float = 10) -> OpenAI:
    return OpenAI(api_key=openai.KEY, base_url=server.url, max_retries=0, timeout=timeout)


def cloud(server: LlamaParseServer, timeout: float = 10) -> LlamaCloud:
    return LlamaCloud(api_key=llamaparse.KEY, base_url=server.url, max_retries=0, timeout=timeout)


def upload(client: LlamaCloud, content: bytes = PDF, external: str = "ext") -> str:
    uploaded = client.files.create(
        file=("plan.pdf", content, "application/pdf"), purpose="parse", external_file_id=external
    )
    return uploaded.id


def submit(client: LlamaCloud, file_id: str, parse_id: str = "p1", **options: Any) -> str:
    tags = {"parse_id": parse_id, "job_id": "j1", "document_id": "d1"}
    options = {"tier": "cost_effective", "user_metadata": tags, **options}
    return client.parsing.create(file_id=file_id, version="2026-09-28", **options).id


def wait_for_job(client: LlamaCloud, job_id: str) -> Any:
    def look() -> Any:
        job = client.parsing.get(job_id, expand=["markdown", "metadata", "text"])
        return job if job.job.status not in ("PENDING", "RUNNING") else None

    return wait_until(look)


def wait_until(look: Callable[[], Any], seconds: float = 5) -> Any:
    end = time.monotonic() + seconds
    while not (outcome := look()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
    return outcome


def webhook(server: Server, **more: Any) -> list[dict[str, Any]]:
    return [{"webhook_url": f"{server.url}/hook", "webhook_signing_secret": SECRET, **more}]
