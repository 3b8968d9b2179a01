"""View of ``POST /search``."""

from drf_spectacular.utils import extend_schema
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
from search import services
from search.serializers import SearchRequest, SearchResponse
from vendors.error_codes import BUDGET_SPENT

# Built once: a serializer that is made for each request copies all fields of its nested ones.
RESPONSE = SearchResponse()


class SearchView(APIView):
    required_scope = ApiToken.Scope.SEARCH
    reads_only = True  # a service may search for a tenant

    @extend_schema(
        operation_id="search",
        request=SearchRequest,
        responses=SearchResponse,
        extensions=raises(*SEARCH_ERRORS, UNKNOWN_SOURCE, SEARCH_LIMIT_REACHED, BUDGET_SPENT),
    )
    def post(self, request: Request) -> Response:
        """Find what answers a question: passages of the caller's documents, records of connected systems, statutes."""
        query = SearchRequest(data=request.data)
        query.is_valid(raise_exception=True)
        rate_limit.check_rate(rate_limit.SEARCHES, caller_id(request))
        return Response(RESPONSE.to_representation(services.search(user_id=caller_id(request), **query.validated_data)))
