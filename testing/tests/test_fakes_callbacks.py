"""Tests of the fake LlamaParse's callbacks."""

import hashlib
import json
import time
from collections.abc import Iterator

import pytest
from standardwebhooks import Webhook

from testing.fakes.callback_receiver import CallbackReceiver
from testing.fakes.llamaparse import LlamaParseServer
from testing.fakes.llamaparse_callbacks import lc_signature
from testing.tests.vendor_clients import SECRET, cloud, submit, upload, wait_until, webhook

SIGNED = (
    b'{"event_id":"149744dd-9002-4411-a6c7-9635da372caa","event_type":"parse.success","timestamp":1753985275.1154444,'
    b'"data":{"id":"a9a57884-921e-4ec2-b555-f4e5a97ec02a","job_id":"a9a57884-921e-4ec2-b555-f4e5a97ec02a"}}'
)


@pytest.fixture
def parser() -> Iterator[LlamaParseServer]:
    with LlamaParseServer(backoff_factor=0.02) as server:
        yield server


@pytest.fixture
def mailbox() -> Iterator[CallbackReceiver]:
    with CallbackReceiver() as server:
        yield server


def test_the_signature_is_the_vendors_own() -> None:
    expected = "sha256=3610c41bba7f01995803e24d097ed46c0a086c91ff88b9ac2a07d4da91fba953"

    assert lc_signature("test-secret", SIGNED) == expected


@pytest.mark.parametrize("form", ["json", "string"])
def test_a_callback_is_signed_over_its_raw_body(parser: LlamaParseServer, mailbox: CallbackReceiver, form: str) -> None:
    events = {"webhook_events": ["parse.success"], "webhook_headers": {"X-Ours": "1"}}
    options = events if form == "string" else {**events, "webhook_output_format": form}
    with cloud(parser) as client:
        job_id = submit(client, upload(client), webhook_configurations=webhook(mailbox, **options))
        (letter,) = wait_until(lambda: mailbox.letters)

    body = json.loads(letter.body) if form == "json" else json.loads(json.loads(letter.body))
    assert body["data"] == {"id": job_id, "job_id": job_id}
    assert body["event_type"] == letter.headers["X-Webhook-Event-Type"] == "parse.success"
    assert body["event_id"] == letter.headers["X-Webhook-Event-ID"]
    assert letter.headers["LC-Signature"] == lc_signature(SECRET, letter.body)
    assert letter.headers["X-Ours"] == "1"


def test_a_callback_by_the_contract_brings_the_content_in_the_standard_scheme(
    parser: LlamaParseServer, mailbox: CallbackReceiver
) -> None:
    parser.contract = "002"
    with cloud(parser) as client:
        submit(client, upload(client), webhook_configurations=webhook(mailbox))
        (letter,) = wait_until(lambda: mailbox.letters)

    body = Webhook(SECRET).verify(letter.body, dict(letter.headers.items()))
    (artifact,) = body["artifacts"]
    content = "Deductible $500\n---\nCopay $20\n---\nReferral"
    assert (body["job_id"], body["document_id"], body["status"]) == ("j1", "d1", "parsed")
    assert artifact["content"] == content
    assert artifact["sha256"] == hashlib.sha256(content.encode()).hexdigest()
    assert artifact["bytes"] == len(content.encode())


def test_a_callback_is_tried_three_times_then_dropped(parser: LlamaParseServer) -> None:
    with CallbackReceiver(500, 503, 500) as mailbox, cloud(parser) as client:
        submit(client, upload(client), webhook_configurations=webhook(mailbox, webhook_events=["parse.success"]))
        wait_until(lambda: len(parser.postman.deliveries) == 3)
        time.sleep(0.2)

    assert [delivery.status for delivery in parser.postman.deliveries] == [500, 503, 500]
    assert len({letter.body for letter in mailbox.letters}) == 1


def test_callbacks_are_lost_and_doubled_by_the_seed(mailbox: CallbackReceiver) -> None:
    with LlamaParseServer(p_lost=0.2, p_doubled=0.1, seed=7) as parser, cloud(parser) as client:
        file_id, to = upload(client), webhook(mailbox, webhook_events=["parse.success"])
        for number in range(60):
            submit(client, file_id, f"p{number}", webhook_configurations=to)
        wait_until(lambda: len({letter.job_id for letter in parser.postman.lost}) + _reached(mailbox) == 60)
        lost, doubled = len(parser.postman.lost), len(parser.postman.doubled)
        wait_until(lambda: len(mailbox.letters) == 60 - lost + doubled)

    assert 4 <= lost <= 20
    assert 1 <= doubled <= 14
    assert parser.ledger.sold == 60


def _reached(mailbox: CallbackReceiver) -> int:
    return len({json.loads(json.loads(letter.body))["data"]["id"] for letter in list(mailbox.letters)})
