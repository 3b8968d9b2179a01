"""Authentication of the API by bearer token: Supabase JWT or API token."""

import time
from dataclasses import dataclass
from functools import lru_cache
from json import JSONDecodeError
from typing import Any
from uuid import UUID

import jwt
from django.conf import settings
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from accounts import api_tokens
from accounts.error_codes import unavailable
from accounts.models import ApiToken, User
from accounts.system_tenant import SYSTEM_TENANT_ID

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
