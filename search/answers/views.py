"""View of ``POST /answer``."""

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import rate_limit
from accounts.authentication import caller_id
from accounts.errors import raises
from accounts.rate_limit import SEARCH_LIMIT_REACHED
from embeddings.error_codes import SEARCH_ERRORS
from integrations.error_codes import UNKNOWN_SOURCE
from search.answers import services
from search.answers.serializers import AnswerRequest, AnswerResponse
from search.error_codes import ANSWER_ERRORS
from vendors.error_codes import BUDGET_SPENT


class AnswerView(APIView):
    reads_only = True  # a service may ask for a tenant

    @extend_schema(
        operation_id="answer",
        request=AnswerRequest,
        responses=AnswerResponse,
        extensions=raises(*SEARCH_ERRORS, *ANSWER_ERRORS, UNKNOWN_SOURCE, SEARCH_LIMIT_REACHED, BUDGET_SPENT),
    )
    def post(self, request: Request) -> Response:
        """Answer a question in sentences of the caller's documents and of statutes, each with its citation."""
        asked = AnswerRequest(data=request.data)
        asked.is_valid(raise_exception=True)
        rate_limit.check_rate(rate_limit.SEARCHES, caller_id(request))
        options = dict(asked.validated_data)
        history = [turn["question"] for turn in options.pop("history", [])]
        given = services.answer(user_id=caller_id(request), history=history, **options)
        return Response(AnswerResponse(given).data)
