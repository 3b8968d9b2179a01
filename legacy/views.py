"""View and response of ``GET /cutover``."""

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.authentication import caller_id
from accounts.rls import as_tenant
from legacy import cutover
from legacy.models import LegacyTenant


class CutoverResponse(serializers.Serializer[object]):
    system = serializers.ChoiceField(
        choices=LegacyTenant.System.values,
        help_text="whom to ask: the old system, both and merge the answers, or this one",
    )


class CutoverView(APIView):
    @extend_schema(operation_id="cutover", responses=CutoverResponse)
    def get(self, request: Request) -> Response:
        """Tell a frontend whether the caller's documents are in the system that this one replaces, in both, or here."""
        with as_tenant(caller_id(request)):
            system = cutover.system_of(caller_id(request))
        return Response(CutoverResponse({"system": system}).data)
