"""Authentication of another deployment at /internal/embed, by a shared secret."""

import hmac

from django.conf import settings
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from accounts.authentication import NO_TENANT_ID, Caller
from accounts.error_codes import not_found


class BrainAuthentication(BaseAuthentication):
    """``Authorization: Bearer <BRAIN_API_SECRET>``, or the secret alone in ``X-Brain-API-Secret``."""

    def authenticate(self, request: Request) -> tuple[Caller, None] | None:
        if not settings.BRAIN_API_SECRET:
            raise not_found()
        if (header := request.headers.get("X-Brain-API-Secret")) is not None:
            secret = header.encode("latin-1", "replace")
        else:
            scheme, _, secret = get_authorization_header(request).partition(b" ")
            if scheme.lower() != b"bearer":
                return None
            secret = secret.strip()
        if not hmac.compare_digest(secret, settings.BRAIN_API_SECRET.encode()):
            raise AuthenticationFailed
        return Caller(NO_TENANT_ID, service=True), None

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="accessa"'


class BrainScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "embeddings.authentication.BrainAuthentication"
    name = "brain"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "BRAIN_API_SECRET; X-Brain-API-Secret does as well."}
