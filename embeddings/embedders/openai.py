"""OpenAI's text-embedding-3-small, through the official client without its own retries."""

import os
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from decimal import Decimal
from functools import lru_cache
from typing import Any

import httpcore2
import httpx2
import openai
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from embeddings import tokenizer
from embeddings.embedders import http_base
from embeddings.embedders.http_base import NO_SLOT, EmbedResponse, HttpEmbedder
from embeddings.embedders.registry import replace_surrogates
from jobs import telemetry
from vendors import calls, http_deadline, ledger
from vendors.call_failures import InvalidResponse
from vendors.vendor_account import Vendor

MAX_TOKENS = 8_191  # tokens; the client's own documentation says 8192, the model's page 8191


class OpenAI(HttpEmbedder):
    """https://platform.openai.com/docs/api-reference/embeddings"""

    model = "text-embedding-3-small"

    @property
    def vendor(self) -> Vendor:
        if not settings.OPENAI_API_KEY:
            raise ImproperlyConfigured("EMBEDDER=openai needs OPENAI_API_KEY.")
        requests, tokens_ = settings.OPENAI_REQUESTS_PER_MINUTE, settings.OPENAI_TOKENS_PER_MINUTE
        return Vendor("openai", settings.OPENAI_API_KEY, requests_per_minute=requests, tokens_per_minute=tokens_)

    def cents(self, tokens: int) -> Decimal:
        return ledger.embedding_price(tokens)

    def call(self, texts: Sequence[str], *, slot: AbstractContextManager[object] = NO_SLOT) -> EmbedResponse:
        content, headers = self.post(texts, slot=slot)
        body = http_base.parse_json(content)
        usage = body.get("usage")
        charged = usage.get("total_tokens") if isinstance(usage, dict) else None
        tokens = charged if type(charged) is int and charged >= 0 else None
        return EmbedResponse(
            http_base.validate_vectors(_in_order(body.get("data"), len(texts)), len(texts)), tokens, headers
        )

    def post(
        self, texts: Sequence[str], *, slot: AbstractContextManager[object] = NO_SLOT
    ) -> tuple[bytes, dict[str, str]]:
        """Make the request of ``call``; return the response's body and headers."""
        seconds = settings.VENDOR_TIMEOUT_SECONDS
        with _client_lock:
            client = _client(settings.OPENAI_API_KEY, settings.OPENAI_BASE_URL, seconds, os.getpid())
        # Requested explicitly, base64 comes undecoded: the client's own decoding makes a Python list of each vector.
        request = client.embeddings.with_streaming_response.create(
            # neither empty nor too long
            input=[tokenizer.truncate(replace_surrogates(text), MAX_TOKENS) or " " for text in texts],
            model=self.model,
            encoding_format="base64",
            extra_headers={"X-Client-Request-Id": telemetry.new_call_id()},  # found in OpenAI's own logs by it
        )
        with slot, calls.record_call(self.vendor, "embed"), request as response:
            return http_base.read_body(response.iter_bytes(), time.monotonic() + seconds), dict(response.headers)


def _in_order(rows: object, count: int) -> list[Any]:
    """Return the vectors by their index, which must name each text exactly once."""
    if not isinstance(rows, list) or len(rows) != count or not all(isinstance(row, dict) for row in rows):
        raise InvalidResponse("The answer does not have a vector for each text.")
    vectors = {row.get("index"): row.get("embedding") for row in rows if type(row.get("index")) is int}
    if vectors.keys() != set(range(count)):
        raise InvalidResponse("The answer's vectors are not numbered like the texts.")
    return [vectors[index] for index in range(count)]


class _Http(openai.DefaultHttpxClient):
    def __del__(self) -> None:  # as the library's own does, which cannot be given a transport
        with suppress(Exception):
            self.close()


_client_lock = threading.Lock()  # the cache alone lets concurrent threads create one each


@lru_cache(maxsize=4)
def _client(key: str, url: str, seconds: float, process: int) -> openai.OpenAI:
    """Return one client a process: connections do not survive a fork."""
    timeout = openai.Timeout(seconds, connect=http_base.CONNECT_SECONDS)
    # A followed redirect would end at a captive portal's page that looks like a response.
    http = _Http(
        transport=http_deadline.deadline_transport(httpx2, httpcore2, seconds), timeout=timeout, follow_redirects=False
    )
    client = openai.OpenAI(api_key=key, base_url=url, timeout=timeout, max_retries=0, http_client=http)
    client.organization = client.project = None  # it reads them from environment variables
    return client
