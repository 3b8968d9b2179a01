"""Variables that look like ours and are not: nothing reads them, so whoever set one waits for an effect in vain."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path

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
    "REDIS_URL": "DOORBELL_REDIS_URL or VENDOR_BUDGET_REDIS_URL",
}
ELSEWHERE = {"PORT", "GUNICORN_CMD_ARGS", "SENTRY_DSN", "DJANGO_SETTINGS_MODULE", "ACCESSA_CRASHPOINTS"}
READ = re.compile(r"""(?:env\.\w+|environ\.get|getenv|environ)\s*[(\[]\s*["']([A-Z][A-Z0-9_]+)["']""")
SIMILAR = 0.88
SHORTEST = 7
ROOT = Path(__file__).resolve().parent.parent
WHERE = ("accessa", "jobs", "vendors", "documents/parsers", "embeddings/embedders", "measures", "portal")


@cache
def known() -> frozenset[str]:
    """Return every variable that the program's source reads."""
    files = [path for where in WHERE for path in (ROOT / where).rglob("*.py") if "tests" not in path.parts]
    found = {name for path in files if path != Path(__file__) for name in READ.findall(path.read_text())}
    return frozenset(found | ELSEWHERE)


def unread(given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each variable that nothing reads, with the one that was meant. One beside the right one is left alone."""
    ours = known()
    for name in sorted(given.keys() - ours):
        meant = MISTAKEN.get(name)
        if meant is None and len(name) >= SHORTEST:
            meant = next(iter(get_close_matches(name, ours, n=1, cutoff=SIMILAR)), None)
        if meant and not any(part in given for part in re.findall(r"[A-Z][A-Z0-9_]+", meant)):
            yield name, meant
