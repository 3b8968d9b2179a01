"""Tests of fault injection in the fakes."""

import socket
from collections import deque
from collections.abc import Iterator
from contextlib import suppress

import openai
import pytest
import requests

from testing.fakes.faults import FAULTS, HARMLESS, STATUSES, delayed, faults_for, http_error
from testing.fakes.openai import MODEL, OpenAIServer
from testing.fakes.s3 import S3Server
from testing.tests.vendor_clients import PDF, SHORT, embedder


@pytest.fixture
def seller() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


def test_faults_are_injected_in_order_at_their_route_only(seller: OpenAIServer) -> None:
    seller.inject_fault("GET *", "status-404")
    seller.inject_fault("POST /v1/embeddings", http_error(503, retry_after="7"), times=2)
    seller.inject_fault("POST *", delayed(0.05))
    seen = []

    with embedder(seller) as client:
        for _ in range(4):
            with suppress(openai.InternalServerError):
                client.embeddings.create(input="a", model=MODEL)
                seen.append("answer")
                continue
            seen.append("503")

    assert seen == ["503", "503", "answer", "answer"]
    assert seller.requests == 4


@pytest.mark.parametrize("name", ["reset", "reset-after-sale", "reset-mid-body"])
def test_a_reset_is_no_orderly_close(seller: OpenAIServer, name: str) -> None:
    seller.inject_fault("GET /anything", name)

    with socket.create_connection(("127.0.0.1", seller.port), 5) as client:
        client.sendall(b"GET /anything HTTP/1.1\r\nHost: vendor\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            deque(iter(lambda: client.recv(65536), b""))


def test_a_refusing_server_returns_to_its_port_when_faults_are_cleared(seller: OpenAIServer) -> None:
    port = seller.port
    seller.inject_fault("*", "refused")

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)
    seller.clear_faults()
    with socket.create_connection(("127.0.0.1", port), 5):
        assert seller.port == port


def test_there_are_more_than_25_faults_with_every_status() -> None:
    assert len(FAULTS) > 25
    assert {f"status-{status}" for status in STATUSES} <= set(FAULTS)
    assert set(FAULTS) >= HARMLESS


@pytest.fixture(scope="module")
def store() -> Iterator[S3Server]:
    with S3Server() as server:
        client = server.client()
        client.put_object(Bucket="raw", Key="user/plan.pdf", Body=PDF)
        client.close()
        yield server


@pytest.mark.parametrize("name", faults_for("s3"))
def test_boto3_sees_each_fault(store: S3Server, name: str) -> None:
    client = store.client()
    client.meta.config.read_timeout = SHORT
    store.inject_fault("GET /raw/*", name)

    with requests.Session() as impatient:
        link = client.generate_presigned_url("get_object", Params={"Bucket": "raw", "Key": "user/plan.pdf"})
        try:
            answer = impatient.get(link, timeout=SHORT)
            seen = (answer.status_code, answer.content)
        except requests.RequestException:
            seen = (0, b"")
        if name == "refused":
            store.clear_faults()

        assert seen != (200, PDF)
        assert impatient.get(link, timeout=5).content == PDF, "it lasted longer than one call"
    client.close()


def test_a_second_store_begins_empty_and_a_strict_one_checks_the_length() -> None:
    with S3Server(strict=True) as store:
        client = store.client()
        params = {"Bucket": "raw", "Key": "plan.pdf", "ContentType": "application/pdf", "ContentLength": len(PDF)}
        link = client.generate_presigned_url("put_object", Params=params)
        headers = {"Content-Type": "application/pdf"}

        assert requests.put(link, PDF + b"more", headers=headers, timeout=5).status_code == 403
        assert requests.put(link, PDF, headers=headers, timeout=5).status_code == 200
        assert store.ledger.counts == {"PUT /raw/plan.pdf": 1}
        client.close()
