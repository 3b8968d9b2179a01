"""Authentication: bearer tokens of the API (Supabase JWT or API token), sign-in by e-mail, and permissions."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, ip_address, ip_network
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any
from uuid import UUID

import jwt
from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from accounts import api_tokens, rate_limit
from accounts.error_codes import ApiError, unavailable
from accounts.models import ApiToken, User
from accounts.system_tenant import SYSTEM_TENANT_ID

if TYPE_CHECKING:  # DRF's views load this module
    from rest_framework.views import APIView

ASYMMETRIC_ALGORITHMS = ["RS256", "ES256", "EdDSA"]
SERVICE_ROLE = "service_role"
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
        claims = _decode_jwt(encoded)
        if claims.get("role") == SERVICE_ROLE:
            return Caller(NO_TENANT_ID, service=True)
        user_id = UUID(str(claims["sub"]))
    except (jwt.PyJWTError, ValueError, KeyError) as error:
        raise AuthenticationFailed from error
    if user_id == SYSTEM_TENANT_ID or User.objects.filter(pk=user_id, is_active=False).exists():
        raise AuthenticationFailed
    return Caller(user_id)


def _decode_jwt(encoded: str) -> dict[str, Any]:
    """Check signature, expiry and audience. The key decides the algorithm, never the token's own header.

    Supabase's service key names no user and no audience; every other token must.
    """
    header = jwt.get_unverified_header(encoded) if settings.SUPABASE_JWKS_URL else {}
    if header.get("alg") in ASYMMETRIC_ALGORITHMS:
        key, algorithms = _published_key(header.get("kid")), ASYMMETRIC_ALGORITHMS
    elif settings.SUPABASE_JWT_SECRET:
        key, algorithms = settings.SUPABASE_JWT_SECRET, ["HS256"]
    else:
        raise jwt.InvalidKeyError("no secret is configured")
    claims: dict[str, Any] = jwt.decode(encoded, key, algorithms, options={"require": ["exp"], "verify_aud": False})
    if claims.get("role") == SERVICE_ROLE and "aud" not in claims:
        return claims
    return jwt.decode(
        encoded, key, algorithms, audience=settings.JWT_AUDIENCE, options={"require": ["exp", "sub", "aud"]}
    )


def _published_key(kid: str | None) -> Any:
    """Return the key called ``kid``; raise ``ApiError`` when the keys cannot be fetched.

    An unknown name fetches the keys again, but at most every 30 seconds: anybody can invent names.
    """
    client = _jwks(settings.SUPABASE_JWKS_URL)
    try:
        keys = {key.key_id: key for key in client.get_signing_keys()}
        if kid not in keys and time.monotonic() - _refreshed.get(client.uri, 0.0) > REFRESH_SECONDS:
            _refreshed[client.uri] = time.monotonic()
            keys = {key.key_id: key for key in client.get_signing_keys(refresh=True)}
    except (jwt.PyJWKClientConnectionError, jwt.PyJWKSetError, JSONDecodeError) as error:
        raise unavailable(
            "The service cannot reach the keys that tokens are checked with; try again shortly."
        ) from error
    if kid not in keys:
        raise jwt.InvalidKeyError("no such key")
    return keys[kid]


REFRESH_SECONDS = 30.0
_refreshed: dict[str, float] = {}


@lru_cache(maxsize=4)
def _jwks(url: str) -> jwt.PyJWKClient:
    return jwt.PyJWKClient(url, cache_keys=True, lifespan=600, timeout=5)


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "accounts.authentication.BearerAuthentication"
    name = "bearer"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "A Supabase JWT or an API token (acc_…)."}


class EmailBackend(ModelBackend):
    """Fails in the same way and time whatever was wrong; too many attempts look like a wrong password."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        email = (username or "").strip().lower()
        if not email or password is None:
            return None
        client = client_network(client_address(request)) if request else ""
        # Digests: what is typed as an address may be a password in the wrong field.
        account_digest = hashlib.sha256(f"{client} {email}".encode()).hexdigest()
        client_digest = hashlib.sha256(client.encode()).hexdigest()
        try:
            rate_limit.check_rate(rate_limit.SIGN_INS, account_digest)
            rate_limit.check_rate(rate_limit.SIGN_IN_FAILURES, client_digest)
        except ApiError as error:
            raise PermissionDenied from error  # no other backend is tried
        user = User.objects.filter(email=email).first()
        # The password of an unknown account is hashed too: the time must not reveal which accounts exist.
        if (user or User()).check_password(password) and user and self.user_can_authenticate(user):
            rate_limit.remove_last_use(rate_limit.SIGN_IN_FAILURES, client_digest)
            return user
        return None


def client_network(client: str) -> str:
    """Return the network that is counted as one client: an IPv4 address, or the /64 of an IPv6 address."""
    try:
        address = ip_address(client)
    except ValueError:
        return client
    if isinstance(address, IPv4Address):
        return str(address)
    return str(address.ipv4_mapped or ip_network((int(address), 64), strict=False))


def client_address(request: HttpRequest) -> str:
    """Return the client's address. Only our own proxies' entries of X-Forwarded-For are trusted."""
    hops = [hop.strip() for hop in request.headers.get("X-Forwarded-For", "").split(",") if hop.strip()]
    hops.append(request.META.get("REMOTE_ADDR", ""))
    return str(hops[-1 - min(settings.TRUSTED_PROXIES, len(hops) - 1)])


class IsService(BasePermission):
    """Grants access to the agent platform, by its own token or Supabase's service role; not to tenants."""

    message = "Only the service may do this."

    def has_permission(self, request: Request, view: APIView) -> bool:
        return isinstance(request.user, Caller) and request.user.service


def caller_id(request: Request) -> UUID:
    """Return the id of the tenant of a request, authenticated by a bearer token or a session."""
    return UUID(str(request.user.pk))


def has_staff_permission(request: Request, permission: str) -> bool:
    user: object = request.user
    if isinstance(user, Caller):
        user = User.objects.filter(pk=user.pk).first() if user.staff else None
    return isinstance(user, User) and user.is_staff and user.has_perm(permission)
