"""Content-Security-Policy and Permissions-Policy headers: strict for tenants' pages, looser for the admin."""

from typing import Any, cast
from urllib.parse import urlsplit

from csp.middleware import CSPMiddleware, PolicyParts
from django.core.files.storage import storages
from django.http import HttpRequest, HttpResponseBase

from accessa import settings_web
from documents.storage import Bucket

PERMISSIONS = ", ".join(
    f"{feature}=()"
    for feature in ("camera", "microphone", "geolocation", "payment", "usb", "serial", "midi", "display-capture")
)


class CspMiddleware(CSPMiddleware):
    """Choose the policy by the path. No page loads anything of another origin."""

    def get_policy_parts(
        self, request: HttpRequest, response: HttpResponseBase, report_only: bool = False
    ) -> PolicyParts:
        parts = super().get_policy_parts(request, response, report_only)
        if parts.config is None and not report_only:
            parts.config = page_policy(request.path)
        return parts

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        response = super().process_response(request, response)
        response.headers.setdefault("Permissions-Policy", PERMISSIONS)
        return response


def page_policy(path: str) -> dict[str, Any]:
    for prefix, directives in settings_web.POLICIES.items():
        if path == prefix or path.startswith(f"{prefix}/"):
            return directives
    if path == "/" and (origin := upload_origin()):
        return settings_web.TENANT_PAGES | {"connect-src": ["'self'", origin]}
    return settings_web.TENANT_PAGES


def upload_origin() -> str | None:
    """Return the origin of the store's signed upload URLs; None where uploads go to the API."""
    raw = storages["raw"]
    if not getattr(raw, "presigns", False):
        return None
    try:
        url = cast(Bucket, raw).sign_upload("origin", length=1, mime="application/pdf", sha256="0" * 64)
    except OSError:  # no credentials at the moment: no upload would work either
        return None
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
