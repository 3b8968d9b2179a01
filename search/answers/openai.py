"""OpenAI's Responses API: one streamed call, billed in the ledger, and the text and usage that it brings."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

import httpcore
import httpx
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from embeddings import tokenizer
from embeddings.embedders.http_base import CONNECT_SECONDS
from embeddings.embedders.registry import replace_surrogates
from jobs import telemetry
from search.answers.prompt import ANSWER_SCHEMA, INSTRUCTIONS
from vendors import call_failures, calls, http_deadline, ledger
from vendors.call_failures import InvalidResponse
from vendors.vendor_account import Vendor

MAX_OUTPUT_TOKENS = 1_000
MAX_STREAM_BYTES = 2_000_000  # the whole stream of such an output has a tenth of it
OVERHEAD_TOKENS = 400  # of the schema and of the message's frame
MODEL_TOKENS = 1.1  # its own tokenizer's for one of cl100k, at most, in English and Spanish


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


def answer_vendor() -> Vendor:
    """Return the account. OpenAI limits each model by itself, so that answers hold back no embeddings."""
    if not settings.OPENAI_API_KEY:
        raise ImproperlyConfigured("ANSWERER=openai needs OPENAI_API_KEY.")
    requests, tokens = settings.OPENAI_ANSWER_REQUESTS_PER_MINUTE, settings.OPENAI_ANSWER_TOKENS_PER_MINUTE
    account = f"{settings.OPENAI_ANSWER_MODEL} {settings.OPENAI_API_KEY}"
    return Vendor("openai", account, requests_per_minute=requests, tokens_per_minute=tokens)


@dataclass(frozen=True, slots=True)
class Usage:
    input_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def cents(self) -> Decimal:
        return ledger.answer_price(self.input_tokens, self.output_tokens)


class ResponseStream:
    """Server-sent events of one response. ``usage`` is None until they have ended."""

    def __init__(self, response: httpx.Response) -> None:
        self.headers = dict(response.headers)
        self.usage: Usage | None = None
        self.has_failed = False
        self._events = _events(response)

    def deltas(self) -> Iterator[str]:
        """Yield the pieces of the text. Raises ``InvalidResponse`` where the stream breaks off or reports an error."""
        try:
            yield from self._deltas()
        except Exception:
            self.has_failed = True
            raise

    def _deltas(self) -> Iterator[str]:
        for event in self._events:
            match event.get("type"):
                case "response.output_text.delta":
                    yield str(event.get("delta", ""))
                case "response.completed" | "response.incomplete":
                    self.usage = _parse_usage(event)
                    return
                case "response.failed" | "error":
                    raise InvalidResponse("The stream of the answer reports an error.")
        raise InvalidResponse("The stream of the answer broke off.")

    def read_usage(self) -> Usage:
        """Return the usage, which comes last; what precedes it is skipped."""
        while self.usage is None:
            for _ in self.deltas():
                pass
        return self.usage


@contextmanager
def purchase_response(user_id: UUID, content: str, *, is_connected: Callable[[], bool]) -> Iterator[ResponseStream]:
    """Buy an answer to ``content``; the stream that the block reads has its usage afterwards.

    The purchase is settled however the block ends: where it leaves early, the rest of the stream is read. Raises what
    gate and ledger raise, ``ClientGone`` before anything is bought, and the outcome of a failed call.
    """
    vendor, most = answer_vendor(), _most_usage(content)
    calls.acquire(vendor, tokens=most.tokens)
    purchase_id = None
    try:
        if not is_connected():
            raise ClientGone
        purchase_id = ledger.reserve(
            user_id=user_id,
            cents=most.cents,
            vendor=vendor.name,
            model=settings.OPENAI_ANSWER_MODEL,
            unit="tokens",
            quantity=most.tokens,
            stage="answer",
        )
        with calls.record_call(vendor, "answer"), open_stream(content) as stream:
            try:
                yield stream
            finally:
                if not stream.has_failed:  # else its error is on its way
                    usage = stream.read_usage()
                    ledger.settle(purchase_id, quantity=usage.tokens, cents=usage.cents)
                    calls.record_success(vendor, stream.headers)
    except Exception as error:
        if purchase_id and not call_failures.may_have_charged(error):
            ledger.void(purchase_id)
        outcome = calls.record_failure(vendor, error)
        if outcome is error:
            raise
        raise outcome from error


@contextmanager
def open_stream(content: str) -> Iterator[ResponseStream]:
    """Make the call of an answer. Uses no database.

    https://platform.openai.com/docs/api-reference/responses/create
    """
    seconds = settings.ANSWER_SECONDS
    request = {
        "model": settings.OPENAI_ANSWER_MODEL,
        "instructions": INSTRUCTIONS,
        "input": [{"role": "user", "content": [{"type": "input_text", "text": replace_surrogates(content)}]}],
        "text": {"format": {"type": "json_schema", "name": "answer", "strict": True, "schema": ANSWER_SCHEMA}},
        "max_output_tokens": MAX_OUTPUT_TOKENS,
        "store": False,  # else OpenAI keeps passages and question for 30 days
        "stream": True,
    }
    headers = {
        "Authorization": f"Bearer {settings.OPENAI_API_KEY}",
        "X-Client-Request-Id": telemetry.new_call_id(),  # found in OpenAI's own logs by it
    }
    with _client_lock:
        client = _client(seconds, os.getpid())
    url = f"{settings.OPENAI_BASE_URL.rstrip('/')}/responses"
    with client.stream("POST", url, json=request, headers=headers) as response:
        if response.status_code != httpx.codes.OK:
            response.read()  # its code tells a limit from an exhausted quota
            response.raise_for_status()
            raise InvalidResponse("The answer has a status of its own.")
        yield ResponseStream(response)


def _most_usage(content: str) -> Usage:
    tokens = tokenizer.count_tokens(INSTRUCTIONS) + tokenizer.count_tokens(content)
    return Usage(int(tokens * MODEL_TOKENS) + OVERHEAD_TOKENS, MAX_OUTPUT_TOKENS)


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """Yield the events: each has one line of JSON after ``data:``, and names its type in it."""
    buffer, size = b"", 0
    for piece in response.iter_bytes():
        buffer, size = buffer + piece, size + len(piece)
        if size > MAX_STREAM_BYTES:
            raise InvalidResponse("The stream of the answer has no end.")
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield _parse_event(line.removeprefix(b"data:"))


def _parse_event(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        raise InvalidResponse("An event of the answer is not JSON.") from None  # the error itself would keep it
    if not isinstance(event, dict):
        raise InvalidResponse("An event of the answer is not a JSON object.")
    return event


def _parse_usage(event: dict[str, Any]) -> Usage:
    response = event.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    if not isinstance(usage, dict):
        raise InvalidResponse("The answer does not name its usage.")
    return Usage(_parse_count(usage, "input_tokens"), _parse_count(usage, "output_tokens"))


def _parse_count(usage: dict[str, Any], name: str) -> int:
    count = usage.get(name)
    if type(count) is not int or count < 0:
        raise InvalidResponse("The answer does not name its usage.")
    return count


_client_lock = threading.Lock()  # the cache alone lets concurrent threads create one each


@lru_cache(maxsize=2)
def _client(seconds: float, process: int) -> httpx.Client:
    """Return one client a process: connections do not survive a fork. A .netrc would replace the key's header."""
    timeout = httpx.Timeout(seconds, connect=CONNECT_SECONDS)
    return httpx.Client(
        transport=http_deadline.deadline_transport(httpx, httpcore, seconds), timeout=timeout, trust_env=False
    )
