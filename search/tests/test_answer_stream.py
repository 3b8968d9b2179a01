"""Streamed answers: their events, bounds, failures, and clients that go."""

import json
import socket
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.core.signals import request_finished
from django.db import OperationalError, close_old_connections

from search.answers import concurrency_limit, event_stream
from search.answers.client_connection import ClientConnection
from search.answers.concurrency_limit import AnswerSlot
from search.answers.services import retrieve
from search.tests.test_answers import BOOKLET, ask, refusal
from search.tests.test_generative_answers import QUESTION, booklet, openai
from testing.fakes.openai import OpenAIServer
from testing.personas import Person
from vendors.models import Purchase

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("booklet")]
__all__ = ["booklet", "openai"]  # fixtures


@pytest.fixture(autouse=True)
def _one_connection() -> Iterator[None]:
    """Keep the test's transaction: closing a stream ends the request, and with it the connection."""
    request_finished.disconnect(close_old_connections)
    yield
    request_finished.connect(close_old_connections)
    assert not concurrency_limit._taken


def read_events(person: Person, **options: Any) -> list[tuple[str, dict[str, Any]]]:
    response = person.post("/answer", {"question": QUESTION, "stream": True}, **options)
    assert (response.status_code, response["Content-Type"]) == (200, "text/event-stream"), response.content
    return list(map(parse_event, response.streaming_content))  # the client closes it at its end


def parse_event(event: bytes) -> tuple[str, dict[str, Any]]:
    head, body = event.decode().removesuffix("\n\n").split("\n")
    return head.removeprefix("event: "), json.loads(body.removeprefix("data: "))


def open_events(user_id: UUID, environment: dict[str, Any]) -> event_stream.AnswerEvents:
    retrieval = retrieve(user_id=user_id, question=QUESTION)
    return event_stream.AnswerEvents(retrieval, AnswerSlot(user_id), ClientConnection(environment))


def test_a_stream_has_the_sentences_and_then_the_whole_answer(ana: Person) -> None:
    events = read_events(ana)

    whole = ask(ana, QUESTION)
    assert [name for name, _ in events] == ["searched", *["sentence"] * len(whole["sentences"]), "done"]
    assert events[0][1] == whole["searched"]
    assert [body for name, body in events if name == "sentence"] == whole["sentences"]
    assert events[-1][1] == whole


def test_a_models_sentences_are_streamed_once_they_are_checked(ana: Person, openai: OpenAIServer) -> None:
    openai.responses.mode = "invents figures"

    events = read_events(ana)

    done = events[-1][1]
    assert (done["answerer"], done["dropped_sentences"] > 0) == ("openai", True)
    assert [body for name, body in events if name == "sentence"] == done["sentences"]


def test_a_model_that_breaks_off_leaves_the_quotations_as_the_answer(ana: Person, openai: OpenAIServer) -> None:
    openai.responses.mode = "half"

    events = read_events(ana)

    done = events[-1][1]
    assert (events[-1][0], done["answerer"], done["fallback"]) == ("done", "extractive", "VENDOR_ANSWER_INVALID")
    assert [body for _, body in events[1:-1]][-len(done["sentences"]) :] == done["sentences"]


def test_a_client_that_goes_before_the_purchase_stops_it(ana: Person, openai: OpenAIServer) -> None:
    ours, theirs = socket.socketpair()
    events = open_events(ana.id, {"gunicorn.socket": ours})

    assert next(events).startswith(b"event: searched")
    theirs.close()

    assert (list(events), openai.requests) == ([], 0)
    events.close()
    ours.close()


def test_a_purchase_that_has_begun_is_settled_though_the_client_goes(ana: Person, openai: OpenAIServer) -> None:
    events = open_events(ana.id, {})

    assert [next(events).partition(b"\n")[0] for _ in range(2)] == [b"event: searched", b"event: sentence"]
    events.close()

    purchase = Purchase.objects.get()
    assert (purchase.state, purchase.quantity) == ("settled", openai.ledger.totals["tokens"])


def test_a_stream_that_nobody_reads_releases_its_slot(ana: Person) -> None:
    ana.post("/answer", {"question": QUESTION, "stream": True}).close()

    assert not concurrency_limit._taken


def test_streams_are_bounded_for_a_tenant_and_for_all(ana: Person, ben: Person, settings: Any) -> None:
    settings.ANSWERS_AT_ONCE, settings.ANSWERS_AT_ONCE_PER_TENANT = 2, 1

    with AnswerSlot(ben.id):
        assert read_events(ana)[-1][0] == "done"
        with AnswerSlot(ana.id):
            assert refusal(ana, question=QUESTION, stream=True)[:2] == (429, "TOO_MANY_ANSWERS")
            assert ask(ana, QUESTION)["answered"]  # without a stream


def test_errors_before_the_stream_have_their_status(ana: Person) -> None:
    accepting = {"headers": {"accept": "text/event-stream"}}

    response = ana.post("/answer", {"question": "how many?", "stream": True}, **accepting)

    assert (response.status_code, response["Content-Type"]) == (400, "application/json")
    assert response.json()["code"] == "NO_WORDS"
    assert read_events(ana, **accepting)[-1][0] == "done"
    assert ana.post("/answer", {"question": QUESTION, "stream": "yes"}).status_code == 400
    assert ana.post("/search", {"query": QUESTION}, **accepting).status_code == 406


@pytest.mark.parametrize(
    ("error", "code"), [(OperationalError("row: secret"), "UNAVAILABLE"), (ValueError("secret"), "INTERNAL")]
)
def test_a_stream_that_cannot_be_finished_ends_with_an_error(
    error: Exception, code: str, ana: Person, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("search.answers.services.extract_answer", fail)

    name, body = read_events(ana)[-1]

    assert (name, body["code"]) == ("error", code)
    assert "secret" not in caplog.text


def test_a_connection_with_a_timeout_is_looked_at_without_waiting() -> None:
    ours, theirs = socket.socketpair()
    ours.settimeout(60)  # as gunicorn's
    connection = ClientConnection({"gunicorn.socket": ours})

    began = time.monotonic()
    silent = connection.is_open()
    theirs.send(b"next request")
    sending = connection.is_open()
    ours.recv(100)
    theirs.close()
    gone = connection.is_open()
    ours.close()

    assert (silent, sending, gone, connection.is_open()) == (True, True, False, False)
    assert time.monotonic() - began < 30


def test_an_answer_fits_the_send_buffer_of_a_client_that_does_not_read(ana: Person) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    reader.connect(server.getsockname())
    ours, _ = server.accept()
    ClientConnection({"gunicorn.socket": ours}).fit_send_buffer()
    ours.setblocking(False)

    sent = ours.send(b"x" * 150_000)

    assert sent == 150_000 > 10 * len(json.dumps(ask(ana, QUESTION))) > len(BOOKLET)
    for each in (ours, reader, server):
        each.close()
