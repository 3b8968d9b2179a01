"""System checks of the Supabase settings: the URL and the keys belong to one project, each key to its role."""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import jwt
from django.conf import settings

from accessa.checks import Rule

SHORTEST_SECRET = 32  # bytes of a key for HS256: RFC 7518 §3.2
ROLES = {"SUPABASE_ANON_KEY": "anon", "SUPABASE_SERVICE_ROLE": "service_role"}
PROJECT_URL = re.compile(r"https://([a-z0-9]{20})\.(?:storage\.)?supabase\.co")


def jwt_claims(key: str) -> dict[str, Any]:
    """Return the unverified claims of a JWT; an empty dict for another kind of key."""
    parts = key.split(".")
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))) if len(parts) == 3 else {}
    except ValueError:
        return {}
    return claims if isinstance(claims, dict) else {}


def _several_projects(s: Any) -> list[str]:
    urls = {name: PROJECT_URL.match(getattr(s, name) or "")
            for name in ("SUPABASE_URL", "SUPABASE_JWKS_URL", "S3_ENDPOINT_URL")}  # fmt: skip
    refs = {name: match[1] for name, match in urls.items() if match}
    refs |= {name: str(ref) for name in ROLES if (ref := jwt_claims(getattr(s, name)).get("ref"))}
    return [", ".join(f"{name} is of {ref}" for name, ref in refs.items())] if len(set(refs.values())) > 1 else []


def _wrong_roles() -> Iterator[tuple[str, str]]:
    for name, role in ROLES.items():
        key = getattr(settings, name)
        claims = jwt_claims(key)
        is_opposite = key.startswith("sb_secret_" if role == "anon" else "sb_publishable_")
        if is_opposite or (claims and claims.get("role") != role):
            yield name, role


def _is_signed(key: str) -> bool:
    try:
        if jwt.get_unverified_header(key).get("alg") != "HS256":
            return True
        jwt.decode(key, settings.SUPABASE_JWT_SECRET, ["HS256"], options={"verify_aud": False, "verify_exp": False})
    except jwt.PyJWTError:
        return False
    return True


# fmt: off
SUPABASE_RULES = (
    Rule("accessa.W221", lambda s: [s.SUPABASE_URL] * bool(
            s.SUPABASE_URL and not s.SUPABASE_JWT_SECRET and not s.SUPABASE_JWKS_URL),
         "SUPABASE_URL is set, and nothing verifies its tokens: tenants can sign in by API token only.",
         "Set SUPABASE_JWKS_URL={0}/auth/v1/.well-known/jwks.json, or SUPABASE_JWT_SECRET."),
    Rule("accessa.E234", lambda s: 0 < len(s.SUPABASE_JWT_SECRET.encode()) < SHORTEST_SECRET,
         f"SUPABASE_JWT_SECRET has fewer than {SHORTEST_SECRET} bytes: tokens that it signs can be forged by guessing.",
         "Copy the JWT secret from the project's API settings; or make your own: openssl rand -hex 32"),
    Rule("accessa.E222", _several_projects, "Supabase's address and keys are of different projects: {0}.",
         "Copy the URL and the keys from the API settings of the same project."),
    Rule("accessa.E223", lambda s: _wrong_roles(), "{0} is not a key of the role {1}.",
         "Copy the {1} key from the project's API settings."),
    Rule("accessa.E224", lambda s: [name for name, role in ROLES.items() if s.SUPABASE_JWT_SECRET
                                    and jwt_claims(getattr(s, name)).get("role") == role
                                    and not _is_signed(getattr(s, name))],
         "SUPABASE_JWT_SECRET did not sign {0}: it is another project's.",
         "Copy both from the API settings of the same project."),
)
# fmt: on
