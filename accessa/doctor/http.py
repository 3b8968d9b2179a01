"""What doctor asks over HTTP, as a stranger would: no redirects, no cookies, no proxies, and never for long."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

SECONDS = 5.0
LONGEST = 1024 * 1024


class Silent(Exception):
    """Nobody answered. The message says how, and names no address."""


@dataclass(frozen=True, slots=True)
class Said:
    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def told(self) -> dict[str, Any]:
        """Return the JSON object of the body; empty when it is none: a portal's page, another's server."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def code(self) -> str:
        return str(self.told.get("code", ""))

    @property
    def clock(self) -> float | None:
        """Return the time that the answer's Date names."""
        try:
            return parsedate_to_datetime(self.headers["date"]).timestamp()
        except (KeyError, ValueError, TypeError):
            return None


def ask(
    method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes = b"", seconds: float = SECONDS
) -> Said:
    """Raise ``Silent`` when there is no answer."""
    try:
        with (
            httpx.Client(timeout=seconds, trust_env=False, follow_redirects=False) as client,
            client.stream(method, url, headers=dict(headers or {}), content=body or None) as answer,
        ):
            content = b""
            for piece in answer.iter_raw():
                content += piece
                if len(content) > LONGEST:
                    break
            return Said(answer.status_code, answer.headers, content)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        raise Silent("the address is none") from None
    except httpx.TimeoutException:
        raise Silent(f"no answer within {seconds:g} s") from None
    except httpx.ConnectError as error:
        raise Silent(_why(error)) from None
    except httpx.HTTPError as error:
        raise Silent(f"the connection broke ({type(error).__name__})") from None


def _why(error: httpx.ConnectError) -> str:
    said = str(error).lower()
    for sign, why in (("certificate", "its certificate is not trusted"), ("ssl", "it speaks no TLS"),
                      ("name or service", "its name is unknown"), ("name resolution", "its name is unknown"),
                      ("refused", "nobody listens there")):  # fmt: skip
        if sign in said:
            return why
    return "it cannot be reached"
