"""Authentication of the API by bearer token: Supabase JWT or API token."""

from dataclasses import dataclass
from uuid import UUID

import jwt
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from accounts import api_tokens, supabase_jwt
from accounts.models import ApiToken, User
from accounts.system_tenant import SYSTEM_TENANT_ID

NO_TENANT_ID = UUID(int=0)  # of the service, which owns no rows


@dataclass(frozen=True, slots=True)
class Caller:
    """The tenant of a request. ``service`` marks the agent platform, which may advance jobs."""

    pk: UUID  # the tenant's id
    service: bool = False
    staff: bool = False
    is_authenticated: bool = True
    is_active: bool = True


class BearerAuthentication(BaseAuthentication):
    """Answers every failure with the same 401, so that a probe learns nothing."""

    def authenticate(self, request: Request) -> tuple[Caller, object] | None:
        parts = get_authorization_header(request).split()
        if not parts or parts[0].lower() != b"bearer":
            return None
        if len(parts) != 2:
            raise AuthenticationFailed
        try:
            plain = parts[1].decode("ascii")
        except UnicodeDecodeError as error:
            raise AuthenticationFailed from error
        if not plain.startswith(api_tokens.PREFIX):
            return authenticate_jwt(plain), plain[:8]
        token = api_tokens.find_valid_token(plain)
        if token is None:
            raise AuthenticationFailed
        is_service = token.scope == ApiToken.Scope.SERVICE
        return Caller(token.user_id, service=is_service, staff=token.user.is_staff), plain[:8]

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="accessa"'


def authenticate_jwt(encoded: str) -> Caller:
    try:
        claims = supabase_jwt.decode_jwt(encoded)
        if claims.get("role") == supabase_jwt.SERVICE_ROLE:
            return Caller(NO_TENANT_ID, service=True)
        user_id = UUID(str(claims["sub"]))
    except (jwt.PyJWTError, ValueError, KeyError) as error:
        raise AuthenticationFailed from error
    if user_id == SYSTEM_TENANT_ID or User.objects.filter(pk=user_id, is_active=False).exists():
        raise AuthenticationFailed
    return Caller(user_id)


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "accounts.authentication.BearerAuthentication"
    name = "bearer"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "A Supabase JWT or an API token (acc_…)."}
