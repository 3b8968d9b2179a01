"""Requests and responses of the API of tokens."""

from rest_framework import serializers

from accounts.api_tokens import MAX_TOKEN_DAYS, NAME_CHARS, TENANT_SCOPES
from accounts.models import ApiToken
from accounts.strict_fields import StrictCharField, StrictIntegerField

TENANT_SCOPE_CHOICES = [scope for scope in ApiToken.Scope if scope in TENANT_SCOPES]


class ScopeField(StrictCharField):
    """A scope that tenants can give."""

    default_error_messages = {"unknown": f"The scopes are {', '.join(TENANT_SCOPE_CHOICES)}."}

    def to_internal_value(self, data: object) -> str:
        scope = super().to_internal_value(data)
        if scope not in TENANT_SCOPE_CHOICES:
            self.fail("unknown")
        return scope


class TokenRequest(serializers.Serializer[object]):
    name = StrictCharField(max_length=NAME_CHARS, help_text="what it is for, such as the program that holds it")
    scopes = serializers.ListField(child=ScopeField(), allow_empty=False, max_length=20, help_text="what it may do")
    days = StrictIntegerField(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=MAX_TOKEN_DAYS,
        help_text="until it expires; without: until it is revoked. Never longer than the token that makes it",
    )


class TokenResponse(serializers.ModelSerializer[ApiToken]):
    scopes = serializers.ListField(child=serializers.ChoiceField(ApiToken.Scope.values))
    last_used_at = serializers.DateTimeField(allow_null=True, read_only=True, help_text="to the hour")

    class Meta:
        model = ApiToken
        fields = ("token_id", "name", "scopes", "created_at", "last_used_at", "expires_at")
        read_only_fields = fields


class NewTokenResponse(TokenResponse):
    token = serializers.CharField(read_only=True, help_text="shown this once")

    class Meta:
        model = ApiToken
        fields = (*TokenResponse.Meta.fields, "token")
        read_only_fields = fields
