"""System checks of a deployment (`manage.py check --deploy`): no development default is left."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage

from accessa.checks.connectors import CONNECTOR_DEPLOYMENT_RULES
from accessa.checks.rules import Rule, check_rules, is_local
from accessa.checks.statutes import STATUTE_DEPLOYMENT_RULES

EMBEDDED = "accessa.embedded_postgres.backend"
LOCAL_FILES = "documents.storage.local.LocalSignedStorage"

# fmt: off
DEPLOYMENT_RULES = (
    Rule("accessa.E101", lambda s: s.DATABASES["default"]["ENGINE"] == EMBEDDED,
         "The embedded PostgreSQL serves one machine.", "Set DATABASE_URL."),
    Rule("accessa.E102", lambda s: s.STORAGES["raw"]["BACKEND"] == LOCAL_FILES,
         "Files are kept on this machine's disk.", "Set up a bucket."),
    Rule("accessa.E103", lambda s: s.SECRET_KEY_IS_LOCAL,
         "SECRET_KEY is this machine's own development key.", "Set SECRET_KEY."),
    Rule("accessa.E104", lambda s: s.DEBUG, "DEBUG shows settings and rows to strangers.", "Unset DEBUG."),
    Rule("accessa.E117", lambda s: s.WEBHOOKS_ALLOW_LOOPBACK,
         "Tenants' webhooks may reach services of the workers' own machine.", "Unset WEBHOOKS_ALLOW_LOOPBACK."),
    Rule("accessa.E116", lambda s: s.STORAGE == "s3" and not s.S3_ENCRYPTION,
         "Nothing says that tenants' files are encrypted at rest.",
         "Set S3_ENCRYPTION to AES256 or aws:kms; or to bucket-default if the buckets, or their disks, encrypt."),
    Rule("accessa.W107", lambda s: s.TRUSTED_PROXIES < 1 and not is_local(s.PUBLIC_URL),
         "PUBLIC_URL is public and TRUSTED_PROXIES is 0: behind a proxy all clients have its address, and one client"
         " that guesses passwords locks out all.",
         "Set TRUSTED_PROXIES to the number of your own proxies that a request passes, which set X-Forwarded-For."),
    Rule("accessa.W108", lambda s: not s.METRICS_TOKEN and not is_local(s.PUBLIC_URL),
         "PUBLIC_URL is public and METRICS_TOKEN is not set: through a proxy on this host that adds no header of its"
         " own, strangers can read /metrics.",
         "Set METRICS_TOKEN, and give it to Prometheus."),
    Rule("accessa.W118", lambda s: not s.EMAIL_HOST,
         "Mails are printed where the workers' output goes, with links by which a password is chosen.",
         "Set EMAIL_HOST and DEFAULT_FROM_EMAIL."),
    Rule("accessa.E119", lambda s: s.EMAIL_USE_TLS and s.EMAIL_USE_SSL,
         "EMAIL_USE_TLS and EMAIL_USE_SSL exclude each other: no mail could be sent.", "Unset one of them."),
)
# fmt: on


def check_deployment(*, app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    return list(check_rules((*DEPLOYMENT_RULES, *CONNECTOR_DEPLOYMENT_RULES, *STATUTE_DEPLOYMENT_RULES)))
