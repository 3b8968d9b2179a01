"""The variables of the environment: one that cannot be read is refused, and one that nothing reads is named."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import environ
from django.core.exceptions import ImproperlyConfigured

TRUE, FALSE = ("true", "1", "yes", "y", "on", "ok"), ("false", "0", "no", "n", "off")


def _word(text: str) -> bool:
    if text.lower() not in TRUE + FALSE:
        raise ValueError(text)
    return text.lower() in TRUE


def _number(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(text)
    return float(text)


READERS: dict[type, tuple[Callable[[str], Any], str]] = {
    bool: (_word, "true or false"),
    int: (int, "a whole number"),
    float: (_number, "a number, as 2 or 0.5"),
}


class Env(environ.Env):  # type: ignore[misc]
    """Refuses what cannot be read, where the library takes a mistyped word for False. An empty value is none."""

    def get_value(
        self, var: str, cast: Any = None, default: Any = environ.Env.NOTSET, *args: Any, **kwargs: Any
    ) -> Any:
        if cast not in READERS:
            return super().get_value(var, cast, default, *args, **kwargs)
        given = str(self.ENVIRON.get(var, "")).strip()
        return self._read(var, given, *READERS[cast]) if given else default

    def counting(self, *names: str) -> Env:
        """Refuse what others read for themselves, before Django is there, and cannot."""
        for name in names:
            if name in self.ENVIRON and self._read(name, self.ENVIRON[name], int, WHOLE) < 1:
                raise ImproperlyConfigured(f"{name} must be {WHOLE}.")
        return self

    def postgres(self, name: str) -> dict[str, Any]:
        """Return Django's form of a database's address."""
        found = self._read(name, self.str(name), self.db_url_config, POSTGRES) if self._is_postgres(name) else {}
        if not found:
            raise ImproperlyConfigured(f"{name} must be {POSTGRES}.")
        return dict(found)

    def _is_postgres(self, name: str) -> bool:
        # Django's dummy is no database at all: for `makemigrations --check`, which asks none.
        return self.str(name).partition("://")[0] in SCHEMES

    def _read(self, name: str, given: str, reader: Callable[[str], Any], expected: str) -> Any:
        """Not telling the value: it may be a key in the wrong place."""
        try:
            return reader(given)
        except ValueError:
            raise ImproperlyConfigured(f"{name} must be {expected}.") from None


SCHEMES = ("postgres", "postgresql", "psql", "pgsql", "postgis", "django.db.backends.dummy")
POSTGRES = "postgres://user:password@host:port/database"
WHOLE = "a whole number of 1 or more"

# What other programs, SDKs and older versions of this one call it. Right is what is read here.
MISTAKEN = {
    "OPENAI_KEY": "OPENAI_API_KEY",
    "OPENAI_APIKEY": "OPENAI_API_KEY",
    "OPENAI_API_BASE": "OPENAI_BASE_URL",
    "OPENAI_API_BASE_URL": "OPENAI_BASE_URL",
    "LLAMA_CLOUD_API_KEY": "LLAMAPARSE_API_KEY",
    "LLAMA_PARSE_API_KEY": "LLAMAPARSE_API_KEY",
    "LLAMAPARSE_KEY": "LLAMAPARSE_API_KEY",
    "LLAMACLOUD_API_KEY": "LLAMAPARSE_API_KEY",
    "LLAMA_CLOUD_BASE_URL": "LLAMAPARSE_BASE_URL",
    "LLAMAPARSE_WEBHOOK_SECRET": "LLAMAPARSE_WEBHOOK_SECRETS",
    "LLAMAPARSE_WEBHOOK_URL": "LLAMAPARSE_CALLBACK_URL",
    "WEBHOOK_SECRET": "LLAMAPARSE_WEBHOOK_SECRETS",
    "DATABASE_URI": "DATABASE_URL",
    "DB_URL": "DATABASE_URL",
    "POSTGRES_URL": "DATABASE_URL",
    "SUPABASE_DB_URL": "DATABASE_URL",
    "DJANGO_SECRET_KEY": "SECRET_KEY",
    "DJANGO_DEBUG": "DEBUG",
    "DJANGO_ALLOWED_HOSTS": "ALLOWED_HOSTS",
    "ALLOWED_HOST": "ALLOWED_HOSTS",
    "CORS_ORIGINS": "CORS_ALLOWED_ORIGINS",
    "CORS_ORIGIN_WHITELIST": "CORS_ALLOWED_ORIGINS",
    "BASE_URL": "PUBLIC_URL",
    "SITE_URL": "PUBLIC_URL",
    "AWS_S3_BUCKET": "S3_RAW_BUCKET and S3_PARSED_BUCKET",
    "S3_BUCKET": "S3_RAW_BUCKET and S3_PARSED_BUCKET",
    "S3_BUCKET_NAME": "S3_RAW_BUCKET and S3_PARSED_BUCKET",
    "AWS_STORAGE_BUCKET_NAME": "S3_RAW_BUCKET and S3_PARSED_BUCKET",
    "S3_ENDPOINT": "S3_ENDPOINT_URL",
    "AWS_S3_ENDPOINT_URL": "S3_ENDPOINT_URL",
    "S3_ACCESS_KEY": "S3_ACCESS_KEY_ID",
    "S3_SECRET_KEY": "S3_SECRET_ACCESS_KEY",
    "SUPABASE_KEY": "SUPABASE_ANON_KEY or SUPABASE_SERVICE_ROLE",
    "SUPABASE_SERVICE_KEY": "SUPABASE_SERVICE_ROLE",
    "SUPABASE_SERVICE_ROLE_KEY": "SUPABASE_SERVICE_ROLE",
    "SUPABASE_ANON": "SUPABASE_ANON_KEY",
    "NEXT_PUBLIC_SUPABASE_URL": "SUPABASE_URL",
    "JWT_SECRET": "SUPABASE_JWT_SECRET",
    "WORKER_COUNT": "WORKERS",
    "GOOGLE_DRIVE_CLIENT_ID": "GOOGLE_CLIENT_ID",
    "GMAIL_CLIENT_ID": "GOOGLE_CLIENT_ID",
    "INTUIT_CLIENT_ID": "QUICKBOOKS_CLIENT_ID",
    "VAULT_KEYS": "INTEGRATIONS_VAULT_KEYS",
    "QUEUE_URL": "SQS_QUEUE_URL",
    "AWS_SQS_QUEUE_URL": "SQS_QUEUE_URL",
    "SQS_URL": "SQS_QUEUE_URL",
    "SQS_VISIBILITY_TIMEOUT": "SQS_VISIBILITY_SECONDS",
    "S3_STATUTES_BUCKET": "STATUTES_BUCKET",
    "LAWS_BUCKET": "STATUTES_BUCKET",
    "BEDROCK_MODEL_ID": "TITAN_MODEL",
    "TITAN_MODEL_ID": "TITAN_MODEL",
    "BEDROCK_REGION": "TITAN_REGION",
    "REDIS_URL": "DOORBELL_REDIS_URL or VENDOR_BUDGET_REDIS_URL",
}
ELSEWHERE = {
    "PORT", "GUNICORN_CMD_ARGS", "SENTRY_DSN", "DJANGO_SETTINGS_MODULE", "ACCESSA_FAILPOINTS",
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",  # SQS, Bedrock and the bucket of laws are asked with them
}  # fmt: skip
READ = re.compile(r"""(?:env\.\w+|environ\.get|getenv|environ)\s*[(\[]\s*["']([A-Z][A-Z0-9_]+)["']""")
SIMILAR = 0.88
SHORTEST = 6
ROOT = Path(__file__).resolve().parent.parent
WHERE = ("accessa", "jobs", "vendors", "documents/parsers", "embeddings/embedders", "metrics", "portal")


def var_folder(env: Env) -> Path:
    """Return the folder of what a laptop's product keeps: database, files, keys."""
    return Path(env.str("ACCESSA_VAR", default=str(ROOT / "var"))).resolve()


@cache
def known() -> frozenset[str]:
    """Return every variable that the program's source reads."""
    files = [path for where in WHERE for path in (ROOT / where).rglob("*.py") if "tests" not in path.parts]
    found = {name for path in files if path != Path(__file__) for name in READ.findall(path.read_text())}
    return frozenset(found | ELSEWHERE)


def find_unread_variables(given: Mapping[str, str], *, also: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield each variable that nothing reads, with the one that was meant. One beside the right one is left alone.

    ``also`` are read by names that the source puts together.
    """
    ours = known().union(also)
    for name in sorted(given.keys() - ours):
        meant = MISTAKEN.get(name)
        if meant is None and len(name) >= SHORTEST:
            meant = next(iter(get_close_matches(name, ours, n=1, cutoff=SIMILAR)), None)
        if meant and not any(part in given for part in re.findall(r"[A-Z][A-Z0-9_]+", meant)):
            yield name, meant
