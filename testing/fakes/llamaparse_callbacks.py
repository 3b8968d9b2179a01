"""Callbacks of the fake LlamaParse: signatures, delivery, retries, losses and duplicates."""

import hashlib
import hmac
import json
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any

import requests
from standardwebhooks import Webhook

from testing.fakes.scheduler import Scheduler

BACKOFF = (1.0, 2.0, 4.0)  # seconds after the first, second and third failure: VENDORS §1.6
PAGE_BREAK = "\n---\n"
TIMEOUT = 30.0


def lc_signature(secret: str, body: bytes) -> str:
    """Return the value of the header LC-Signature."""
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


def standard_headers(secret: str, body: bytes, *, id: str, at: datetime | None = None) -> dict[str, str]:
    """Return the three headers of the Standard Webhooks scheme."""
    at = at or datetime.now(UTC)
    return {
        "webhook-id": id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(secret).sign(id, at, body.decode()),
    }


def event(job_id: str, kind: str) -> dict[str, Any]:
    """Return the vendor's real payload: it names the job and has no content."""
    data = {"id": job_id, "job_id": job_id}
    return {"event_id": str(uuid.uuid4()), "event_type": kind, "timestamp": time.time(), "data": data}


def contract_payload(metadata: Mapping[str, str], pages: Sequence[str], version: str, *, ok: bool) -> dict[str, Any]:
    """Return the payload of context 002 §4, with the document's content."""
    content = PAGE_BREAK.join(pages)
    encoded = content.encode()
    sha256 = hashlib.sha256(encoded).hexdigest()
    artifact = {"type": "markdown", "content": content, "sha256": sha256, "bytes": len(encoded)}
    return {
        "job_id": metadata.get("job_id"),
        "document_id": metadata.get("document_id"),
        "status": "parsed" if ok else "failed",
        "artifacts": [artifact] if ok else [],
        "meta": {"parser_name": "llamaparse", "parser_version": version},
    }


@dataclass(frozen=True, slots=True)
class Callback:
    """One callback, as often as it is sent."""

    job_id: str
    kind: str
    url: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Delivery:
    """One attempt; ``status`` 0: nobody answered."""

    letter: Callback
    attempt: int
    status: int


def build_callback(job_id: str, to: Mapping[str, Any], payload: Mapping[str, Any]) -> Callback:
    """Build the real callback to one of the submit's webhook_configurations."""
    text = json.dumps(payload, separators=(",", ":"))
    body = (text if to.get("webhook_output_format") == "json" else json.dumps(text)).encode()
    secret = to.get("webhook_signing_secret")
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "llamaindex-webhook-service/1.0",
        "X-Webhook-Event-ID": payload["event_id"],
        "X-Webhook-Event-Type": payload["event_type"],
        **{name: str(value) for name, value in (to.get("webhook_headers") or {}).items()},
        **({"LC-Signature": lc_signature(secret, body)} if secret else {}),
    }
    return Callback(job_id, payload["event_type"], to["webhook_url"], headers, body)


def build_contract_callback(
    job_id: str, kind: str, to: Mapping[str, Any], payload: Mapping[str, Any], secret: str
) -> Callback:
    """Build the callback of the contract in context 002 §4."""
    body = json.dumps(payload, separators=(",", ":")).encode()
    headers = standard_headers(secret, body, id=f"msg_{uuid.uuid4().hex}") if secret else {}
    return Callback(job_id, kind, to["webhook_url"], {"Content-Type": "application/json", **headers}, body)


class CallbackSender:
    """Delivers letters at least once, or loses them.

    ``p_lost`` and ``p_doubled`` are decided by ``seed`` and the letter's ``luck`` key, whatever the order of things.
    """

    def __init__(self, later: Scheduler, *, seed: int, backoff_factor: float, timeout: float = TIMEOUT) -> None:
        self.later, self.seed, self.backoff_factor, self.timeout = later, seed, backoff_factor, timeout
        self.p_lost = self.p_doubled = 0.0
        self.deliveries: deque[Delivery] = deque(maxlen=10_000)
        self.lost: deque[Callback] = deque(maxlen=10_000)
        self.doubled: deque[Callback] = deque(maxlen=10_000)

    def send(self, letter: Callback, *, luck: str) -> None:
        dice = Random(f"{self.seed}:{luck}:{letter.kind}")
        lost, doubled = dice.random() < self.p_lost, dice.random() < self.p_doubled
        if lost:
            self.lost.append(letter)
            return
        self.deliver(letter)
        if doubled:
            self.doubled.append(letter)
            self.deliver(letter)

    def deliver(self, letter: Callback, attempt: int = 1, *, delay: float = 0.0) -> None:
        self.later.call_later(delay, lambda: self._attempt(letter, attempt))

    def _attempt(self, letter: Callback, attempt: int) -> None:
        try:
            sent = requests.post(
                letter.url, letter.body, headers=letter.headers, timeout=self.timeout, allow_redirects=False
            )
            status = sent.status_code
        except requests.RequestException:
            status = 0
        self.deliveries.append(Delivery(letter, attempt, status))
        if not 200 <= status < 300 and attempt < len(BACKOFF):
            self.deliver(letter, attempt + 1, delay=BACKOFF[attempt - 1] * self.backoff_factor)
