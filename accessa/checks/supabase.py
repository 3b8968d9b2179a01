"""Supabase: do its address and its keys belong to one project, each to its role."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import jwt
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning

Found = Iterator[CheckMessage]
LEAST_BYTES = 32  # of a key for HS256: RFC 7518 §3.2


def check_supabase() -> Found:
    url = settings.SUPABASE_URL
    if url and not settings.SUPABASE_JWT_SECRET and not settings.SUPABASE_JWKS_URL:
        yield Warning(
            "SUPABASE_URL is set, and nothing to check its tokens with: tenants can sign in by API token only.",
            hint=f"Set SUPABASE_JWKS_URL={url}/auth/v1/.well-known/jwks.json, or SUPABASE_JWT_SECRET.",
            id="accessa.W221",
        )
    if 0 < len(settings.SUPABASE_JWT_SECRET.encode()) < LEAST_BYTES:
        yield Error(
            f"SUPABASE_JWT_SECRET has fewer than {LEAST_BYTES} bytes: tokens that it signs can be forged by guessing.",
            hint="Take the JWT secret from the project's settings, API; or for one of your own: openssl rand -hex 32",
            id="accessa.E234",
        )
    refs = {name: ref for name, ref in _refs() if ref}
    if len(set(refs.values())) > 1:
        told = ", ".join(f"{name} is of {ref}" for name, ref in refs.items())
        hint = "Take URL and keys from the same project's settings, API."
        yield Error(f"Supabase's address and keys are of different projects: {told}.", hint=hint, id="accessa.E222")
    for name, role in (("SUPABASE_ANON_KEY", "anon"), ("SUPABASE_SERVICE_ROLE", "service_role")):
        yield from _role(name, role)


def _refs() -> Iterator[tuple[str, str]]:
    for name in ("SUPABASE_URL", "SUPABASE_JWKS_URL", "S3_ENDPOINT_URL"):
        found = re.match(r"https://([a-z0-9]{20})\.(?:storage\.)?supabase\.co", getattr(settings, name) or "")
        yield name, found[1] if found else ""
    for name in ("SUPABASE_ANON_KEY", "SUPABASE_SERVICE_ROLE"):
        yield name, str(jwt_claims(getattr(settings, name)).get("ref", ""))


def _role(name: str, role: str) -> Found:
    key = getattr(settings, name)
    wrong_kind = key.startswith("sb_secret_" if role == "anon" else "sb_publishable_")
    found = jwt_claims(key)
    if wrong_kind or (found and found.get("role") != role):
        hint = f"Take the {role} key from the project's settings, API."
        yield Error(f"{name} is not a key of the role {role}.", hint=hint, id="accessa.E223")
    elif found and settings.SUPABASE_JWT_SECRET and not _is_signed(key):
        hint = "Take both from the same project's settings, API."
        yield Error(f"SUPABASE_JWT_SECRET did not sign {name}: it is another project's.", hint=hint, id="accessa.E224")


def jwt_claims(key: str) -> dict[str, Any]:
    """Return what a JWT says, unverified; empty for a key that is none."""
    parts = key.split(".")
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _is_signed(key: str) -> bool:
    try:
        if jwt.get_unverified_header(key).get("alg") != "HS256":
            return True
        jwt.decode(key, settings.SUPABASE_JWT_SECRET, ["HS256"], options={"verify_aud": False, "verify_exp": False})
    except jwt.PyJWTError:
        return False
    return True
