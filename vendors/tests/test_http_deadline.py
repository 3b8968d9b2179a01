"""Deadline of a whole HTTP call, with openai's client library and with everybody else's."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import httpcore
import httpcore2
import httpx
import httpx2
import pytest

from testing.fakes.faults import Kind, dripping, hang
from testing.fakes.http_messages import Answer, Request, Wire, as_json
from testing.fakes.server import Server
from vendors import errors, http_deadline

SECONDS = 0.5
LIBRARIES = [(httpx, httpcore), (httpx2, httpcore2)]


class Vendor(Server):
    """Answers 600 bytes."""

    def answer(self, request: Request) -> Answer:
        return as_json({"text": "x" * 600})


def _slow_head(wire: Wire, answer: Answer) -> None:
    for byte in answer.head(len(answer.body)):
        if not wire.wait(0.1):
            return wire.end()
        wire.send(bytes([byte]))
    return wire.end()


SLOW = [hang(), dripping(0.05), replace(dripping(0.0), name="head", send=_slow_head)]


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
def test_a_slow_response_ends_at_the_deadline_as_unreachable(kind: Kind, client: Any, vendor: Vendor) -> None:
    client.get(vendor.url)
    vendor.misbehave("*", kind)

    began = time.monotonic()
    with pytest.raises(Exception, match=r"in time|timed out") as failed:
        client.get(vendor.url)

    assert time.monotonic() - began < SECONDS + 1
    assert errors.failure_code(failed.value) == "VENDOR_UNREACHABLE"
    assert client.get(vendor.url).status_code == 200, "the connection is not used again"


def test_a_streamed_response_ends_at_the_deadline_too(client: Any, vendor: Vendor) -> None:
    vendor.misbehave("*", dripping(0.05))

    began = time.monotonic()
    with pytest.raises(Exception, match=r"in time|timed out"), client.stream("GET", vendor.url) as response:
        response.read()

    assert time.monotonic() - began < SECONDS + 1


def test_a_shorter_timeout_of_the_client_counts(library: tuple[ModuleType, ModuleType]) -> None:
    with (
        library[0].Client(transport=http_deadline.deadline_transport(*library, 30.0), timeout=0.2) as client,
        Vendor() as vendor,
    ):
        vendor.misbehave("*", hang())

        began = time.monotonic()
        with pytest.raises(Exception, match="timed out"):
            client.get(vendor.url)

    assert time.monotonic() - began < 2


def test_an_unreferenced_client_closes_its_sockets(library: tuple[ModuleType, ModuleType], vendor: Vendor) -> None:
    client = library[0].Client(transport=http_deadline.deadline_transport(*library, SECONDS))
    client.get(vendor.url)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del client
        gc.collect()

    assert [each for each in caught if each.category is ResourceWarning] == []
