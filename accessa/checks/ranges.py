"""Numbers and times among the settings that cannot work, or only in another order."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured

from embeddings import chunking

Found = Iterator[CheckMessage]

POSITIVE = (
    "WORKERS", "WORKER_MAX_RSS_KB", "MAX_FILE_BYTES", "MAX_PAGES", "MAX_FILENAME_CHARS", "MAX_SEARCH_RESULTS",
    "MAX_QUERY_CHARS", "UPLOADS_PER_DAY", "UPLOAD_REQUESTS_PER_MINUTE", "POLLS_PER_MINUTE", "SIGNED_URL_SECONDS",
    "PAGE_VIEWS_PER_MINUTE", "SEARCHES_PER_MINUTE", "TOKENS_PER_PAGE", "CAMPAIGN_JOBS", "INDEX_PROBE_SECONDS",
    "JOBS_ACTIVE_PER_USER", "JOBS_LEASE_SECONDS", "JOBS_DRAIN_SECONDS", "JOBS_STOP_SECONDS", "JOBS_HANG_SECONDS",
    "JOBS_PERIODIC_SECONDS", "PARSE_POLL_FIRST_SECONDS", "PARSE_POLL_MOST_SECONDS", "EMBED_BATCH", "EMBED_IN_FLIGHT",
    "EMBED_BATCH_TOKENS", "EMBEDDING_BATCH_SIZE", "VENDOR_TIMEOUT_SECONDS", "VENDOR_BREAKER_FAULTS",
    "VENDOR_BREAKER_SECONDS", "INGESTION_VT_SECONDS", "INGESTION_MAX_DELIVERIES", "INGESTION_PAGE_SIZE",
    "INGESTION_PAGE_SECONDS", "GMAIL_INITIAL_SYNC_MAX_THREADS", "DRIVE_INITIAL_SYNC_MAX_FILES", "IMPORTS_PER_DAY",
    "STATUTES_MAX_BYTES", "SQS_VISIBILITY_SECONDS", "SQS_MESSAGES_AT_ONCE", "SQS_WAIT_SECONDS", "STATUTES_AT_ONCE",
)  # fmt: skip
NOT_NEGATIVE = (  # 0 is no limit, or none of it
    "OPENAI_REQUESTS_PER_MINUTE", "LLAMAPARSE_REQUESTS_PER_MINUTE", "TRUSTED_PROXIES", "CONN_MAX_AGE",
    "TENANT_DAILY_CENTS", "OPENAI_CENTS_PER_MILLION_TOKENS", "OPENAI_TOKENS_PER_MINUTE", "SEARCH_EXACT_PASSAGES",
    "LLAMAPARSE_CREDITS_PER_PAGE", "LLAMAPARSE_CENTS_PER_CREDIT", "JOBS_MAX_RETRIES", "JOBS_RETRY_BASE_SECONDS",
    "JOBS_STOP_GRACE_SECONDS", "TOKEN_REFRESH_SKEW_SECONDS", "INGESTION_WORKERS", "INGESTION_OVERLAP_SECONDS",
    "TITAN_REQUESTS_PER_MINUTE", "TITAN_CENTS_PER_MILLION_TOKENS", "STATUTES_REPROCESS_MOST",
    "STATUTES_FAILED_DAYS",
)  # fmt: skip


def value(name: str) -> float:
    """Return the number that a variable has set, wherever the settings keep it."""
    if name == "CONN_MAX_AGE":
        return settings.DATABASES["default"].get(name) or 0
    return float(settings.Q_CLUSTER["max_rss"] if name == "WORKER_MAX_RSS_KB" else getattr(settings, name))


def check_ranges() -> Found:
    bad = [name for name in POSITIVE if value(name) <= 0]
    bad += [name for name in NOT_NEGATIVE if value(name) < 0]
    for name in bad:
        yield Error(f"{name} is too small to work with.", hint=f"Unset {name}, or raise it.", id="accessa.E225")
    try:
        chunking.get_chunker(settings.CHUNKER)
    except ImproperlyConfigured as error:
        yield Error(str(error), hint="Correct CHUNKER.", id="accessa.E226")
    page = _page_cents()
    if 0 < settings.TENANT_DAILY_CENTS < page:
        hint = f"Raise TENANT_DAILY_CENTS above {page:g}, or set it to 0 for no limit."
        yield Warning("TENANT_DAILY_CENTS does not pay for one page.", hint=hint, id="accessa.W227")
    yield from _times()


def _page_cents() -> float:
    parse = settings.LLAMAPARSE_CREDITS_PER_PAGE * settings.LLAMAPARSE_CENTS_PER_CREDIT
    embedding = settings.TOKENS_PER_PAGE * settings.OPENAI_CENTS_PER_MILLION_TOKENS / 1_000_000
    return (parse if settings.PARSER == "llamaparse" else 0) + (embedding if settings.EMBEDDER == "openai" else 0)


SHORTEST_TOKEN_SECONDS = 1800  # HubSpot's: refreshed so long before its end, it would be refreshed for every page


def _ingestion() -> Found:
    if settings.INGESTION_MAX_DELIVERIES < 2:
        hint = "Unset INGESTION_MAX_DELIVERIES, or raise it to 2 or more."
        yield Error("The first delivery of a page is given up untried.", hint=hint, id="accessa.E241")
    if settings.TOKEN_REFRESH_SKEW_SECONDS >= SHORTEST_TOKEN_SECONDS:
        hint = f"Lower TOKEN_REFRESH_SKEW_SECONDS below {SHORTEST_TOKEN_SECONDS}."
        yield Warning("A token would be refreshed for every page.", hint=hint, id="accessa.W242")
    if 1 < settings.WORKERS <= settings.INGESTION_WORKERS:
        hint = "Lower INGESTION_WORKERS below WORKERS, or unset it."
        yield Warning("Connectors may take all workers, and uploads wait.", hint=hint, id="accessa.W243")


def _times() -> Found:
    """Times that only make sense in an order."""
    pairs = (
        ("JOBS_DRAIN_SECONDS", "JOBS_LEASE_SECONDS", "a drain must end within a lease"),
        ("JOBS_STOP_GRACE_SECONDS", "JOBS_STOP_SECONDS", "what is held is let go before the cluster is killed"),
        ("PARSE_POLL_FIRST_SECONDS", "PARSE_POLL_MOST_SECONDS", "the first poll comes before the longest pause"),
        ("VENDOR_TIMEOUT_SECONDS", "INGESTION_VT_SECONDS", "a call ends before its message is seen by another worker"),
    )
    for small, large, because in pairs:
        if getattr(settings, small) >= getattr(settings, large):
            hint = f"Lower {small}, or raise {large}."
            yield Warning(f"{small} is not below {large}: {because}.", hint=hint, id="accessa.W228")
    if settings.JOBS_STOP_SECONDS >= 30:
        hint = "Set JOBS_STOP_SECONDS below 30, and the supervisor's own limit above it."
        yield Warning("A stop is promised within 30 s.", hint=hint, id="accessa.W229")
    if settings.JOBS_LEASE_SECONDS < 3:
        hint = "Raise JOBS_LEASE_SECONDS to 3 or more."
        yield Warning("A lease is renewed each third of it; this one ends between two.", hint=hint, id="accessa.W230")
    yield from _ingestion()
    if settings.VENDOR_BREAKER_FAULTS > settings.JOBS_MAX_RETRIES + 1:
        hint = "Lower VENDOR_BREAKER_FAULTS."
        yield Warning("A vendor's outage buries jobs before its breaker opens.", hint=hint, id="accessa.W231")
