"""API requests and responses of webhook endpoints and their deliveries."""

from typing import Any

from rest_framework import serializers

from accounts.strict_fields import StrictBooleanField, StrictCharField
from outbox.models import EVENTS, Message, WebhookEndpoint
from outbox.webhooks.public_addresses import MAX_URL_CHARS


class EventsField(serializers.ListField):
    child = serializers.ChoiceField(choices=EVENTS)

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"min_length": 1, **options})

    def to_internal_value(self, data: Any) -> list[str]:
        return list(dict.fromkeys(super().to_internal_value(data)))


class WebhookEndpointRequest(serializers.Serializer[object]):
    url = StrictCharField(max_length=MAX_URL_CHARS, trim_whitespace=False)
    events = EventsField(default=list(EVENTS))


class WebhookEndpointChanges(serializers.Serializer[object]):
    url = StrictCharField(max_length=MAX_URL_CHARS, trim_whitespace=False, required=False)
    events = EventsField(required=False)
    enabled = StrictBooleanField(required=False)


class WebhookEndpointResponse(serializers.ModelSerializer[WebhookEndpoint]):
    events = serializers.ListField(child=serializers.ChoiceField(choices=EVENTS))

    class Meta:
        model = WebhookEndpoint
        fields: tuple[str, ...] = (
            "id", "url", "events", "enabled", "disabled_code", "failing_since", "previous_secret_until", "created_at",
            "updated_at",
        )  # fmt: skip
        read_only_fields = fields
        extra_kwargs = {"disabled_code": {"help_text": "why we disabled it; null: it is enabled, or you did"}}


class WebhookSecretResponse(WebhookEndpointResponse):
    secret = serializers.CharField(source="plain_secret", help_text="shown this once")

    class Meta(WebhookEndpointResponse.Meta):
        fields = (*WebhookEndpointResponse.Meta.fields, "secret")
        read_only_fields = fields


class DeliveryAttemptResponse(serializers.Serializer[object]):
    attempt = serializers.IntegerField()
    at = serializers.DateTimeField()
    status = serializers.IntegerField(allow_null=True, help_text="of HTTP; null: no answer")
    code = serializers.CharField(allow_null=True, help_text="null: received")
    duration_ms = serializers.IntegerField(source="ms")


class DeliveryResponse(serializers.ModelSerializer[Message]):
    type = serializers.ChoiceField(choices=EVENTS, source="payload.type", help_text="the event")
    state = serializers.ChoiceField(choices=Message.State.values)
    next_attempt_at = serializers.SerializerMethodField()
    log = DeliveryAttemptResponse(many=True, help_text="the last 20 attempts")

    class Meta:
        model = Message
        fields = (
            "id", "type", "payload", "state", "attempts", "last_error", "next_attempt_at", "created_at", "finished_at",
            "log",
        )  # fmt: skip
        read_only_fields = fields
        extra_kwargs = {"id": {"help_text": "the `webhook-id` of every attempt"}}

    def get_next_attempt_at(self, message: Message) -> Any:
        return message.due_at if message.state == Message.State.QUEUED else None
