"""OpenAPI parameters that several apps share. Apart from the services, so that workers load no REST framework."""

from drf_spectacular.utils import OpenApiParameter

from accounts.idempotency_keys import HEADER

IDEMPOTENCY_KEY = OpenApiParameter(
    HEADER,
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    OpenApiParameter.HEADER,
    description="Kept for 24 hours: the same request under the same key takes effect once.",
)
