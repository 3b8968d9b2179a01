"""API of a tenant's spending and purchases."""

from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.authentication import caller_id
from accounts.pagination import NewestFirstPagination
from accounts.rls import as_tenant
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
        user_id = caller_id(request)
        with as_tenant(user_id):
            purchases = ledger.tenant_purchases(user_id)
            today, month = (
                purchases.filter(created_at__gte=ledger.period_start(period)) for period in ("day", "month")
            )
            usage = {
                "today": _spent(today),
                "month": _spent(month),
                "budget_cents_per_day": ledger.day_budget(user_id),
                "left_today_cents": ledger.remaining_today(user_id),
                "bought_this_month": list(
                    ledger.aggregate_purchases(month.values("vendor", "unit")).order_by("vendor", "unit")
                ),
            }
        return Response(UsageResponse(usage).data)


def _spent(purchases: QuerySet[Purchase]) -> dict[str, Any]:
    rows = list(ledger.aggregate_purchases(purchases.values("user_id")).order_by("user_id"))
    row = rows[0] if rows else {"settled_cents": Decimal(0), "unsettled_cents": Decimal(0)}
    return {**row, "cents": row["settled_cents"] + row["unsettled_cents"]}


class PurchasesView(APIView):
    pagination_class = NewestFirstPagination

    @extend_schema(operation_id="document_purchases", responses=PurchaseResponse(many=True))
    def get(self, request: Request, document_id: UUID) -> Response:
        """Show the purchases for a document of the caller's, the newest first; they outlive the document.

        A document that does not exist and one of another tenant have the same empty list.
        """
        purchases = ledger.tenant_purchases(caller_id(request)).filter(document_id=document_id)
        return NewestFirstPagination.tenant_page(purchases, PurchaseResponse, view=self)
