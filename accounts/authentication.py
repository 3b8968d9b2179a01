"""Authentication of the API by bearer token: Supabase JWT or API token, and services that act for a tenant."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
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
from accounts.common_error_codes import FORBIDDEN, INSUFFICIENT_SCOPE, UNKNOWN_TENANT
from accounts.errors import ApiError
from accounts.models import ApiToken, User
from accounts.system_tenant import SYSTEM_TENANT_ID

NO_TENANT_ID = UUID(int=0)  # of the service, which owns no rows
TENANT_HEADER = "X-Accessa-User"
# A deleted account stays closed to tokens of its Supabase user.
FIND_INACTIVE = """
    SELECT FROM users WHERE id = %(user_id)s AND NOT is_active
    UNION ALL SELECT FROM account_deletions WHERE user_id = %(user_id)s"""
# A tenant who signs in at Supabase has no row in `users` and is known by documents.
IS_TENANT = """
    SELECT coalesce((SELECT is_active FROM users WHERE id = %(user_id)s),
                    EXISTS (SELECT FROM documents WHERE user_id = %(user_id)s))"""


@dataclass(frozen=True, slots=True)
class Caller:
    """The tenant of a request, with the scopes of the token."""

    pk: UUID  # the tenant's id
    scopes: frozenset[str] = api_tokens.TENANT_SCOPES
    staff: bool = False
    expires_at: datetime | None = None  # of an API token
    token_id: UUID | None = None  # of an API token
    is_authenticated: bool = True
    is_active: bool = True

    @property
    def service(self) -> bool:
        """Tell whether this is the agent platform, which may advance jobs."""
        return ApiToken.Scope.SERVICE in self.scopes


class BearerAuthentication(BaseAuthentication):
    """Answers every failure with the same 401, so that a probe learns nothing."""

    def authenticate(self, request: Request) -> tuple[Caller, object] | None:
        authenticated = self._authenticate_bearer(request)
        tenant = request.headers.get(TENANT_HEADER)
        if tenant is None:
            return authenticated
        if authenticated is None:
            raise only_services()
        view = request.parser_context["view"]
        call = f"{request.method} /{request.resolver_match.route}"  # type: ignore[union-attr]
        changes = request.method not in SAFE_METHODS and not getattr(view, "reads_only", False)
        return act_for_tenant(authenticated[0], tenant, call=call, changes=changes), authenticated[1]

    def _authenticate_bearer(self, request: Request) -> tuple[Caller, object] | None:
        plain = read_bearer(get_authorization_header(request))
        return None if plain is None else (authenticate_token(plain), plain[:8])

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="accessa"'


def read_bearer(header: bytes) -> str | None:
    """Return the token of an ``Authorization`` header, None if it has no bearer. Raises ``AuthenticationFailed``."""
    parts = header.split()
    if not parts or parts[0].lower() != b"bearer":
        return None
    if len(parts) != 2:
        raise AuthenticationFailed
    try:
        return parts[1].decode("ascii")
    except UnicodeDecodeError as error:
        raise AuthenticationFailed from error


def authenticate_token(plain: str) -> Caller:
    """Return the caller of an API token or a Supabase JWT. Raises ``AuthenticationFailed``."""
    if not plain.startswith(api_tokens.PREFIX):
        return authenticate_jwt(plain)
    token = api_tokens.find_valid_token(plain)
    if token is None:
        raise AuthenticationFailed
    return Caller(token.user_id, frozenset(token.scopes), token.is_staff, token.expires_at, token.token_id)


def authenticate_jwt(encoded: str) -> Caller:
    try:
        claims = supabase_jwt.decode_jwt(encoded)
        if claims.get("role") == supabase_jwt.SERVICE_ROLE:
            return Caller(NO_TENANT_ID, api_tokens.ALL_SCOPES)
        user_id = UUID(str(claims["sub"]))
    except (jwt.PyJWTError, ValueError, KeyError) as error:
        raise AuthenticationFailed from error
    if user_id == SYSTEM_TENANT_ID or prepared_statements.execute(FIND_INACTIVE, {"user_id": user_id}):
        raise AuthenticationFailed
    return Caller(user_id)


def only_services() -> ApiError:
    return ApiError(FORBIDDEN, f"Only a service may send {TENANT_HEADER}.")


def act_for_tenant(service: Caller, tenant: str, *, call: str, changes: bool = False) -> Caller:
    """Return the tenant as the caller; the audit log keeps who called what for whom. Raises ``ApiError``.

    A service reads for a tenant and changes nothing: safe methods, and views that declare ``reads_only``.
    """
    if not service.service:
        raise only_services()
    if changes:
        raise ApiError(FORBIDDEN, "For a tenant, a service may search, read and poll; it may change nothing.")
    try:
        tenant_id = UUID(tenant)
    except ValueError:
        raise ApiError(UNKNOWN_TENANT, field=TENANT_HEADER) from None
    if not _is_tenant(tenant_id) or str(tenant_id) != tenant.lower():
        raise ApiError(UNKNOWN_TENANT, field=TENANT_HEADER)
    log.record_service_call(by=User.objects.filter(pk=service.pk).first(), tenant_id=tenant_id, call=call)
    return Caller(tenant_id, service.scopes & api_tokens.TENANT_SCOPES)


def _is_tenant(user_id: UUID) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(IS_TENANT, {"user_id": user_id})
        return bool(cursor.fetchone()[0]) and user_id != SYSTEM_TENANT_ID


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "accounts.authentication.BearerAuthentication"
    name = "bearer"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "A Supabase JWT or an API token (acc_…)."}

    def get_security_requirement(self, auto_schema: Any) -> dict[str, list[Any]]:
        return {self.name: [str(required_scope(auto_schema.view, auto_schema.method))]}


def required_scope(view: object, method: str) -> ApiToken.Scope:
    """Return the scope of an operation: the view's ``required_scope``, else by the method and its ``change_scope``."""
    changes = getattr(view, "change_scope", ApiToken.Scope.WRITE)
    by_method = ApiToken.Scope.READ if method in SAFE_METHODS else changes
    scope: ApiToken.Scope = getattr(view, "required_scope", by_method)
    return scope


def granted_scopes(user: object) -> frozenset[str]:
    """Return the scopes of a caller: those of the token, or all of a tenant who has signed in here."""
    return user.scopes if isinstance(user, Caller) else api_tokens.TENANT_SCOPES


def require_scope(user: object, scope: str) -> None:
    """Raise ``ApiError("INSUFFICIENT_SCOPE")`` unless the caller has the scope."""
    if scope not in granted_scopes(user):
        raise ApiError(INSUFFICIENT_SCOPE, f"This takes a token with the scope {scope}.")


def caller_id(request: Request) -> UUID:
    """Return the id of the tenant of a request, authenticated by a bearer token or a session."""
    return UUID(str(request.user.pk))
