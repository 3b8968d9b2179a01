"""View of ``POST /search``."""

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts import rate_limit
from accounts.authentication import caller_id
from accounts.error_codes import raises
from accounts.rate_limit import SEARCH_LIMIT_REACHED
from embeddings.error_codes import (
    EMPTY_QUERY,
    INVALID_FILTER,
    K_OUT_OF_RANGE,
    MODEL_UNAVAILABLE,
    QUERY_TOO_LONG,
    SEARCH_UNAVAILABLE,
    TEXT_REFUSED,
    UNKNOWN_FILTER,
    UNKNOWN_MODE,
)
from integrations.error_codes import UNKNOWN_SOURCE
from search import services
from search.serializers import SearchRequest, SearchResponse
from vendors.error_codes import BUDGET_SPENT


class SearchView(APIView):
    @extend_schema(
        operation_id="search",
        request=SearchRequest,
        responses=SearchResponse,
        extensions=raises(
            EMPTY_QUERY,
            QUERY_TOO_LONG,
            K_OUT_OF_RANGE,
            UNKNOWN_MODE,
            UNKNOWN_FILTER,
            INVALID_FILTER,
            UNKNOWN_SOURCE,
            TEXT_REFUSED,
            SEARCH_LIMIT_REACHED,
            BUDGET_SPENT,
            SEARCH_UNAVAILABLE,
            MODEL_UNAVAILABLE,
        ),
    )
    def post(self, request: Request) -> Response:
        """Find what answers a question: passages of the caller's documents, records of connected systems, laws."""
        query = SearchRequest(data=request.data)
        query.is_valid(raise_exception=True)
        rate_limit.check_rate(rate_limit.SEARCHES, caller_id(request))
        return Response(SearchResponse(services.search(user_id=caller_id(request), **query.validated_data)).data)
