"""Settings of the statute worker (spec 004), imported by accessa.settings."""

from accessa.env import Env
from accounts.system_tenant import SYSTEM_TENANT_ID

__all__ = [
    "EMBEDDERS_OF", "JOBS_ACTIVE_OF", "SQS_ENDPOINT_URL", "SQS_MESSAGES_AT_ONCE", "SQS_PRIORITY_QUEUE_URL",
    "SQS_QUEUE_URL", "SQS_REGION", "SQS_VISIBILITY_SECONDS", "SQS_WAIT_SECONDS", "STATUTES_AT_ONCE", "STATUTES_BUCKET",
    "STATUTES_EMBEDDER", "STATUTES_FAILED_DAYS", "STATUTES_LAMBDA", "STATUTES_MAX_BYTES", "STATUTES_RAW_BUCKETS",
    "STATUTES_REPROCESS_MOST", "STATUTES_S3_ENDPOINT_URL", "TITAN_CENTS_PER_MILLION_TOKENS", "TITAN_ENDPOINT_URL",
    "TITAN_MODEL", "TITAN_REGION", "TITAN_REQUESTS_PER_MINUTE",
]  # fmt: skip

env = Env()

SQS_QUEUE_URL = env.str("SQS_QUEUE_URL", default="")
SQS_PRIORITY_QUEUE_URL = env.str("SQS_PRIORITY_QUEUE_URL", default="")  # read first, if set
SQS_REGION = env.str("SQS_REGION", default="us-east-1")
SQS_ENDPOINT_URL = env.str("SQS_ENDPOINT_URL", default="") or None
SQS_WAIT_SECONDS = env.int("SQS_WAIT_SECONDS", default=20)  # long polling's most
SQS_VISIBILITY_SECONDS = env.int("SQS_VISIBILITY_SECONDS", default=300)  # renewed every third while work goes on
SQS_MESSAGES_AT_ONCE = env.int("SQS_MESSAGES_AT_ONCE", default=1)  # spec 004 §3.1
# Active jobs of statutes: more than JOBS_ACTIVE_PER_USER, each yields to tenants between its stages.
STATUTES_AT_ONCE = env.int("STATUTES_AT_ONCE", default=8)
JOBS_ACTIVE_OF = {SYSTEM_TENANT_ID: STATUTES_AT_ONCE}
STATUTES_BUCKET = env.str("STATUTES_BUCKET", default="")
# Other buckets that a message may name: every tenant can search their statutes.
STATUTES_RAW_BUCKETS = [name.strip() for name in env.list("STATUTES_RAW_BUCKETS", default=[])]
STATUTES_S3_ENDPOINT_URL = env.str("STATUTES_S3_ENDPOINT_URL", default="") or None
STATUTES_MAX_BYTES = env.int("STATUTES_MAX_BYTES", default=100 * 1024 * 1024)
STATUTES_EMBEDDER = env.str("STATUTES_EMBEDDER", default="")  # titan, openai, local …; empty: EMBEDDER
# Tenants whose documents are embedded with another model than EMBEDDER: the system tenant.
EMBEDDERS_OF = {SYSTEM_TENANT_ID: STATUTES_EMBEDDER} if STATUTES_EMBEDDER else {}
STATUTES_REPROCESS_MOST = env.int("STATUTES_REPROCESS_MOST", default=3)  # messages for a statute's missing vectors
STATUTES_FAILED_DAYS = env.int("STATUTES_FAILED_DAYS", default=30)  # then failed versions are deleted; 0: never
STATUTES_LAMBDA = env.str("STATUTES_LAMBDA", default="")  # invoked with the manifest's key when a statute is uploaded
TITAN_MODEL = env.str("TITAN_MODEL", default="amazon.titan-embed-text-v1")  # 1536 wide; v2 is padded
TITAN_REGION = env.str("TITAN_REGION", default="us-east-1")
TITAN_ENDPOINT_URL = env.str("TITAN_ENDPOINT_URL", default="") or None
TITAN_REQUESTS_PER_MINUTE = env.int("TITAN_REQUESTS_PER_MINUTE", default=2_000)
TITAN_CENTS_PER_MILLION_TOKENS = env.float("TITAN_CENTS_PER_MILLION_TOKENS", default=10.0)
