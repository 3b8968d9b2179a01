"""The table of doctor's checks, in the order in which they run and are printed."""

from dataclasses import replace
from functools import partial

from django.conf import settings
from django.core.checks import run_checks as run_system_checks

from accessa.checks.deployment import check_deployment
from accessa.checks.rules import is_local
from accessa.doctor import (
    broker,
    clocks,
    clusters,
    connectors,
    database,
    embedders,
    file_store,
    parsers,
    public_urls,
    replica,
    statutes,
    supabase_jwks,
    tenant_isolation,
    upgrade,
)
from accessa.doctor.findings import system_check_findings
from accessa.doctor.runner import Check

FIREWALL = "Look whether a firewall or a proxy drops the packets."
DATABASE_FIREWALL = "Look whether a firewall drops packets to the database, or its pooler has no connection left."
MIGRATED = ("migrations",)
# fmt: off
CHECKS = (
    #     name              printed when it passes                          function
    Check("configuration", "No setting contradicts another.",
          lambda: system_check_findings(run_system_checks())),
    Check("deployment", "No development default is left at a public address.",
          lambda: system_check_findings(() if is_local(settings.PUBLIC_URL) else check_deployment(app_configs=None))),
    Check("database", "It answers, with its extension and its roles.", database.check_connection,
          timeout_remedy=DATABASE_FIREWALL),
    Check("migrations", "All are applied, and none is of a newer version.", database.check_migrations, ("database",)),
    Check("tenants", "No tenant reads or writes another's rows.", tenant_isolation.check_isolation, MIGRATED, 20),
    Check("limits", "Connections, timeouts, autovacuum and disk are sufficient.", database.check_limits, MIGRATED),
    Check("replica", "A standby of this primary, which keeps up.", replica.check_replica, MIGRATED,
          timeout_remedy=DATABASE_FIREWALL),
    Check("broker", "A NOTIFY reaches another session.", broker.check_broker, ("database",)),
    Check("workers", "Alive:", clusters.check_workers, MIGRATED),
    Check("likeness", "All workers run with this configuration and this code.", clusters.check_configuration,
          ("workers",)),
    Check("connectors", "Only the application may call the queue, and tokens can be read.",
          connectors.check_connectors, MIGRATED),
    Check("api", "PUBLIC_URL leads to this deployment.", public_urls.check_api, timeout_remedy=FIREWALL),
    Check("storage-raw", "Written, signed PUT and GET, refused to strangers, deleted.",
          partial(file_store.check_storage, "raw"), timeout=30, timeout_remedy=FIREWALL),
    Check("storage-parsed", "Written, signed PUT and GET, refused to strangers, deleted.",
          partial(file_store.check_storage, "parsed"), timeout=30, timeout_remedy=FIREWALL),
    Check("clocks", "Within a minute of each other.", clocks.check_clocks, MIGRATED, 20),
    Check("pdf", "A PDF is read in its sandboxed process.", parsers.check_pdf, timeout=40),
    Check("ocr", "A page image can be recognized here.", parsers.check_ocr, timeout=60),
    Check("parser", "LlamaParse takes the key.", parsers.check_llamaparse),
    Check("embedder", "A word becomes a vector of 1536 numbers.", embedders.check_embedder, ("database",), 15),
    Check("titan", "A word becomes a vector of 1536 numbers.", embedders.check_titan, ("database",), 15),
    Check("statutes-queue", "It answers, and has consumers.", statutes.check_queues, MIGRATED, 30, FIREWALL),
    Check("statutes-bucket", "Written, read and emptied below the prefixes of artifacts.", statutes.check_bucket,
          timeout=60, timeout_remedy=FIREWALL),
    Check("signers", "The keys of tenants' tokens can be fetched.", supabase_jwks.check_jwks),
    Check("callback", "Reached, valid with each secret, refused when forged.", public_urls.check_webhook,
          timeout_remedy=FIREWALL),
    Check("cors-api", "Browsers of the named origins may call, others not.", public_urls.check_api_cors, ("api",)),
    Check("cors-bucket", "Browsers may upload.", public_urls.check_bucket_cors, ("storage-raw",)),
)
SHARED = {check.name: replace(check, needs=("database",)) for check in CHECKS}
# By the new version, before it migrates: what the old one serves, meanwhile and after.
UPGRADE_CHECKS = (
    replace(SHARED["configuration"], needs=()),
    replace(SHARED["database"], needs=()),
    Check("pending", "Migrations only add.", upgrade.check_pending_migrations, ("database",)),
    Check("jobs", "This version continues each unfinished job.", upgrade.check_unfinished_jobs, ("database",), 60),
    Check("sessions", "Connections suffice for both versions, and no long transaction is open.",
          upgrade.check_sessions, ("database",)),
    SHARED["limits"],
    SHARED["replica"],
    Check("backups", "Nothing says that they have stopped.", upgrade.check_backups, ("database",)),
)
# fmt: on
