"""Rules of the settings checks (`manage.py check`): rows of their tables, and shared predicates."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from django import conf  # not its settings: accessa.checks.settings is a module
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.http.request import split_domain_port, validate_host

LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Rule(NamedTuple):
    """A settings check: an Error (accessa.E…) for what can never work, a Warning (accessa.W…) for what is unlikely.

    ``broken`` returns a bool, or the offending values: each makes a message with the value (or tuple of values) in
    place of ``{0}``, ``{1}`` … of ``message`` and ``hint``.
    """

    id: str
    broken: Callable[[Any], bool | Iterable[Any]]
    message: str
    hint: str


def check_rules(rules: Iterable[Rule]) -> Iterator[CheckMessage]:
    for rule in rules:
        broken = rule.broken(conf.settings)
        for match in ((),) * broken if isinstance(broken, bool) else broken:
            values = match if isinstance(match, tuple) else (match,)
            level = Error if rule.id.startswith("accessa.E") else Warning
            yield level(rule.message.format(*values), hint=rule.hint.format(*values), id=rule.id)


def configuration_error(read: Callable[[], object]) -> list[str]:
    """Return the sentence of the ``ImproperlyConfigured`` that ``read`` raises, if it does."""
    try:
        read()
    except ImproperlyConfigured as error:
        return [str(error)]
    return []


def is_url(text: str) -> bool:
    return re.match(r"https?://[^/\s?#]", text) is not None


def is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1", "testserver", "") or host.startswith("127.")


def is_public(url: str) -> bool:
    return is_url(url) and not is_local(url)


def is_allowed(url: str) -> bool:
    domain, _ = split_domain_port(urlsplit(url).netloc)
    return bool(domain) and validate_host(domain, conf.settings.ALLOWED_HOSTS)


def is_plain_http(url: str | None) -> bool:
    """Tell whether requests to ``url`` would cross a network unencrypted."""
    address = urlsplit(url or "")
    return address.scheme == "http" and address.hostname not in LOOPBACK


def number(name: str) -> float:
    """Return a numeric setting by the name of its variable, wherever the settings keep it."""
    if name == "CONN_MAX_AGE":
        return conf.settings.DATABASES["default"].get(name) or 0
    return float(conf.settings.Q_CLUSTER["max_rss"] if name == "WORKER_MAX_RSS_KB" else getattr(conf.settings, name))
