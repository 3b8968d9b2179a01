"""Settings of the web: REST framework, OpenAPI schema, admin, passwords, mails, content security policies."""

from pathlib import Path
from typing import Any

from corsheaders.defaults import default_headers
from django.templatetags.static import static

from accessa import __version__
from accessa.admin_menu import SIDEBAR

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "accounts.authentication.BearerAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated", "accounts.permissions.HasScope"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["accounts.strict_fields.StrictJSONParser"],
    "DEFAULT_PAGINATION_CLASS": "accounts.pagination.NewestFirstPagination",
    "PAGE_SIZE": 50,
    "EXCEPTION_HANDLER": "accessa.error_responses.exception_handler",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "UNAUTHENTICATED_USER": None,
}

CORS_ALLOW_HEADERS = [
    *default_headers,
    "x-amz-checksum-sha256",  # browsers that upload through us
    "x-correlation-id",
    "idempotency-key",
    "traceparent",
]

SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Accessa",
    "VERSION": __version__,
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "POSTPROCESSING_HOOKS": ["drf_spectacular.hooks.postprocess_schema_enums", "accessa.openapi.hooks.complete"],
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SERVE_AUTHENTICATION": [],
    "SWAGGER_UI_DIST": "SIDECAR",  # /docs works without the internet
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "ENUM_NAME_OVERRIDES": {
        "StageEnum": "jobs.choices.Stage",
        "StateEnum": "jobs.choices.State",
        "StatusEnum": "jobs.choices.STATUSES",
        "StandingEnum": "jobs.display_status.DISPLAY_STATUSES",
        "PurchaseStateEnum": "vendors.models.Purchase.State",
        "WebhookEventEnum": "outbox.models.EVENTS",
        "DeliveryStateEnum": "outbox.models.Message.State",
    },
    # No deep links: each would be a link within a button, which screen readers do not tell.
    "SWAGGER_UI_SETTINGS": {"deepLinking": False, "displayOperationId": False, "validatorUrl": None},
}

UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Accessa",
    "SITE_HEADER": "Accessa",
    "SITE_SYMBOL": "description",
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "DASHBOARD_CALLBACK": "console.dashboard.add_dashboard",
    "COLORS": {
        "primary": {
            "50": "oklch(97.1% .014 219)", "100": "oklch(93.9% .032 219)", "200": "oklch(88.5% .058 220)",
            "300": "oklch(80.9% .092 221)", "400": "oklch(70.6% .111 222)", "500": "oklch(60.4% .106 223)",
            "600": "oklch(50.3% .09 224)", "700": "oklch(43.6% .076 225)", "800": "oklch(37.9% .063 226)",
            "900": "oklch(33.2% .053 227)", "950": "oklch(24.6% .043 228)",
        },
    },
    "STYLES": [lambda request: static("console/console.css")],
    "SCRIPTS": [lambda request: static("console/console.js"), lambda request: static("console/live.js")],
    "LOGIN": {"form": "accounts.admin_base.StaffLoginForm"},
    "SIDEBAR": SIDEBAR,
}  # fmt: skip

PASSWORD_RULES: list[dict[str, Any]] = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

# The function that writes a type of mails, when it is sent (outbox.mails.delivery.Writer).
MAILS = {
    "account.password_reset": "outbox.mails.account_mails.password_reset",
    "account.password_changed": "outbox.mails.account_mails.password_changed",
    "account.already_exists": "outbox.mails.account_mails.already_exists",
    "account.invitation": "outbox.mails.account_mails.invitation",
    "account.totp_changed": "outbox.mails.account_mails.totp_changed",
    "account.oidc_connected": "outbox.mails.account_mails.oidc_connected",
    "account.deleted": "outbox.mails.account_mails.deleted",
    "document.completed": "documents.mails.completed",
    "document.failed": "documents.mails.failed",
    "documents.daily": "documents.mails.daily",
}

TENANT_PAGES: dict[str, Any] = {
    "default-src": ["'none'"],
    "script-src": ["'self'"],
    "style-src": ["'self'"],
    "img-src": ["'self'"],
    "font-src": ["'self'"],
    "connect-src": ["'self'"],
    "form-action": ["'self'"],
    "base-uri": ["'none'"],
    "frame-ancestors": ["'none'"],
}
# unfold uses Alpine, which evaluates attributes and sets styles. Inline scripts stay forbidden.
ADMIN_PAGES = TENANT_PAGES | {
    "script-src": ["'self'", "'unsafe-eval'"],
    "style-src": ["'self'", "'unsafe-inline'"],
    "img-src": ["'self'", "data:"],
}
DOCS_PAGE = TENANT_PAGES | {"img-src": ["'self'", "data:"]}  # the icons in swagger-ui's style sheet
POLICIES = {"/admin": ADMIN_PAGES, "/docs": DOCS_PAGE}  # by the first part of the path; all others are TENANT_PAGES
CONTENT_SECURITY_POLICY: dict[str, Any] = {"DIRECTIVES": TENANT_PAGES}


def templates(folder: Path) -> list[dict[str, Any]]:
    processors = ("template.context_processors.request", "contrib.auth.context_processors.auth",
                  "contrib.messages.context_processors.messages")  # fmt: skip
    return [
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "DIRS": [folder],
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [f"django.{name}" for name in processors],
                "builtins": ["django.templatetags.i18n"],
            },
        }
    ]
