"""Settings of logging: LOGGING, all of it to stderr."""

import sys
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.log import CallbackFilter

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
# Below WARNING these libraries log requests and responses.
VERBOSE = (
    "httpx", "httpx2", "httpcore", "httpcore2", "openai", "llama_cloud", "botocore", "boto3", "urllib3", "s3transfer",
    "sentry_sdk", "opentelemetry", "PIL", "markdown_it",
)  # fmt: skip


def logging(level: str, form: str = "", *, debug: bool = False) -> dict[str, Any]:
    """Return LOGGING: all to stderr, as JSON or, for DEBUG or a terminal, as text."""
    level = level.upper()
    if level not in LEVELS:
        raise ImproperlyConfigured(f"LOG_LEVEL must be one of {', '.join(LEVELS)}.")
    if form not in ("", "json", "text"):
        raise ImproperlyConfigured("LOG_FORMAT must be json or text.")
    form = form or ("text" if debug or sys.stderr.isatty() else "json")
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"raised": {"()": CallbackFilter, "callback": lambda record: bool(record.exc_info)}},
        "formatters": {"line": {"()": "accessa.observability.logs.LogFormatter", "form": form}},
        "handlers": {"console": {"class": "accessa.observability.logs.SafeStreamHandler", "formatter": "line"}},
        "root": {"handlers": ["console"], "level": level},
        "loggers": {
            # Django's own handlers of these print twice, or mail requests to admins.
            "django": {"handlers": [], "level": "NOTSET", "propagate": True},
            "django.server": {"handlers": [], "level": "NOTSET", "propagate": True},
            "django-q": {"level": "WARNING"},
            # Bugs, by their frames; a 503 is in the request's own line.
            "django.request": {"level": "ERROR", "filters": ["raised"]},
            "django.security.DisallowedHost": {"level": "CRITICAL"},  # any stranger can send one: answered 400
            "django.db.backends": {"level": "INFO"},  # its DEBUG is every statement with its values
            "pdf_oxide": {"level": "ERROR"},
            "mcp": {"level": "CRITICAL"},  # logs requests and responses; failures have their code in our own lines
            **{name: {"level": "WARNING"} for name in VERBOSE},
        },
    }
