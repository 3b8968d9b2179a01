"""System checks of the settings: URLs, storage, vendors, Supabase, keys, numbers, times."""

import os
import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import jwt
from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage

from accessa import env
from accessa.checks.connectors import CONNECTOR_RULES
from accessa.checks.rules import Rule, check_rules, configuration_error, is_allowed, is_local, is_public, is_url, number
from accessa.checks.statutes import STATUTE_RULES
from documents.parsers import registry
from embeddings.chunking import chunkers
from embeddings.embedders.registry import EMBEDDERS, SENTENCE_MODELS, find_error, missing_packages
from vendors.webhook_secrets import PREFIX, standard_key

POSITIVE = (
    "WORKERS", "WORKER_MAX_RSS_KB", "MAX_FILE_BYTES", "MAX_PAGES", "MAX_FILENAME_CHARS", "MAX_SEARCH_RESULTS",
    "MAX_QUERY_CHARS", "UPLOADS_PER_DAY", "UPLOAD_REQUESTS_PER_MINUTE", "POLLS_PER_MINUTE", "SIGNED_URL_SECONDS",
    "PAGE_VIEWS_PER_MINUTE", "SEARCHES_PER_MINUTE", "TOKENS_PER_PAGE", "CAMPAIGN_JOBS", "INDEX_PROBE_SECONDS",
    "JOBS_ACTIVE_PER_USER", "JOBS_LEASE_SECONDS", "JOBS_DRAIN_SECONDS", "JOBS_STOP_SECONDS", "JOBS_HANG_SECONDS",
    "JOBS_PERIODIC_SECONDS", "PARSE_POLL_FIRST_SECONDS", "PARSE_POLL_MOST_SECONDS", "EMBED_BATCH", "EMBED_IN_FLIGHT",
    "EMBED_BATCH_TOKENS", "EMBEDDING_BATCH_SIZE", "VENDOR_TIMEOUT_SECONDS", "VENDOR_BREAKER_FAULTS",
    "VENDOR_BREAKER_SECONDS", "INGESTION_VT_SECONDS", "INGESTION_MAX_DELIVERIES", "INGESTION_PAGE_SIZE",
    "INGESTION_PAGE_SECONDS", "GMAIL_INITIAL_SYNC_MAX_THREADS", "DRIVE_INITIAL_SYNC_MAX_FILES", "IMPORTS_PER_DAY",
    "ANSWER_SECONDS", "ANSWERS_AT_ONCE", "ANSWERS_AT_ONCE_PER_TENANT", "WEB_THREADS", "MCP_THREADS",
    "OUTBOX_KEEP_DAYS", "RERANKER_TIMEOUT_SECONDS", "EMAIL_PORT", "VECTOR_INDEX_MEMORY_MB",
    "STATUTES_MAX_BYTES", "SQS_VISIBILITY_SECONDS", "SQS_MESSAGES_AT_ONCE", "SQS_WAIT_SECONDS", "STATUTES_AT_ONCE",
)  # fmt: skip
NOT_NEGATIVE = (  # 0 means no limit, or none
    "OPENAI_REQUESTS_PER_MINUTE", "LLAMAPARSE_REQUESTS_PER_MINUTE", "TRUSTED_PROXIES", "CONN_MAX_AGE",
    "TENANT_DAILY_CENTS", "OPENAI_CENTS_PER_MILLION_TOKENS", "OPENAI_TOKENS_PER_MINUTE", "SEARCH_EXACT_PASSAGES",
    "LLAMAPARSE_CREDITS_PER_PAGE", "LLAMAPARSE_CENTS_PER_CREDIT", "JOBS_MAX_RETRIES", "JOBS_RETRY_BASE_SECONDS",
    "JOBS_STOP_GRACE_SECONDS", "TOKEN_REFRESH_SKEW_SECONDS", "INGESTION_WORKERS", "INGESTION_OVERLAP_SECONDS",
    "TITAN_REQUESTS_PER_MINUTE", "TITAN_CENTS_PER_MILLION_TOKENS", "STATUTES_REPROCESS_MOST",
    "STATUTES_FAILED_DAYS", "OPENAI_ANSWER_INPUT_CENTS", "OPENAI_ANSWER_OUTPUT_CENTS",
    "OPENAI_ANSWER_REQUESTS_PER_MINUTE", "OPENAI_ANSWER_TOKENS_PER_MINUTE", "RERANKER_CENTS_PER_CALL",
)  # fmt: skip
IN_ORDER = (  # the first must be below the second
    ("JOBS_DRAIN_SECONDS", "JOBS_LEASE_SECONDS", "a drain must end within a lease"),
    ("JOBS_STOP_GRACE_SECONDS", "JOBS_STOP_SECONDS", "leases are released before the cluster is killed"),
    ("PARSE_POLL_FIRST_SECONDS", "PARSE_POLL_MOST_SECONDS", "the first poll comes before the longest pause"),
    ("VENDOR_TIMEOUT_SECONDS", "INGESTION_VT_SECONDS", "a call ends before another worker sees its message"),
)
EMBEDDER_SETTINGS = {"openai": ("OPENAI_API_KEY",), "remote": ("BOOTS_BRAIN_URL", "BRAIN_API_SECRET")}
KEYS = (
    "LLAMAPARSE_API_KEY", "OPENAI_API_KEY", "S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY", "SUPABASE_ANON_KEY",
    "SUPABASE_SERVICE_ROLE", "SUPABASE_JWT_SECRET", "BRAIN_API_SECRET", "RERANKER_API_KEY", "SECRET_KEY",
)  # fmt: skip
FOREIGN_PREFIXES = {"OPENAI_API_KEY": ("llx-", "sb_", "eyJ"), "LLAMAPARSE_API_KEY": ("sk-", "sb_", "eyJ")}
# Blanks or a quote around the key, or a placeholder.
BADLY_PASTED = re.compile(r"(?s:\s.*|.*\s|['\"].*|.*\n.*)|<.*>|change-?me|xxx+|\.{3}|…")
SHORTEST_SECRET = 32  # bytes of a key for HS256: RFC 7518 §3.2
SUPABASE_ROLES = {"SUPABASE_ANON_KEY": "anon", "SUPABASE_SERVICE_ROLE": "service_role"}
SUPABASE_PROJECT_URL = re.compile(r"https://([a-z0-9]{20})\.(?:storage\.)?supabase\.co")


