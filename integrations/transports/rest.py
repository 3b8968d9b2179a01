"""A provider's REST API, called with a tenant's token."""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from itertools import islice
from typing import Any

import httpcore
import httpx
from django.conf import settings

from integrations.models import ConnectedSource
from integrations.providers.interface import Params
from integrations.transports import responses
from vendors import calls, http_deadline
from vendors.call_failures import InvalidResponse

CONNECT_SECONDS = 5.0
DOWNLOADS_TAKE = 5  # times a call's time: a file of many megabytes over a slow line
# Providers' ids stand in paths: one that would lead elsewhere is no id.
_LEADS_AWAY = re.compile(r"[?#\\\s\x00-\x1f]|(?:^|/)\.{1,2}(?:/|$)")


class RestTransport:
    """One account at a provider. Its calls share the account's rate limit and circuit breaker among all processes.

    Raises what ``vendors.calls`` raises, and ``TokenRefused``. Use it outside of transactions, in one thread.
    """

    def __init__(self, source: ConnectedSource, token: str, *, requests_per_minute: int) -> None:
        self.vendor = responses.source_vendor(source, requests_per_minute)
        self._token = token
        self._base: str = settings.CONNECTORS[source.provider]["api_url"].rstrip("/")

    def json(
        self, method: str, path: str, *, operation: str, params: Params | None = None, body: Params | None = None
    ) -> dict[str, Any]:
        """Return the object of a response, its numbers with a point as ``Decimal``. ``params`` of None are left out."""
        with self._request(operation, method, path, params, body) as response:
            return responses.parse_json_object(responses.read_bounded(response.iter_bytes()))

    def stream(self, path: str, *, operation: str, params: Params | None = None, most: int) -> Iterator[bytes]:
        """Yield the bytes of a response; raise ``TooLarge`` once there are more than ``most``."""
        size = 0
        with self._request(operation, "GET", path, params, None, times=DOWNLOADS_TAKE) as response:
            for piece in response.iter_bytes():
                size += len(piece)
                if size > most:
                    raise responses.TooLarge
                yield piece

    def close(self) -> None:
        """Do nothing: connections are the process's."""

    @contextmanager
    def _request(
        self, operation: str, method: str, path: str, params: Params | None, body: Params | None, *, times: int = 1
    ) -> Iterator[httpx.Response]:
        with calls.guarded_call(self.vendor, operation, interpret=responses.interpret_status):
            if not path.startswith("/") or _LEADS_AWAY.search(path):
                raise InvalidResponse("An id of the provider's cannot stand in an address.")
            params = {name: param for name, param in (params or {}).items() if param is not None}
            with _making:
                client = _client(settings.VENDOR_TIMEOUT_SECONDS * times, os.getpid())
            headers = {"Authorization": f"Bearer {self._token}"}
            with client.stream(method, self._base + path, params=params, json=body, headers=headers) as response:
                if not response.is_success:
                    if response.status_code < 400:
                        raise InvalidResponse("The provider answered with a redirection.")
                    content = b"".join(islice(response.iter_bytes(responses.ERROR_BYTES), 1))
                    raise responses.ProviderError(
                        response.status_code, dict(response.headers), responses.error_code(content)
                    )
                yield response


_making = threading.Lock()  # with the cache alone, threads that come at once make one client each


@lru_cache(maxsize=4)
def _client(seconds: float, process: int) -> httpx.Client:
    """Return the process's client for all tenants: it keeps no cookies, and a .netrc would replace the token."""
    return httpx.Client(
        transport=http_deadline.deadline_transport(httpx, httpcore, seconds, most=None),  # responses.read_bounded
        timeout=httpx.Timeout(seconds, connect=CONNECT_SECONDS),
        trust_env=False,
        follow_redirects=False,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        headers={"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": "accessa"},
    )
