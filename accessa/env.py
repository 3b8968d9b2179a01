"""Environment variables: strict parsing, and a search for misspelt names."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, ClassVar

import environ
from django.core.exceptions import ImproperlyConfigured

TRUE, FALSE = ("true", "1", "yes", "y", "on", "ok"), ("false", "0", "no", "n", "off")
SCHEMES = ("postgres", "postgresql", "psql", "pgsql", "postgis", "django.db.backends.dummy")
POSTGRES = "postgres://user:password@host:port/database"
POSITIVE = "a whole number of 1 or more"
# Variables that are read without Env.
READ_ELSEWHERE = frozenset({
    "PORT", "MCP_PORT", "GUNICORN_CMD_ARGS", "DJANGO_SETTINGS_MODULE", "ACCESSA_FAILPOINTS", "TOKENIZERS_PARALLELISM",
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",  # boto3: SQS, Bedrock and the statutes bucket
})  # fmt: skip
SIMILARITY = 0.88
SHORTEST_NAME = 6


def parse_bool(text: str) -> bool:
    if text.lower() not in TRUE + FALSE:
        raise ValueError(text)
    return text.lower() in TRUE


def parse_float(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(text)
    return float(text)


PARSERS: dict[type, tuple[Callable[[str], Any], str]] = {
    bool: (parse_bool, "true or false"),
    int: (int, "a whole number"),
    float: (parse_float, "a number, as 2 or 0.5"),
}


class Env(environ.Env):  # type: ignore[misc]
    """Reject unreadable values, where django-environ reads a misspelt word as False. An empty value means unset."""

    requested: ClassVar[set[str]] = set()  # the names that have been read in this process

    def get_value(
        self, var: str, cast: Any = None, default: Any = environ.Env.NOTSET, *args: Any, **kwargs: Any
    ) -> Any:
        self.requested.add(var)
        if cast not in PARSERS:
            return super().get_value(var, cast, default, *args, **kwargs)
        text = str(self.ENVIRON.get(var, "")).strip()
        return self._parse(var, text, *PARSERS[cast]) if text else default

    def require_positive(self, *names: str) -> Env:
        """Validate the whole numbers that other modules read themselves, before Django is loaded."""
        self.requested.update(names)
        for name in names:
            if name in self.ENVIRON and self._parse(name, self.ENVIRON[name], int, POSITIVE) < 1:
                raise ImproperlyConfigured(f"{name} must be {POSITIVE}.")
        return self

    def postgres(self, name: str) -> dict[str, Any]:
        """Return Django's database settings for a PostgreSQL URL.

        Django's dummy backend is accepted too, for `makemigrations --check` without a database.
        """
        url = self.str(name)
        config = self._parse(name, url, self.db_url_config, POSTGRES) if url.partition("://")[0] in SCHEMES else None
        if not config:
            raise ImproperlyConfigured(f"{name} must be {POSTGRES}.")
        is_dummy = config["ENGINE"] == "django.db.backends.dummy"
        return dict(config) if is_dummy else dict(config) | {"ENGINE": "accessa.postgres_backend"}

    def _parse(self, name: str, text: str, parser: Callable[[str], Any], expected: str) -> Any:
        """Parse ``text``. The error does not quote it: it may be a key in the wrong place."""
        try:
            return parser(text)
        except ValueError:
            raise ImproperlyConfigured(f"{name} must be {expected}.") from None


def find_unread_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each unread variable that resembles a known one, with that name, unless the known one is set too."""
    known = Env.requested | READ_ELSEWHERE
    for name in sorted(environment.keys() - known):
        if len(name) >= SHORTEST_NAME:
            for similar in get_close_matches(name, known, n=1, cutoff=SIMILARITY):
                if similar not in environment:
                    yield name, similar
