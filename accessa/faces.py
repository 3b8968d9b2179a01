"""Settings of what people and machines look at: the admin, the API's schema, what pages may load, logs."""

from __future__ import annotations

from typing import Any

SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Accessa",
    "DESCRIPTION": "Insurance PDFs as searchable, cited passages.",
    "VERSION": "0.1.0",
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SERVE_AUTHENTICATION": [],
    "SWAGGER_UI_DIST": "SIDECAR",  # /docs works without the internet
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "ENUM_NAME_OVERRIDES": {"StageEnum": "jobs.states.Stage", "StateEnum": "jobs.states.State"},
}

UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Accessa",
    "SITE_HEADER": "Accessa",
    "SITE_SYMBOL": "description",
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
}

CONTENT_SECURITY_POLICY: dict[str, Any] = {
    "DIRECTIVES": {
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
}


def logging(level: str) -> dict[str, Any]:
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": "{asctime} {levelname} {name} {message}", "style": "{"}},
        "filters": {"discreet": {"()": "accessa.logs.Discreet"}},
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["discreet"]}},
        "root": {"handlers": ["console"], "level": level},
        "loggers": {
            "django-q": {"level": "WARNING"},
            "django.request": {"level": "ERROR"},
            "pdf_oxide": {"level": "ERROR"},
            **{
                name: {"level": "WARNING"}
                for name in ("httpx", "httpx2", "openai", "llama_cloud", "botocore", "boto3", "urllib3", "s3transfer")
            },
        },
    }
