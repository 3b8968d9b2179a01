"""View of ``GET /cutover``."""

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.authentication import caller_id
from accounts.rls import as_tenant
from legacy import services
from legacy.serializers import CutoverResponse


class CutoverView(APIView):
    @extend_schema(operation_id="cutover", responses=CutoverResponse)
    def get(self, request: Request) -> Response:
        """Tell a frontend whether the caller's documents are in the system that this one replaces, in both, or here."""
        with as_tenant(caller_id(request)):
            system = services.system_of(caller_id(request))
        return Response(CutoverResponse({"system": system}).data)
