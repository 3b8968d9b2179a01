"""Closed-loop HTTP clients: each sends its next request when the last one has been answered."""

import http.client
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Call:
    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class UnexpectedStatus(Exception):
    """A call was not answered with 200."""


def send_calls(port: int, calls: Sequence[Call], *, clients: int) -> list[float]:
    """Send all calls, in order, from ``clients`` connections that are kept; return the milliseconds of each call."""
    left = iter(calls)  # shared: a list's iterator gives each call to one thread
    with ThreadPoolExecutor(clients) as pool:
        times = pool.map(lambda _: list(_send_each(port, left)), range(clients))
        return [milliseconds for each in times for milliseconds in each]


def _send_each(port: int, calls: Iterator[Call]) -> Iterator[float]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for call in calls:
        began = time.perf_counter()
        connection.request(call.method, call.path, call.body, dict(call.headers))
        response = connection.getresponse()
        body = response.read()
        if response.status != http.HTTPStatus.OK:
            raise UnexpectedStatus(f"{call.method} {call.path}: {response.status} {body[:200]!r}")
        yield (time.perf_counter() - began) * 1000
    connection.close()
