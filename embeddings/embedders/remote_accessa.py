"""Another Accessa deployment's model, through its POST /internal/embed (spec 002 §1)."""

import os
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from decimal import Decimal
from functools import lru_cache
from typing import Any

import httpcore
import httpx
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from embeddings.embedders import http_base
from embeddings.embedders.http_base import NO_SLOT, EmbedResponse, HttpEmbedder
from embeddings.embedders.registry import DIMENSIONS, replace_surrogates
from jobs import telemetry
from vendors import calls, http_deadline
from vendors.call_failures import InvalidResponse
from vendors.vendor_account import Vendor

PROBE = "model"  # the text sent to learn the model's name


class RemoteAccessa(HttpEmbedder):
    """Costs nothing here: the other deployment pays its vendor, if it has one."""

    is_billed = False

    def __init__(self) -> None:
        self._models: dict[str, str] = {}
        self.batch_size = settings.EMBEDDING_BATCH_SIZE

    @property
    def model(self) -> str:
        """The other deployment's name of its model. The first access in a process makes a guarded call.

        Raises what ``calls.guarded_call`` raises.
        """
        url = _url()
        if url not in self._models:
            with calls.guarded_call(self.vendor, "name"):
                self._models[url] = _parse_model(self._post([PROBE]))
        return self._models[url]

    @property
    def vendor(self) -> Vendor:
        if not settings.BRAIN_API_SECRET:
            raise ImproperlyConfigured("EMBEDDER=remote needs BRAIN_API_SECRET.")
        return Vendor("brain", f"{_url()} {settings.BRAIN_API_SECRET}", requests_per_minute=0)

    def cents(self, tokens: int) -> Decimal:
        return Decimal(0)

    def call(self, texts: Sequence[str], *, slot: AbstractContextManager[object] = NO_SLOT) -> EmbedResponse:
        with slot, calls.record_call(self.vendor, "embed"):
            body = self._post(texts)
        vectors = http_base.validate_vectors(body.get("embeddings"), len(texts))
        model, url = _parse_model(body), _url()
        if self._models.setdefault(url, model) != model:
            self._models.pop(url, None)  # the next document is planned with the new one
            raise InvalidResponse("The other deployment has changed its model.")
        return EmbedResponse(vectors)

    def _post(self, texts: Sequence[str]) -> dict[str, Any]:
        seconds = settings.VENDOR_TIMEOUT_SECONDS
        deadline = time.monotonic() + seconds
        payload = {"texts": [replace_surrogates(text) for text in texts]}
        headers = {
            "Authorization": f"Bearer {settings.BRAIN_API_SECRET}",
            "X-Correlation-ID": str(telemetry.correlation_id()),
        }
        with _client_lock:
            client = _client(seconds, os.getpid())
        with client.stream("POST", f"{_url()}/internal/embed", json=payload, headers=headers) as response:
            content = http_base.read_body(response.iter_bytes(), deadline)
            response.raise_for_status()
        return http_base.parse_json(content)


def _url() -> str:
    if not settings.BOOTS_BRAIN_URL:
        raise ImproperlyConfigured("EMBEDDER=remote needs BOOTS_BRAIN_URL.")
    url: str = settings.BOOTS_BRAIN_URL
    return url.rstrip("/")


def _parse_model(body: dict[str, Any]) -> str:
    model, dim = body.get("model"), body.get("dim")
    if not isinstance(model, str) or not 0 < len(model) <= 200 or dim != DIMENSIONS:
        raise InvalidResponse("The answer does not name its model and its width.")
    return model


_client_lock = threading.Lock()  # the cache alone lets concurrent threads create one each


@lru_cache(maxsize=2)
def _client(seconds: float, process: int) -> httpx.Client:
    """Return one client a process: connections do not survive a fork. A .netrc would replace the secret's header."""
    timeout = httpx.Timeout(seconds, connect=http_base.CONNECT_SECONDS)
    return httpx.Client(
        transport=http_deadline.deadline_transport(httpx, httpcore, seconds), timeout=timeout, trust_env=False
    )
