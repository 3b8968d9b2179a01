"""View of ``POST /answer``."""

from http import HTTPStatus
from typing import Any
from uuid import UUID

from django.http import HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import rate_limit
from accounts.authentication import caller_id
from accounts.errors import raises
from accounts.models import ApiToken
from accounts.rate_limit import SEARCH_LIMIT_REACHED
from embeddings.error_codes import SEARCH_ERRORS
from integrations.error_codes import UNKNOWN_SOURCE
from search.answers import event_stream, services
from search.answers.client_connection import ClientConnection
from search.answers.concurrency_limit import AnswerSlot
from search.answers.openai import ClientGone
from search.answers.serializers import AnswerEventResponse, AnswerRequest, AnswerResponse
from search.error_codes import ANSWER_ERRORS
from vendors.error_codes import BUDGET_SPENT


class EventStreamNegotiation(DefaultContentNegotiation):
    """Accept ``text/event-stream`` beside JSON: what precedes the stream, an error, is JSON."""

    def get_accept_list(self, request: Request) -> list[str]:
        accepted = super().get_accept_list(request)
        return [*accepted, "application/json"] if event_stream.CONTENT_TYPE in accepted else accepted


class AnswerView(APIView):
    required_scope = ApiToken.Scope.SEARCH
    reads_only = True  # a service may ask for a tenant
    content_negotiation_class = EventStreamNegotiation

    @extend_schema(
        operation_id="answer",
        request=AnswerRequest,
        responses={
            (200, JSONRenderer.media_type): AnswerResponse,
            (200, event_stream.CONTENT_TYPE): AnswerEventResponse,
        },
        extensions=raises(*SEARCH_ERRORS, *ANSWER_ERRORS, UNKNOWN_SOURCE, SEARCH_LIMIT_REACHED, BUDGET_SPENT),
    )
    def post(self, request: Request) -> HttpResponseBase:
        """Answer a question in sentences of the caller's documents and of statutes, each with its citation.

        With `stream` the response is `text/event-stream`: `searched`, a `sentence` each, and `done` with the whole
        answer, or `error`.
        """
        body = AnswerRequest(data=request.data)
        body.is_valid(raise_exception=True)
        user_id, connection = caller_id(request), ClientConnection(request.META)
        rate_limit.check_rate(rate_limit.SEARCHES, user_id)
        options = dict(body.validated_data)
        options["history"] = [turn["question"] for turn in options.pop("history", [])]
        if options.pop("stream"):
            return _stream(user_id, connection, options)
        try:
            whole = services.answer(user_id=user_id, is_connected=connection.is_open, **options)
        except ClientGone:
            return Response(status=HTTPStatus.NO_CONTENT)  # which nobody reads
        return Response(AnswerResponse(whole).data)


def _stream(user_id: UUID, connection: ClientConnection, options: dict[str, Any]) -> HttpResponseBase:
    slot = AnswerSlot(user_id)
    try:
        return event_stream.stream_answer(services.retrieve(user_id=user_id, **options), slot, connection)
    except BaseException:
        slot.release()
        raise
