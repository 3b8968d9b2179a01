"""Check of SUPABASE_JWKS_URL: the keys that sign tenants' tokens can be fetched."""

from collections.abc import Iterator

import jwt
from django.conf import settings

from accessa.doctor.findings import Finding, error, skipped
from accessa.doctor.http_probe import NoResponse, send_request
from accessa.doctor.vendor_findings import explain_no_response


def check_jwks() -> Iterator[Finding]:
    if not settings.SUPABASE_JWKS_URL:
        yield skipped("SUPABASE_JWKS_URL is not set")
        return
    try:
        response = send_request("GET", settings.SUPABASE_JWKS_URL)
        keys = jwt.PyJWKSet.from_dict(response.json).keys if response.status == 200 else []
    except NoResponse as failure:
        yield explain_no_response("The server of SUPABASE_JWKS_URL", failure, "SUPABASE_JWKS_URL")
        return
    except jwt.PyJWTError:
        keys = []
    if not keys:
        yield error(
            f"SUPABASE_JWKS_URL answers {response.status} and no keys: no tenant can sign in by token.",
            "Set it to https://<project>.supabase.co/auth/v1/.well-known/jwks.json, of a project with signing keys.",
        )
