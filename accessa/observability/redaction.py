"""What must not leave the product, whoever writes it: secrets, signatures, tenants' paths, errors' messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from jobs.errors import safe_error_name

MASK = "…"
TELLING = (ImproperlyConfigured, ImportError)
SHORTEST_SECRET = 8  # a shorter one would be cut out of ordinary words
_SECRET_NAME = re.compile(r"SECRET|TOKEN|_PASSWORD$|_KEYS?(_ID)?$|SERVICE_ROLE|SENTRY_DSN|REDIS_URL")
#    what is found                                     what stays
SUSPECT = re.compile(
    r"""(?P<stored>(?:storage://|/storage/)[^\s"'\\]+)"""
    r"""|(?P<url>https?://[^\s"'?\#\\]*)[?\#][^\s"'\\]+"""
    r"""|(?P<login>\b[a-z][a-z0-9+]*://)[^\s"'/@\\]+@"""
    r"""|(?P<scheme>\b(?:[Bb]earer|[Bb]asic))\s+[\w.~+/=:-]{6,}"""
    r"""|(?P<name>\b(?:token|signature|sig|password|secret|api_?key|[Xx]-[Aa]mz-[\w-]+|csrfmiddlewaretoken))=[^\s&"'\\]+"""
    r"""|(?P<jwt>\beyJ[\w-]{4,}\.[\w-]+(?:\.[\w-]*)?)"""
    r"""|(?P<own>\b(?:acc|sk|llx|whsec)[_-][\w+/=-]{6,})"""
    r"""|(?P<ssn>\b\d{3}-\d{2}-\d{4}\b)"""
    r"""|(?P<vector>(?:-?(?:\d+\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)[,\s\]\[]+){3,}(?:-?\d+\.\d+(?:[eE][-+]?\d+)?)?)"""
    r"""|(?P<detail>\b(?:DETAIL:|Failing row contains|Key \()(?s:.*))""",
)


def redact(text: str) -> str:
    """Return ``text`` without what looks like a secret, a signature, a path, a row's values or a vector."""
    return SUSPECT.sub(_kept, redact_secrets(text))


def redact_secrets(text: str) -> str:
    """Return ``text`` without any secret of the settings, whatever else it says."""
    secrets = _pattern() if settings.configured else None
    return text if secrets is None else secrets.sub(MASK, text)


def _kept(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "stored":
            return "/storage/" + MASK
        case "url":
            return f"{found['url']}?{MASK}"
        case "login":
            return f"{found['login']}{MASK}@"
        case "scheme":
            return f"{found['scheme']} {MASK}"
        case "name":
            return f"{found['name']}={MASK}"
    return MASK


def safe_error_text(error: BaseException) -> str:
    """Return what may be told of an error: a database's by its code, any other by its class.

    A wrong setting and a module that is not there are told by the sentence, which names them and no tenant's text.
    """
    return f"{safe_error_name(error)}: {redact(str(error))}" if isinstance(error, TELLING) else safe_error_name(error)


def redact_argument(value: object) -> object:
    """Return an argument of a message as it may be printed: errors without their messages, wherever they are in it."""
    match value:
        case BaseException():
            return safe_error_text(value)
        case dict():
            return {name: redact_argument(each) for name, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [redact_argument(each) for each in value]
    return value


@cache
def _pattern() -> re.Pattern[str] | None:
    """Match every secret of the settings, as it is and as JSON or repr spell it; the longest first."""
    plain = {secret for secret in _known() if len(secret) >= SHORTEST_SECRET}
    spelled = plain | {json.dumps(secret)[1:-1] for secret in plain} | {repr(secret)[1:-1] for secret in plain}
    if not spelled:
        return None
    return re.compile("|".join(re.escape(secret) for secret in sorted(spelled, key=len, reverse=True)))


def _known() -> Iterator[str]:
    for name in dir(settings):
        if name.isupper() and _SECRET_NAME.search(name):
            value: Any = getattr(settings, name)
            yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str))
    yield from (str(said["client_secret"]) for said in settings.CONNECTORS.values())
    for database in settings.DATABASES.values():
        yield str(database.get("PASSWORD") or "")
    if isinstance(url := settings.Q_CLUSTER.get("redis"), str):
        yield from (url, urlsplit(url).password or "")


def clear_secret_cache() -> None:
    """Read them anew: a test has changed the settings."""
    _pattern.cache_clear()
