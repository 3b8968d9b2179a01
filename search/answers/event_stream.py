"""Server-sent events of an answer: ``searched``, ``sentence``, ``done`` with the whole answer, ``error``."""

import contextvars
import json
import logging
from collections.abc import Generator
from typing import Self

from django.db.utils import InterfaceError, OperationalError
from django.http import StreamingHttpResponse
from rest_framework.utils.encoders import JSONEncoder

from accounts.common_error_codes import INTERNAL, unavailable
from accounts.errors import ApiError
from jobs import telemetry
from jobs.safe_errors import safe_traceback
from search.answers.client_connection import ClientConnection
from search.answers.concurrency_limit import AnswerSlot
from search.answers.openai import ClientGone
from search.answers.serializers import AnswerResponse, AnswerSentenceResponse, SearchedResponse
from search.answers.services import Answer, Retrieval, write_answer

log = logging.getLogger("accessa.api")

CONTENT_TYPE = "text/event-stream"


def stream_answer(retrieval: Retrieval, slot: AnswerSlot, connection: ClientConnection) -> StreamingHttpResponse:
    """Return the answer as events. The slot is released when the response is closed."""
    connection.fit_send_buffer()
    # A buffering proxy would hold the events back.
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingHttpResponse(AnswerEvents(retrieval, slot, connection), content_type=CONTENT_TYPE, headers=headers)


class AnswerEvents:
    """Iterator of an answer's events. ``close`` releases the slot, also where nothing was read."""

    def __init__(self, retrieval: Retrieval, slot: AnswerSlot, connection: ClientConnection) -> None:
        self._slot = slot
        self._events = _render_events(retrieval, connection)
        self._context = contextvars.copy_context()  # log lines keep the request's id

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        return self._context.run(next, self._events)

    def close(self) -> None:
        try:
            self._context.run(self._events.close)
        finally:
            self._slot.release()


def _render_events(retrieval: Retrieval, connection: ClientConnection) -> Generator[bytes, None, None]:
    try:
        yield _render("searched", SearchedResponse(retrieval.searched).data)
        for part in write_answer(retrieval, is_connected=connection.is_open):
            if isinstance(part, Answer):
                yield _render("done", AnswerResponse(part).data)
            else:
                yield _render("sentence", AnswerSentenceResponse(part).data)
    except ClientGone:
        return
    except Exception as error:  # the status has been sent: the last event tells
        yield _render("error", _api_error(error).body)


def _api_error(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, (OperationalError, InterfaceError)):
        return unavailable()
    log.error("Unforeseen: %s", safe_traceback(error), extra={"reported": True})
    telemetry.report_error(error)
    return ApiError(INTERNAL)


def _render(name: str, body: object) -> bytes:
    """https://html.spec.whatwg.org/multipage/server-sent-events.html"""
    return f"event: {name}\ndata: {json.dumps(body, cls=JSONEncoder, ensure_ascii=False)}\n\n".encode()
