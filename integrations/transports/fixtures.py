"""Answers that were recorded, in place of a provider (INTEGRATIONS_USE_FIXTURES)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from integrations.transports.responses import ProviderError, TooLarge, error_code, interpret_status, parse_json_object
from jobs.outcomes import Permanent, Retryable
from vendors import guard
from vendors.errors import ErrorResponse
from vendors.guard import VendorRefused

FOLDER = Path(__file__).resolve().parent.parent / "fixtures"
PIECE = 64 * 1024


class FixtureTransport:
    """A provider's answers from ``<folder>/<provider>/routes.json``, asked like ``Rest``.

    Each route has ``method``, ``path`` and ``file``, and may have ``params`` (a part of what is asked, in the query or
    at the top of the body) and ``status``. Of the routes that match, the one that names the most params answers.
    """

    def __init__(self, provider: str, folder: Path = FOLDER) -> None:
        self._folder = folder / provider
        self._provider = provider

    def json(
        self,
        method: str,
        path: str,
        *,
        operation: str,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        return parse_json_object(self._answer(method, path, {**(params or {}), **(body or {})}))

    def stream(
        self, path: str, *, operation: str, params: Mapping[str, Any] | None = None, most: int
    ) -> Iterator[bytes]:
        content = self._answer("GET", path, params or {})
        if len(content) > most:
            raise TooLarge
        for start in range(0, len(content), PIECE):
            yield content[start : start + PIECE]

    def close(self) -> None:
        """Nothing to do."""

    def _answer(self, method: str, path: str, asked: Mapping[str, Any]) -> bytes:
        routes = [route for route in _routes(self._folder) if _matches(route, method, path, asked)]
        if not routes:
            raise NotRecorded(self._provider, method, path)
        route = max(routes, key=lambda each: len(each.get("params", {})))
        content = (self._folder / route["file"]).read_bytes() if "file" in route else b""
        status = route.get("status", 200)
        if status >= 400:
            raise _outcome(ProviderError(status, {}, error_code(content)))
        return content


class NotRecorded(Permanent):
    """No answer was recorded for a request."""

    def __init__(self, provider: str, method: str, path: str) -> None:
        super().__init__("NOT_RECORDED", f"{provider} has no recorded answer for {method} {path}.")


@lru_cache(maxsize=16)
def _routes(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "routes.json").read_text())
    return found


def _matches(route: Mapping[str, Any], method: str, path: str, asked: Mapping[str, Any]) -> bool:
    if (route["method"], route["path"]) != (method, path):
        return False
    return all(_equal(asked.get(name), value) for name, value in route.get("params", {}).items())


def _equal(asked: Any, recorded: Any) -> bool:
    """Compare as the wire does, where a number is its digits; a param recorded as null must not be asked.

    A recorded text may end in "…": so does what is asked, in whatever way.
    """
    if asked is None or recorded is None:
        return asked is recorded
    if isinstance(recorded, str) and recorded.endswith("…"):
        return _spelled(asked).startswith(recorded[:-1])
    return asked == recorded or _spelled(asked) == _spelled(recorded)


def _spelled(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _outcome(refused: ProviderError) -> Exception:
    """Return what ``vendors.guard`` would raise, without its budget and breaker."""
    answer = ErrorResponse(refused.response.status_code, refused.response.headers, refused.code)
    if answer.status >= 500:
        return Retryable("VENDOR_UNAVAILABLE", guard.DETAILS["VENDOR_UNAVAILABLE"])
    return interpret_status(answer) or VendorRefused(answer.status, answer.vendor_code)
