"""Response serializer of ``GET /cutover``."""

from rest_framework import serializers

from legacy.models import LegacyTenant


class CutoverResponse(serializers.Serializer[object]):
    system = serializers.ChoiceField(
        choices=LegacyTenant.System.values,
        help_text="whom to ask: the old system, both and merge the answers, or this one",
    )
