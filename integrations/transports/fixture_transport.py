"""Recorded responses in place of a provider (INTEGRATIONS_USE_FIXTURES)."""

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from integrations.error_codes import NOT_RECORDED
from integrations.providers.interface import Params
from integrations.transports.responses import TooLarge, error_code, interpret_status, parse_json_object
from jobs.outcomes import Permanent, Retryable
from vendors.call_failures import ErrorResponse
from vendors.calls import VendorRefused
from vendors.error_codes import VENDOR_UNAVAILABLE

FOLDER = Path(__file__).resolve().parent.parent / "fixtures"


class FixtureTransport:
    """A provider's responses from ``<folder>/<provider>/routes.json``, with the interface of ``RestTransport``.

    Each route has ``method``, ``path`` and ``file``, and may have ``params`` (a part of the query's or the body's
    parameters) and ``status``. Of the matching routes, the one with the most params responds.
    """

    def __init__(self, provider: str, folder: Path = FOLDER) -> None:
        self._folder = folder / provider
        self._provider = provider

    def json(
        self, method: str, path: str, *, operation: str, params: Params | None = None, body: Params | None = None
    ) -> dict[str, Any]:
        return parse_json_object(self._respond(method, path, {**(params or {}), **(body or {})}))

    def stream(self, path: str, *, operation: str, params: Params | None = None, most: int) -> Iterator[bytes]:
        content = self._respond("GET", path, params or {})
        if len(content) > most:
            raise TooLarge
        yield content

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def _respond(self, method: str, path: str, params: Params) -> bytes:
        routes = [
            route
            for route in _routes(self._folder)
            if (route["method"], route["path"]) == (method, path)
            and all(_matches(params.get(name), recorded) for name, recorded in route.get("params", {}).items())
        ]
        if not routes:
            raise Permanent(NOT_RECORDED, f"{self._provider} has no recorded answer for {method} {path}.")
        route = max(routes, key=lambda each: len(each.get("params", {})))
        content = (self._folder / route["file"]).read_bytes() if "file" in route else b""
        status = route.get("status", 200)
        if status >= 500:  # as ``vendors.calls`` would raise, without its rate limit and circuit breaker
            raise Retryable(VENDOR_UNAVAILABLE)
        if status >= 400:
            code = error_code(content)
            raise interpret_status(ErrorResponse(status, {}, code)) or VendorRefused(status, code)
        return content


@lru_cache(maxsize=16)
def _routes(folder: Path) -> list[dict[str, Any]]:
    routes: list[dict[str, Any]] = json.loads((folder / "routes.json").read_text())
    return routes


def _matches(param: Any, recorded: Any) -> bool:
    """Compare as HTTP does, where a number is its digits; a param recorded as null must be absent.

    A recorded text may end in "…": the rest of the param may be anything.
    """
    if param is None or recorded is None:
        return param is recorded
    if isinstance(recorded, str) and recorded.endswith("…"):
        return _spell(param).startswith(recorded[:-1])
    return param == recorded or _spell(param) == _spell(recorded)


def _spell(param: Any) -> str:
    return str(param).lower() if isinstance(param, bool) else str(param)
