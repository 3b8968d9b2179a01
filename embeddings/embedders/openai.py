"""OpenAI's text-embedding-3-small, by the official client with its own retries switched off."""

from __future__ import annotations

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

from embeddings import tokenizer as tokens
from embeddings.embedders.http_base import (
    CONNECT_SECONDS,
    NO_SLOT,
    EmbedResponse,
    HttpEmbedder,
    parse_json,
    read_body,
    validate_vectors,
)
from embeddings.embedders.model_files import replace_surrogates
from jobs import log_context
from vendors import call_metrics, http_deadline, ledger
from vendors.guard import InvalidResponse
from vendors.vendor import Vendor

LONGEST_TEXT = 8_191  # tokens; the client's own documentation says 8192, the model's page 8191


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

    def call(self, texts: Sequence[str], *, air: AbstractContextManager[object] = NO_SLOT) -> EmbedResponse:
        content, headers = self._asked([_sendable(text) for text in texts], air)
        body = parse_json(content)
        return EmbedResponse(
            validate_vectors(_ordered(body.get("data"), len(texts)), len(texts)), _charged(body), headers
        )

    def _asked(self, texts: list[str], air: AbstractContextManager[object]) -> tuple[bytes, dict[str, str]]:
        seconds = settings.VENDOR_TIMEOUT_SECONDS
        with _making:
            client = _client(settings.OPENAI_API_KEY, settings.OPENAI_BASE_URL, seconds, os.getpid())
        # Asked for explicitly, base64 comes as it is: the client's own decoding makes a Python list of each vector.
        asking = client.embeddings.with_streaming_response.create(
            input=texts,
            model=self.model,
            encoding_format="base64",
            extra_headers={"X-Client-Request-Id": log_context.new_call_id()},  # found in OpenAI's own logs by it
        )
        with air, call_metrics.record_call(self.vendor, "embed"), asking as response:
            return read_body(response.iter_bytes(), time.monotonic() + seconds), dict(response.headers)


def _sendable(text: str) -> str:
    """Return ``text`` as the vendor takes it: not empty, not too long."""
    return tokens.truncate(replace_surrogates(text), LONGEST_TEXT) or " "


def _ordered(data: object, count: int) -> list[Any]:
    """Return the vectors by their index, which must name each text exactly once."""
    if not isinstance(data, list) or len(data) != count or not all(isinstance(each, dict) for each in data):
        raise InvalidResponse("The answer does not have a vector for each text.")
    found = {each.get("index"): each.get("embedding") for each in data if type(each.get("index")) is int}
    if found.keys() != set(range(count)):
        raise InvalidResponse("The answer's vectors are not numbered like the texts.")
    return [found[index] for index in range(count)]


def _charged(body: dict[str, Any]) -> int | None:
    usage = body.get("usage")
    charged = usage.get("total_tokens") if isinstance(usage, dict) else None
    return charged if type(charged) is int and charged >= 0 else None


class _Http(openai.DefaultHttpxClient):
    def __del__(self) -> None:  # as the library's own does, which cannot be given a transport
        with suppress(Exception):
            self.close()


_making = threading.Lock()  # the cache alone lets threads that come together make one each


@lru_cache(maxsize=4)
def _client(key: str, url: str, seconds: float, process: int) -> openai.OpenAI:
    """One a process: connections do not survive a fork."""
    timeout = openai.Timeout(seconds, connect=CONNECT_SECONDS)
    # A redirect is no answer: it would end at a portal's page that looks like one.
    http = _Http(
        transport=http_deadline.deadline_transport(httpx2, httpcore2, seconds), timeout=timeout, follow_redirects=False
    )
    client = openai.OpenAI(api_key=key, base_url=url, timeout=timeout, max_retries=0, http_client=http)
    client.organization = client.project = None  # it reads them from variables that are not ours
    return client
