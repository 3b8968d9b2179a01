"""Serializers of a tenant's spending and purchases."""

from rest_framework import serializers

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
