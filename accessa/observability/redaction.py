"""Redaction of logs and errors: secrets, signatures, tenants' paths, row values, error messages."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from jobs.safe_errors import safe_error_name

MASK = "…"
SAFE_ERRORS = (ImproperlyConfigured, ImportError)  # their messages name settings and modules, no tenant's text
SHORTEST_SECRET = 8  # a shorter one would be masked in ordinary words
SECRET_SETTING = re.compile(r"SECRET|TOKEN|_PASSWORD$|_KEYS?(_ID)?$|SERVICE_ROLE|SENTRY_DSN|REDIS_URL")
SENSITIVE = re.compile(
    r"""(?P<stored>(?:storage://|/storage/)[^\s"'\\]+)"""
    r"""|(?P<url>https?://[^\s"'?\#\\]*)[?\#][^\s"'\\]+"""
    r"""|(?P<login>\b[a-z][a-z0-9+]*://)[^\s"'/@\\]+@"""
    r"""|(?P<scheme>\b(?:[Bb]earer|[Bb]asic))\s+[\w.~+/=:-]{6,}"""
    r"""|(?P<name>\b(?:token|signature|sig|password|secret|api_?key|[Xx]-[Aa]mz-[\w-]+|csrfmiddlewaretoken))=[^\s&"'\\]+"""
    r"""|(?P<jwt>\beyJ[\w-]{4,}\.[\w-]+(?:\.[\w-]*)?)"""
    r"""|(?P<own>\b(?:acc|sk|llx|whsec)[_-][\w+/=-]{6,})"""
    r"""|(?P<ssn>\b\d{3}-\d{2}-\d{4}\b)"""
    r"""|(?P<vector>(?:-?(?:\d+\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)[,\s\]\[]+){3,}(?:-?\d+\.\d+(?:[eE][-+]?\d+)?)?)"""
    r"""|(?P<detail>\b(?:DETAIL:|Failing row contains|Key \()(?s:.*))"""
)
# What stays of a match, by its group; of the others only the mask.
REPLACEMENTS = {
    "stored": f"/storage/{MASK}",
    "url": rf"\g<url>?{MASK}",
    "login": rf"\g<login>{MASK}@",
    "scheme": rf"\g<scheme> {MASK}",
    "name": rf"\g<name>={MASK}",
}


def redact(text: str) -> str:
    return SENSITIVE.sub(
        lambda match: match.expand(REPLACEMENTS.get(match.lastgroup or "", MASK)), redact_secrets(text)
    )


def redact_secrets(text: str) -> str:
    secrets = secrets_pattern() if settings.configured else None
    return text if secrets is None else secrets.sub(MASK, text)


def safe_error_text(error: BaseException) -> str:
    """Return a database error's code, any other error's class; of ``SAFE_ERRORS`` the message too."""
    name = safe_error_name(error)
    return f"{name}: {redact(str(error))}" if isinstance(error, SAFE_ERRORS) else name


def redact_argument(argument: object) -> object:
    match argument:
        case BaseException():
            return safe_error_text(argument)
        case dict():
            return {name: redact_argument(each) for name, each in argument.items()}
        case list() | tuple() | set() | frozenset():
            return [redact_argument(each) for each in argument]
    return argument


@cache
def secrets_pattern() -> re.Pattern[str] | None:
    """Match every secret of the settings, also as JSON or repr escape it; the longest first."""
    plain = {secret for secret in _secrets() if len(secret) >= SHORTEST_SECRET}
    escaped = plain | {json.dumps(secret)[1:-1] for secret in plain} | {repr(secret)[1:-1] for secret in plain}
    if not escaped:
        return None
    return re.compile("|".join(re.escape(secret) for secret in sorted(escaped, key=len, reverse=True)))


def _secrets() -> Iterator[str]:
    for name in dir(settings):
        if name.isupper() and SECRET_SETTING.search(name):
            secret: Any = getattr(settings, name)
            yield from (each for each in (secret if isinstance(secret, list) else [secret]) if isinstance(each, str))
    yield from (str(config["client_secret"]) for config in settings.CONNECTORS.values())
    yield from (str(database.get("PASSWORD") or "") for database in settings.DATABASES.values())
    if isinstance(url := settings.Q_CLUSTER.get("redis"), str):
        yield from (url, urlsplit(url).password or "")
