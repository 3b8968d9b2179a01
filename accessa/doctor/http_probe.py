"""HTTP requests of doctor: no redirects, cookies or proxies, short timeouts, errors as sentences without addresses."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

TIMEOUT = 5.0
MAX_BYTES = 1024 * 1024
#   in httpx's message    reason
CONNECT_ERRORS = (
    ("certificate", "its certificate is not trusted"),
    ("ssl", "it speaks no TLS"),
    ("name or service", "its name is unknown"),
    ("name resolution", "its name is unknown"),
    ("refused", "nobody listens there"),
    ("", "it cannot be reached"),
)


class NoResponse(Exception):
    """The server did not respond. The message says why, without the address."""


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """Return the JSON object of the body; empty when it is none: a portal's page, another server."""
        try:
            body = json.loads(self.body)
        except ValueError:
            return {}
        return body if isinstance(body, dict) else {}

    @property
    def code(self) -> str:
        return str(self.json.get("code", ""))

    @property
    def timestamp(self) -> float | None:
        try:
            return parsedate_to_datetime(self.headers["date"]).timestamp()
        except (KeyError, ValueError, TypeError):
            return None


def send_request(
    method: str, url: str, *, headers: Mapping[str, str] | None = None, body: bytes = b"", timeout: float | None = None
) -> Response:
    timeout = TIMEOUT if timeout is None else timeout
    try:
        with (
            httpx.Client(timeout=timeout, trust_env=False, follow_redirects=False) as client,
            client.stream(method, url, headers=dict(headers or {}), content=body or None) as response,
        ):
            content = b""
            for piece in response.iter_raw():
                content += piece
                if len(content) > MAX_BYTES:
                    break
            return Response(response.status_code, response.headers, content)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        raise NoResponse("the address is none") from None
    except httpx.TimeoutException:
        raise NoResponse(f"no answer within {timeout:g} s") from None
    except httpx.ConnectError as error:
        message = str(error).lower()
        raise NoResponse(next(reason for sign, reason in CONNECT_ERRORS if sign in message)) from None
    except httpx.HTTPError as error:
        raise NoResponse(f"the connection broke ({type(error).__name__})") from None
