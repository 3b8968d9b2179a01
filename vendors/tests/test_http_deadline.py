"""Deadline of a whole HTTP call, with openai's client library and with everybody else's."""

import gc
import gzip
import time
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import httpcore
import httpcore2
import httpx
import httpx2
import pytest

from testing.fakes.faults import Fault, hang, slow_body, slow_head
from testing.fakes.http_messages import Request, Response, json_response
from testing.fakes.server import Server
from vendors import call_failures, http_deadline

SECONDS = 0.5
LIBRARIES = [(httpx, httpcore), (httpx2, httpcore2)]


class Vendor(Server):
    """Answers 600 bytes."""

    def respond(self, request: Request) -> Response:
        return json_response({"text": "x" * 600})


SLOW = [hang(), slow_body(0.05), slow_head(0.1)]


@pytest.fixture
def vendor() -> Iterator[Vendor]:
    with Vendor() as server:
        yield server


@pytest.fixture(params=LIBRARIES, ids=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> tuple[ModuleType, ModuleType]:
    modules: tuple[ModuleType, ModuleType] = request.param
    return modules


@pytest.fixture
def client(library: tuple[ModuleType, ModuleType]) -> Iterator[Any]:
    with library[0].Client(transport=http_deadline.deadline_transport(*library, SECONDS), timeout=10.0) as client:
        yield client


def test_responses_in_time_are_returned(client: Any, vendor: Vendor) -> None:
    answers = [client.get(vendor.url).json() for _ in range(3)]

    assert answers == [{"text": "x" * 600}] * 3


def test_each_call_has_its_own_deadline(client: Any, vendor: Vendor) -> None:
    for _ in range(3):
        assert client.get(vendor.url).status_code == 200
        time.sleep(SECONDS / 2)


@pytest.mark.parametrize("kind", SLOW, ids=lambda kind: kind.name)
def test_a_slow_response_ends_at_the_deadline_as_unreachable(kind: Fault, client: Any, vendor: Vendor) -> None:
    client.get(vendor.url)
    vendor.inject_fault("*", kind)

    began = time.monotonic()
    with pytest.raises(Exception, match=r"in time|timed out") as failed:
        client.get(vendor.url)

    assert time.monotonic() - began < SECONDS + 5
    assert call_failures.failure_code(failed.value) == "VENDOR_UNREACHABLE"
    assert client.get(vendor.url).status_code == 200, "the connection is not used again"


def test_a_streamed_response_ends_at_the_deadline_too(client: Any, vendor: Vendor) -> None:
    vendor.inject_fault("*", slow_body(0.05))

    began = time.monotonic()
    with pytest.raises(Exception, match=r"in time|timed out"), client.stream("GET", vendor.url) as response:
        response.read()

    assert time.monotonic() - began < SECONDS + 5


def test_a_shorter_timeout_of_the_client_counts(library: tuple[ModuleType, ModuleType]) -> None:
    with (
        library[0].Client(transport=http_deadline.deadline_transport(*library, 30.0), timeout=0.2) as client,
        Vendor() as vendor,
    ):
        vendor.inject_fault("*", hang())

        began = time.monotonic()
        with pytest.raises(Exception, match="timed out"):
            client.get(vendor.url)

    assert time.monotonic() - began < 10


class Flood(Server):
    """Sends two megabytes, which fit into two kilobytes."""

    def respond(self, request: Request) -> Response:
        body, wants_gzip = b"0" * (2 << 20), request.path == "/gzip"
        packed = gzip.compress(body) if wants_gzip else body
        return Response(200, packed, {"Content-Encoding": "gzip"} if wants_gzip else {})


@pytest.mark.parametrize("path", ["/plain", "/gzip"])
def test_a_response_without_end_is_invalid_however_it_is_packed(
    path: str, library: tuple[ModuleType, ModuleType]
) -> None:
    transport = http_deadline.deadline_transport(*library, 30.0, most=1 << 20)

    with Flood() as flood, library[0].Client(transport=transport) as client:
        with pytest.raises(library[0].DecodingError) as refused:
            client.get(f"{flood.url}{path}")

        with client.stream("GET", f"{flood.url}{path}") as unread:
            assert unread.status_code == 200, "whoever reads no body is not concerned"
    assert call_failures.failure_code(refused.value) == "VENDOR_ANSWER_INVALID"
    assert call_failures.may_have_charged(refused.value)


@pytest.mark.slow
def test_an_unreferenced_client_closes_its_sockets(library: tuple[ModuleType, ModuleType], vendor: Vendor) -> None:
    client = library[0].Client(transport=http_deadline.deadline_transport(*library, SECONDS))
    client.get(vendor.url)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del client
        gc.collect()

    assert [each for each in caught if each.category is ResourceWarning] == []
