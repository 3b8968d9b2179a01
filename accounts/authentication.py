"""Authentication of the API by bearer token: Supabase JWT or API token, and services that act for a tenant."""

from dataclasses import dataclass
from uuid import UUID

import jwt
from django.db import connection
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request

from accounts import api_tokens, prepared_statements, supabase_jwt
from accounts.audit import log
from accounts.error_codes import FORBIDDEN, UNKNOWN_TENANT
from accounts.errors import ApiError
from accounts.models import ApiToken, User
from accounts.system_tenant import SYSTEM_TENANT_ID

NO_TENANT_ID = UUID(int=0)  # of the service, which owns no rows
TENANT_HEADER = "X-Accessa-User"
FIND_INACTIVE = "SELECT id FROM users WHERE id = %(user_id)s AND NOT is_active"
# A tenant who signs in at Supabase has no row in `users` and is known by documents.
IS_TENANT = """
    SELECT coalesce((SELECT is_active FROM users WHERE id = %(user_id)s),
                    EXISTS (SELECT FROM documents WHERE user_id = %(user_id)s))"""


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
        authenticated = self._authenticate_bearer(request)
        tenant = request.headers.get(TENANT_HEADER)
        if tenant is None:
            return authenticated
        if authenticated is None or not authenticated[0].service:
            raise ApiError(FORBIDDEN, f"Only a service may send {TENANT_HEADER}.")
        return act_for_tenant(authenticated[0], tenant, request), authenticated[1]

    def _authenticate_bearer(self, request: Request) -> tuple[Caller, object] | None:
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
        return Caller(token.user_id, service=is_service, staff=token.is_staff), plain[:8]

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
    if user_id == SYSTEM_TENANT_ID or prepared_statements.execute(FIND_INACTIVE, {"user_id": user_id}):
        raise AuthenticationFailed
    return Caller(user_id)


def act_for_tenant(service: Caller, tenant: str, request: Request) -> Caller:
    """Return the tenant as the caller; the audit log keeps who called what for whom. Raises ``ApiError``.

    A service reads for a tenant and changes nothing: safe methods, and views that declare ``reads_only``.
    """
    view = request.parser_context["view"]
    if request.method not in SAFE_METHODS and not getattr(view, "reads_only", False):
        raise ApiError(FORBIDDEN, "For a tenant, a service may search, read and poll; it may change nothing.")
    try:
        tenant_id = UUID(tenant)
    except ValueError:
        raise ApiError(UNKNOWN_TENANT, field=TENANT_HEADER) from None
    if not _is_tenant(tenant_id) or str(tenant_id) != tenant.lower():
        raise ApiError(UNKNOWN_TENANT, field=TENANT_HEADER)
    call = f"{request.method} /{request.resolver_match.route}"  # type: ignore[union-attr]
    log.record_service_call(by=User.objects.filter(pk=service.pk).first(), tenant_id=tenant_id, call=call)
    return Caller(tenant_id)


def _is_tenant(user_id: UUID) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(IS_TENANT, {"user_id": user_id})
        return bool(cursor.fetchone()[0]) and user_id != SYSTEM_TENANT_ID


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "accounts.authentication.BearerAuthentication"
    name = "bearer"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "A Supabase JWT or an API token (acc_…)."}


def caller_id(request: Request) -> UUID:
    """Return the id of the tenant of a request, authenticated by a bearer token or a session."""
    return UUID(str(request.user.pk))
