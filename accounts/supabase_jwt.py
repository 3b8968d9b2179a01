"""Verification of Supabase JWTs by the shared secret or by the published keys (JWKS)."""

import time
from functools import lru_cache
from json import JSONDecodeError
from typing import Any

import jwt
from django.conf import settings

from accounts.common_error_codes import unavailable

ASYMMETRIC_ALGORITHMS = ["RS256", "ES256", "EdDSA"]
SERVICE_ROLE = "service_role"
REFRESH_SECONDS = 30.0
_refreshed: dict[str, float] = {}


def decode_jwt(encoded: str) -> dict[str, Any]:
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


@lru_cache(maxsize=4)
def _jwks(url: str) -> jwt.PyJWKClient:
    return jwt.PyJWKClient(url, cache_keys=True, lifespan=600, timeout=5)