def check_settings(*, app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    return list(check_rules((*SETTINGS_RULES, *CONNECTOR_RULES, *STATUTE_RULES)))


def _cents_per_page(s: Any) -> float:
    parse = s.LLAMAPARSE_CREDITS_PER_PAGE * s.LLAMAPARSE_CENTS_PER_CREDIT if s.PARSER == "llamaparse" else 0.0
    embedding = s.TOKENS_PER_PAGE * s.OPENAI_CENTS_PER_MILLION_TOKENS / 1_000_000 if s.EMBEDDER == "openai" else 0.0
    return float(parse + embedding)


def jwt_claims(key: str) -> dict[str, Any]:
    """Return the unverified claims of a JWT; an empty dict for another kind of key."""
    try:
        return dict(jwt.decode(key, options={"verify_signature": False}))
    except jwt.PyJWTError:
        return {}


def _several_projects(s: Any) -> list[str]:
    urls = {name: SUPABASE_PROJECT_URL.match(getattr(s, name) or "")
            for name in ("SUPABASE_URL", "SUPABASE_JWKS_URL", "S3_ENDPOINT_URL")}  # fmt: skip
    refs = {name: match[1] for name, match in urls.items() if match}
    refs |= {name: str(ref) for name in SUPABASE_ROLES if (ref := jwt_claims(getattr(s, name)).get("ref"))}
    return [", ".join(f"{name} is of {ref}" for name, ref in refs.items())] if len(set(refs.values())) > 1 else []


def _wrong_roles() -> Iterator[tuple[str, str]]:
    for name, role in SUPABASE_ROLES.items():
        key = getattr(settings, name)
        claims = jwt_claims(key)
        is_opposite = key.startswith("sb_secret_" if role == "anon" else "sb_publishable_")
        if is_opposite or (claims and claims.get("role") != role):
            yield name, role


def _is_signed(key: str) -> bool:
    try:
        if jwt.get_unverified_header(key).get("alg") != "HS256":
            return True
        jwt.decode(key, settings.SUPABASE_JWT_SECRET, ["HS256"], options={"verify_aud": False, "verify_exp": False})
    except jwt.PyJWTError:
        return False
    return True


# fmt: off
SETTINGS_RULES = (
    # --- addresses
    Rule("accessa.E201", lambda s: not re.fullmatch(r"https?://[^/\s?#]+(/[^\s?#]*)?", s.PUBLIC_URL),
         "PUBLIC_URL is no address.", "Set it to scheme://host[:port]."),
    Rule("accessa.W202", lambda s: is_url(s.PUBLIC_URL) and not is_allowed(s.PUBLIC_URL),
         "The host of PUBLIC_URL is not in ALLOWED_HOSTS: the API refuses requests to that host.",
         "Add it to ALLOWED_HOSTS."),
    Rule("accessa.W203",
         lambda s: is_public(s.PUBLIC_URL) and s.PUBLIC_URL.startswith("http:") and s.SESSION_COOKIE_SECURE,
         "Nobody can sign in: PUBLIC_URL is http, and cookies are for https.",
         "Set PUBLIC_URL to https (or SECURE_COOKIES=false, for a private network)."),
    Rule("accessa.W204", lambda s: is_public(s.PUBLIC_URL) and s.DEBUG,
         "DEBUG is on at a public address: strangers see settings and rows.", "Unset DEBUG."),
    Rule("accessa.W205", lambda s: is_public(s.PUBLIC_URL) and s.STORAGE == "local",
         "Files are kept on this machine's disk, and PUBLIC_URL is not this machine.",
         "Set up a bucket (S3_ACCESS_KEY_ID …), unless there will only ever be this one machine."),
    Rule("accessa.W232", lambda s: [origin for origin in s.CORS_ALLOWED_ORIGINS if origin.startswith("http:")
                                    and not is_local(origin) and s.PUBLIC_URL.startswith("https:")],
         "The origin {0} is not https: its traffic can be read and changed on the way.", "Name it with https://."),
    # --- storage
    Rule("accessa.W206", lambda s: s.STORAGE == "local" and bool(s.S3_ACCESS_KEY_ID or s.S3_SECRET_ACCESS_KEY),
         "S3 keys are set, and STORAGE=local keeps files on this disk.", "Unset STORAGE, or unset the keys."),
    Rule("accessa.E235", lambda s: s.STORAGE == "s3" and bool(s.S3_ENDPOINT_URL) and not is_url(s.S3_ENDPOINT_URL),
         "S3_ENDPOINT_URL is no address.", "Set it to scheme://host[:port]."),
    Rule("accessa.E207",
         lambda s: s.STORAGE == "s3" and bool(s.S3_ACCESS_KEY_ID) != bool(s.S3_SECRET_ACCESS_KEY),
         "Only half of the S3 key is set.", "Set both S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY."),
    Rule("accessa.E208", lambda s: s.STORAGE == "s3" and s.S3_RAW_BUCKET == s.S3_PARSED_BUCKET,
         "Raw and parsed files have one bucket.", "Give S3_RAW_BUCKET and S3_PARSED_BUCKET a bucket each."),
    Rule("accessa.E209", lambda s: s.STORAGE == "s3"
         and s.S3_ENCRYPTION not in ("", "bucket-default", "AES256", "aws:kms", "aws:kms:dsse"),
         "S3 does not know this S3_ENCRYPTION.", "Set it to AES256, aws:kms or bucket-default."),
    Rule("accessa.E210", lambda s: s.STORAGE == "s3" and bool(s.S3_KMS_KEY_ID)
         and not s.S3_ENCRYPTION.startswith("aws:kms"),
         "S3_KMS_KEY_ID has no effect without aws:kms.", "Set S3_ENCRYPTION=aws:kms."),
    # --- vendors
    Rule("accessa.E211", lambda s: configuration_error(lambda: registry.configured_parser(ocr=False)),
         "{0}", "Correct PARSER."),
    Rule("accessa.E212", lambda s: s.PARSER == "llamaparse" and not s.LLAMAPARSE_API_KEY,
         "PARSER=llamaparse has no key.", "Set LLAMAPARSE_API_KEY, or PARSER=local."),
    Rule("accessa.W213", lambda s: bool(s.LLAMAPARSE_API_KEY) and s.PARSER == "local",
         "LLAMAPARSE_API_KEY is set, and PARSER=local ignores it.", "Unset PARSER to use it, or unset the key."),
    Rule("accessa.E214", lambda s: [(s.EMBEDDER, name) for name in EMBEDDER_SETTINGS.get(s.EMBEDDER, ())
                                    if not getattr(s, name)],
         "EMBEDDER={0} needs {1}.", "Set {1}, or EMBEDDER=local."),
    Rule("accessa.E214", lambda s: [(s.EMBEDDER, ", ".join(sorted(EMBEDDERS)))]
         if s.EMBEDDER not in EMBEDDERS and "." not in s.EMBEDDER else (),
         "There is no embedder {0!r}.", "Use one of {1}, or the dotted path of a class."),
    Rule("accessa.E260", lambda s: [", ".join(missing)]
         if (missing := dict.fromkeys(missing_packages() + missing_packages(s.SENTENCE_MODEL))) else (),
         "The configured embedder needs packages that are not installed: {0}.",
         "Install them: pip install -r requirements/base.txt; or set EMBEDDER=local and SENTENCE_MODEL=none."),
    Rule("accessa.E265", lambda s: [(s.SENTENCE_MODEL, ", ".join(SENTENCE_MODELS))]
         if s.SENTENCE_MODEL not in SENTENCE_MODELS and "." not in s.SENTENCE_MODEL else (),
         "There is no sentence model {0!r}.", "Use one of {1}."),
    Rule("accessa.E265", lambda s: [(s.SENTENCE_MODEL, error)]
         if "." in s.SENTENCE_MODEL and (error := find_error(s.SENTENCE_MODEL)) else (),
         "SENTENCE_MODEL={0} is no embedder: {1}", "Correct the dotted path, or use minilm or none."),
    Rule("accessa.W215", lambda s: bool(s.OPENAI_API_KEY) and s.EMBEDDER == "local" and s.ANSWERER != "openai",
         "OPENAI_API_KEY is set, and EMBEDDER=local ignores it.", "Unset EMBEDDER to use it, or unset the key."),
    Rule("accessa.E263", lambda s: s.ANSWERER not in ("extractive", "openai"),
         "There is no such ANSWERER.", "Set it to extractive or openai."),
    Rule("accessa.E264", lambda s: s.ANSWERER == "openai" and not s.OPENAI_API_KEY,
         "ANSWERER=openai has no key.", "Set OPENAI_API_KEY, or ANSWERER=extractive."),
    Rule("accessa.E216", lambda s: s.BOOTS_BRAIN_URL.rstrip("/") == s.PUBLIC_URL != "",
         "BOOTS_BRAIN_URL leads to this very deployment.",
         "Set BOOTS_BRAIN_URL to the deployment that embeds for this one."),
    Rule("accessa.E262", lambda s: bool(s.RERANKER) and not re.match(r"https?://[^/\s]+\S*\Z", s.RERANKER),
         "RERANKER is not an address.", "Set the whole address of the service's /rerank: https://api.example.com/rerank."),
    Rule("accessa.E268", lambda s: s.SEARCH_ENGINE == "milvus" and find_spec("pymilvus") is None,
         "SEARCH_ENGINE=milvus needs a package that is missing.", "Install requirements/optional.txt on all hosts."),
    Rule("accessa.W261", lambda s: bool(s.BOOTS_BRAIN_URL) and not s.BRAIN_API_SECRET and s.EMBEDDER != "remote",
         "BOOTS_BRAIN_URL is set without BRAIN_API_SECRET: EMBEDDER embeds records, not the other deployment.",
         "Set BRAIN_API_SECRET to the other deployment's, or unset BOOTS_BRAIN_URL."),
    Rule("accessa.E217", lambda s: [(position, PREFIX)
                                    for position, secret in enumerate(s.LLAMAPARSE_WEBHOOK_SECRETS, start=1)
                                    if secret.startswith(PREFIX) and standard_key(secret) is None],
         "Secret number {0} of LLAMAPARSE_WEBHOOK_SECRETS begins with {1} and is no base64.",
         "Make one with: echo whsec_$(openssl rand -base64 32)"),
    Rule("accessa.E218", lambda s: [s.PUBLIC_URL] * (
            urlsplit(s.LLAMAPARSE_CALLBACK_URL).hostname == urlsplit(s.PUBLIC_URL).hostname is not None
            and urlsplit(s.LLAMAPARSE_CALLBACK_URL).path != "/webhooks/llamaparse"),
         "LLAMAPARSE_CALLBACK_URL is not the address of this API's webhook.",
         "Set it to {0}/webhooks/llamaparse, or unset it."),
    # --- keys: pasted badly, or into the wrong variable
    Rule("accessa.E219", lambda s: [name for name in KEYS if BADLY_PASTED.fullmatch(getattr(s, name))],
         "{0} has blanks or quotes around it, or is a placeholder.", "Paste it again, without quotes or blanks."),
    Rule("accessa.E220",
         lambda s: [name for name, foreign in FOREIGN_PREFIXES.items() if getattr(s, name).startswith(foreign)],
         "{0} holds the key of another vendor.", "Exchange them."),
    # --- numbers and times
    Rule("accessa.E225", lambda s: [name for name in POSITIVE if number(name) <= 0]
         + [name for name in NOT_NEGATIVE if number(name) < 0],
         "{0} is too small to work with.", "Unset {0}, or raise it."),
    Rule("accessa.E226", lambda s: configuration_error(lambda: chunkers.get_chunker(s.CHUNKER)),
         "{0}", "Correct CHUNKER."),
    Rule("accessa.W227", lambda s: [_cents_per_page(s)] * (0 < s.TENANT_DAILY_CENTS < _cents_per_page(s)),
         "TENANT_DAILY_CENTS does not pay for one page.",
         "Raise TENANT_DAILY_CENTS above {0:g}, or set it to 0 for no limit."),
    Rule("accessa.W228", lambda s: [row for row in IN_ORDER if getattr(s, row[0]) >= getattr(s, row[1])],
         "{0} is not below {1}: {2}.", "Lower {0}, or raise {1}."),
    Rule("accessa.W229", lambda s: s.JOBS_STOP_SECONDS >= 30,
         "A stop is promised within 30 s.", "Set JOBS_STOP_SECONDS below 30, and the supervisor's own limit above it."),
    Rule("accessa.W230", lambda s: s.JOBS_LEASE_SECONDS < 3,
         "A lease is renewed after each third of it; this one expires between two renewals.",
         "Raise JOBS_LEASE_SECONDS to 3 or more."),
    Rule("accessa.W231", lambda s: s.VENDOR_BREAKER_FAULTS > s.JOBS_MAX_RETRIES + 1,
         "A vendor's outage discards jobs before its circuit breaker opens.", "Lower VENDOR_BREAKER_FAULTS."),
    # --- Supabase: URL and keys belong to one project, each key to its role
    Rule("accessa.W221", lambda s: [s.SUPABASE_URL] * bool(
            s.SUPABASE_URL and not s.SUPABASE_JWT_SECRET and not s.SUPABASE_JWKS_URL),
         "SUPABASE_URL is set, and nothing verifies its tokens: tenants can sign in by API token only.",
         "Set SUPABASE_JWKS_URL={0}/auth/v1/.well-known/jwks.json, or SUPABASE_JWT_SECRET."),
    Rule("accessa.E266", lambda s: bool(s.MCP_AUTHORIZATION_SERVER)
                                    and not s.SUPABASE_JWT_SECRET and not s.SUPABASE_JWKS_URL,
         "MCP_AUTHORIZATION_SERVER is set, and nothing verifies its tokens: assistants that sign in there are refused.",
         "Set SUPABASE_JWKS_URL to its keys, and JWT_AUDIENCE to the audience of its tokens."),
    Rule("accessa.E234", lambda s: 0 < len(s.SUPABASE_JWT_SECRET.encode()) < SHORTEST_SECRET,
         f"SUPABASE_JWT_SECRET has fewer than {SHORTEST_SECRET} bytes: tokens that it signs can be forged by guessing.",
         "Copy the JWT secret from the project's API settings; or make your own: openssl rand -hex 32"),
    Rule("accessa.E222", _several_projects, "Supabase's address and keys are of different projects: {0}.",
         "Copy the URL and the keys from the API settings of the same project."),
    Rule("accessa.E223", lambda s: _wrong_roles(), "{0} is not a key of the role {1}.",
         "Copy the {1} key from the project's API settings."),
    Rule("accessa.E224", lambda s: [name for name, role in SUPABASE_ROLES.items() if s.SUPABASE_JWT_SECRET
                                    and jwt_claims(getattr(s, name)).get("role") == role
                                    and not _is_signed(getattr(s, name))],
         "SUPABASE_JWT_SECRET did not sign {0}: it is another project's.",
         "Copy both from the API settings of the same project."),
    # --- variables that nothing reads
    Rule("accessa.W233", lambda s: env.find_unread_variables(os.environ),
         "Nothing reads {0}.", "Did you mean {1}?"),
)
# fmt: on
