"""View of ``POST /search``."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import rate_limit
from accounts.permissions import caller_id
from search import services
from search.serializers import SearchAnswer, SearchRequest


class SearchView(APIView):
    @extend_schema(operation_id="search", request=SearchRequest, responses=SearchAnswer)
    def post(self, request: Request) -> Response:
        """Find what answers a question: passages of the caller's documents, records of connected systems, laws."""
        query = SearchRequest(data=request.data)
        query.is_valid(raise_exception=True)
        rate_limit.check_rate(rate_limit.SEARCHES, caller_id(request))
        return Response(SearchAnswer(services.search(user_id=caller_id(request), **query.validated_data)).data)
