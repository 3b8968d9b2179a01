"""API of a tenant's spending and purchases."""

from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.authentication import caller_id
from accounts.pagination import NewestFirstPagination
from vendors import ledger
from vendors.models import Purchase


class SpendingResponse(serializers.Serializer[object]):
    cents = serializers.FloatField(help_text="settled and unsettled together")
    settled_cents = serializers.FloatField()
    unsettled_cents = serializers.FloatField(help_text="of calls whose outcome is not known; counted as spent")


class PurchaseSumResponse(serializers.Serializer[object]):
    vendor = serializers.CharField()
    unit = serializers.CharField(help_text="pages or tokens")
    quantity = serializers.IntegerField(source="amount")
    calls = serializers.IntegerField()
    settled_cents = serializers.FloatField()
    unsettled_cents = serializers.FloatField()


class UsageResponse(serializers.Serializer[object]):
    today = SpendingResponse()
    month = SpendingResponse()
    budget_cents_per_day = serializers.FloatField(allow_null=True, help_text="null: no limit")
    left_today_cents = serializers.FloatField(allow_null=True)
    bought_this_month = PurchaseSumResponse(many=True)


class PurchaseResponse(serializers.ModelSerializer[Purchase]):
    cents = serializers.FloatField()

    class Meta:
        model = Purchase
        fields = ("stage", "vendor", "model", "unit", "quantity", "cents", "state", "created_at")
        read_only_fields = fields


class UsageView(APIView):
    @extend_schema(operation_id="usage", responses=UsageResponse)
    def get(self, request: Request) -> Response:
        """Show what the caller has spent today and this month (UTC), and what is left of today's budget."""
        return Response(UsageResponse(ledger.read_usage(caller_id(request))).data)


class PurchasesView(APIView):
    pagination_class = NewestFirstPagination

    @extend_schema(operation_id="document_purchases", responses=PurchaseResponse(many=True))
    def get(self, request: Request, document_id: UUID) -> Response:
        """Show the purchases for a document of the caller's, the newest first; they outlive the document.

        A document that does not exist and one of another tenant have the same empty list.
        """
        purchases = ledger.tenant_purchases(caller_id(request)).filter(document_id=document_id)
        return NewestFirstPagination.tenant_page(purchases, PurchaseResponse, view=self)
