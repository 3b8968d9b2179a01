"""A provider's REST API, asked with a tenant's token."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from itertools import islice
from typing import Any

import httpcore
import httpx
from django.conf import settings

from integrations import vendor_key
from integrations.models import ConnectedSource
from integrations.transports.responses import (
    ERROR_BYTES,
    ProviderError,
    TooLarge,
    error_code,
    interpret_status,
    parse_json_object,
    read_bounded,
)
from vendors import guard, http_deadline
from vendors.guard import InvalidResponse

CONNECT_SECONDS = 5.0
DOWNLOADS_TAKE = 5  # times a call's time: a file of many megabytes over a slow line
# Providers' ids stand in paths: one that would lead elsewhere is no id.
_LEADS_AWAY = re.compile(r"[?#\\\s\x00-\x1f]|(?:^|/)\.{1,2}(?:/|$)")


class RestTransport:
    """One account at a provider. Its calls share the account's budget and breaker with those of all processes.

    Raises what ``vendors.guard`` raises, and ``TokenRefused``. Use it outside of transactions, in one thread.
    """

    def __init__(self, source: ConnectedSource, token: str, *, requests_per_minute: int) -> None:
        self.vendor = vendor_key.source_vendor(source, requests_per_minute)
        self._token = token
        self._base: str = settings.CONNECTORS[source.provider]["api_url"].rstrip("/")

    def json(
        self,
        method: str,
        path: str,
        *,
        operation: str,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the object of an answer, its numbers with a point as ``Decimal``. ``params`` of None are left out."""
        with self._calling(operation), self._asked(method, path, params, body) as response:
            return parse_json_object(read_bounded(response.iter_bytes()))

    def stream(
        self, path: str, *, operation: str, params: Mapping[str, Any] | None = None, most: int
    ) -> Iterator[bytes]:
        """Yield the bytes of an answer; raise ``TooLarge`` once there are more than ``most``."""
        size = 0
        with self._calling(operation), self._asked("GET", path, params, None, times=DOWNLOADS_TAKE) as response:
            for piece in response.iter_bytes():
                size += len(piece)
                if size > most:
                    raise TooLarge
                yield piece

    def close(self) -> None:
        """Nothing to do: connections are the process's."""

    def _calling(self, operation: str) -> Any:
        return guard.guarded_call(self.vendor, operation, meaning=interpret_status)

    @contextmanager
    def _asked(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None,
        body: Mapping[str, Any] | None,
        *,
        times: int = 1,
    ) -> Iterator[httpx.Response]:
        if not path.startswith("/") or _LEADS_AWAY.search(path):
            raise InvalidResponse("An id of the provider's cannot stand in an address.")
        given = {name: value for name, value in (params or {}).items() if value is not None}
        with _making:
            client = _client(settings.VENDOR_TIMEOUT_SECONDS * times, os.getpid())
        headers = {"Authorization": f"Bearer {self._token}"}
        with client.stream(method, self._base + path, params=given, json=body, headers=headers) as response:
            _check(response)
            yield response


def _check(response: httpx.Response) -> None:
    if response.is_success:
        return
    if response.status_code < 400:
        raise InvalidResponse("The provider answered with a redirection.")
    content = b"".join(islice(response.iter_bytes(ERROR_BYTES), 1))
    raise ProviderError(response.status_code, dict(response.headers), error_code(content))


_making = threading.Lock()  # the cache alone lets threads that come together make one each


@lru_cache(maxsize=4)
def _client(seconds: float, process: int) -> httpx.Client:
    """One a process, for all tenants: it keeps no cookies, and a .netrc would replace the tenant's token."""
    return httpx.Client(
        transport=http_deadline.deadline_transport(httpx, httpcore, seconds),
        timeout=httpx.Timeout(seconds, connect=CONNECT_SECONDS),
        trust_env=False,
        follow_redirects=False,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        headers={"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": "accessa"},
    )
