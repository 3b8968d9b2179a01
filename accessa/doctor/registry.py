"""Every check of doctor, in the order in which they are made."""

from __future__ import annotations

from functools import partial

from accessa.doctor import (
    bedrock,
    configuration,
    connectors,
    database,
    endpoints,
    schema_drift,
    statutes,
    storage,
    tenant_isolation,
    vendors,
    workers,
)
from accessa.doctor.runner import Check

DATABASE, API = ("database",), ("api",)
FIREWALL = "Look whether a firewall or a proxy swallows what is sent there."

CHECKS = (
    Check("configuration", "No setting contradicts another.", configuration.consistent),
    Check("deployment", "Nothing here is a laptop's default that others would meet.", configuration.deployed),
    Check(
        "database", "It answers, with its extension and its roles.", database.reachable,
        slow="Look whether a firewall drops the packets to the database, or its pooler has no connection left.",
    ),
    Check("migrations", "All are applied, and none is of a newer version.", database.migrations, DATABASE),
    Check("schema", "Tables, policies and triggers match the program.", schema_drift.drift, ("migrations",), 20),
    Check("tenants", "No tenant reads or writes another's rows.", tenant_isolation.apart, ("migrations",), 20),
    Check("limits", "Connections, timeouts, autovacuum and disk are sufficient.", database.limits, ("migrations",)),
    Check("doorbell", "A ring is heard on another session.", workers.doorbell, DATABASE),
    Check("workers", "Alive:", workers.alive, ("migrations",)),
    Check("likeness", "All workers run with this configuration and this code.", workers.alike, ("workers",)),
    Check("connectors", "The queue is ours alone, and tokens can be read.", connectors.working, ("migrations",)),
    Check("api", "PUBLIC_URL leads to this deployment.", endpoints.api, slow=FIREWALL),
    Check("storage-raw", "Written, signed PUT and GET, refused to strangers, deleted.",
          partial(storage.examined, "raw"), seconds=30, slow=FIREWALL),
    Check("storage-parsed", "Written, signed PUT and GET, refused to strangers, deleted.",
          partial(storage.examined, "parsed"), seconds=30, slow=FIREWALL),
    Check("clocks", "Within a minute of each other.", workers.clocks, ("migrations",), 20),
    Check("pdf", "A PDF is read in its capped process.", vendors.pdf, seconds=40),
    Check("ocr", "A picture of text would be read here.", vendors.ocr, seconds=60),
    Check("parser", "LlamaParse takes the key.", vendors.llamaparse),
    Check("embedder", "A word becomes a vector of 1536 numbers.", vendors.embedder, DATABASE, 15),
    Check("titan", "A word becomes a vector of 1536 numbers.", bedrock.titan, DATABASE, 15),
    Check("statutes-queue", "It answers, and its messages are taken.", statutes.queue,
          needs=("migrations",), seconds=30, slow=FIREWALL),
    Check("statutes-bucket", "Written, read and emptied where artifacts go.", statutes.bucket,
          seconds=60, slow=FIREWALL),
    Check("signers", "The keys of tenants' tokens can be had.", vendors.signers),
    Check("budget", "The shared budget answers.", workers.budget),
    Check("callback", "Reached, believed with each secret, refused when forged.", endpoints.callback, slow=FIREWALL),
    Check("cors-api", "Browsers of the named origins may call, others not.", endpoints.cors_of_api, API),
    Check("cors-bucket", "Browsers may upload.", endpoints.cors_of_bucket, ("storage-raw",)),
)  # fmt: skip
NAMES = tuple(check.name for check in CHECKS)
