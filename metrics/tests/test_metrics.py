"""What Prometheus reads: it parses, it is complete, it is for those who may ask, and names nobody's text."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families as parsed

from integrations.models import ConnectedSource, IngestionJob
from integrations.sync import sync_jobs
from jobs import claims
from jobs.cluster import registry
from metrics import event_counts, periodic
from metrics.gauges import KINDS
from metrics.models import DailySpend
from metrics.prometheus import ROLLUP_METRICS
from metrics.tests.event_histories import History, again, clock, figures
from statutes.models import Consumer, Law, LawVersion
from testing.personas import Person, plan_pdf
from vendors import call_metrics, guard, ledger
from vendors.models import VendorCall
from vendors.vendor import Vendor

pytestmark = pytest.mark.django_db(transaction=True)
VENDOR = Vendor("openai", "sk-secret", requests_per_minute=600)

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(**headers: str) -> Samples:
    answer = Client().get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.content
    families = list(parsed(answer.content.decode()))
    assert all(family.documentation for family in families)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"accessa_{name}", tuple(sorted(labels.items()))]


def test_an_upload_shows_in_every_figure_of_its_way(ana: Person) -> None:
    ana.ingest(plan_pdf("dental"))
    periodic.collect_metrics()  # the margin for open transactions has not passed
    let_the_margin_pass()
    again()

    samples = scraped()

    where = {"pipeline": "insurance"}
    assert value(samples, "jobs_ended_total", outcome="done", **where) == 1
    assert value(samples, "stage_seconds_count", stage="embedding", **where) == 1
    assert value(samples, "time_to_seconds_count", milestone="complete", **where) == 1
    assert value(samples, "time_to_seconds_count", milestone="first_embedding", **where) == 1
    assert value(samples, "time_to_seconds_bucket", milestone="complete", le="+Inf", **where) == 1
    assert value(samples, "pages_total") == 1
    assert value(samples, "passages_total") >= 1
    assert value(samples, "ann_probe_seconds_count", outcome="ok") == 1
    assert value(samples, "ann_probe_p95_seconds") > 0
    assert value(samples, "jobs", status="complete") == 1
    assert value(samples, "stored_documents", type="pdf") == 1
    assert value(samples, "stored_bytes", tenant=str(ana.id), type="pdf") > 0
    assert value(samples, "queue_lag_seconds") == 0


def let_the_margin_pass() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(1.1)")


def test_an_empty_database_has_every_name_and_no_cluster() -> None:
    samples = scraped()

    assert value(samples, "workers") == 0
    assert value(samples, "worker_utilization") == 0
    assert value(samples, "longest_waiting_seconds") == 0


def test_what_waits_starves_works_and_is_dead_is_told_apart(ana: Person, ben: Person, settings: Any) -> None:
    settings.JOBS_ACTIVE_PER_USER = 1
    ana.upload(plan_pdf("one"))
    ana.upload(plan_pdf("two"))
    assert claims.claim_next("test:1:1")
    ben.upload(plan_pdf("three"))
    ben.declare(plan_pdf("four"))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE upload_jobs SET updated_at = updated_at - interval '1 minute' WHERE state = 'queued'")
        cursor.execute(
            "UPDATE upload_jobs SET run_after = now() + interval '1 hour' WHERE job_id ="
            " (SELECT job_id FROM upload_jobs WHERE user_id = %s LIMIT 1)",
            [ben.id],
        )
    registry.record_heartbeat()
    again()

    samples = scraped()

    kinds = {kind: value(samples, "jobs_standing", kind=kind) for kind in KINDS}
    assert kinds == {"queued": 1, "starved": 1, "waiting": 1, "working": 1, "retrying": 0, "dead": 0}
    assert value(samples, "workers") == settings.WORKERS
    assert value(samples, "worker_utilization") == 1 / settings.WORKERS
    assert 60 <= value(samples, "queue_lag_seconds") < 70


def test_dead_letters_are_counted_by_stage_and_code(ana: Person) -> None:
    dead = ana.ingest(b"%PDF-1.7 this is none")
    again()

    (found,) = [dict(labels) for name, labels in scraped() if name == "accessa_dead_letters"]

    assert found == {"stage": "queued", "code": dead.failure}


def test_calls_of_vendors_are_timed_and_counted_once() -> None:
    with guard.guarded_call(VENDOR, "embed"):
        pass
    with pytest.raises(Exception, match="VENDOR_UNREACHABLE"), guard.guarded_call(VENDOR, "embed"):
        raise TimeoutError
    with pytest.raises(KeyError), guard.guarded_call(VENDOR, "embed"):  # a fault of ours
        raise KeyError
    assert VendorCall.objects.count() == 2

    History(clock() - timedelta(hours=1))
    periodic.collect_metrics()
    periodic.collect_metrics()

    assert {labels: figure.count for labels, figure in figures("vendor").items()} == {
        ("openai", "embed", "ok"): 1,
        ("openai", "embed", "VENDOR_UNREACHABLE"): 1,
    }
    assert value(scraped(), "vendor_call_seconds_count", vendor="openai", operation="embed", outcome="ok") == 1


def test_a_call_is_not_disturbed_by_a_database_that_does_not_take_its_time() -> None:
    with call_metrics.record_call(VENDOR, "embed"):
        pass
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE vendor_calls RENAME TO away")
        try:
            guard.record_success(VENDOR)
        finally:
            cursor.execute("ALTER TABLE away RENAME TO vendor_calls")

    assert VendorCall.objects.count() == 0


def test_an_open_breaker_shows() -> None:
    for _ in range(3):
        guard.record_failure(VENDOR, TimeoutError())

    assert value(scraped(), "vendor_breaker", vendor="openai", part="") == 1


def bought(user_id: Any, cents: str, *, stage: str = "embedding", **more: Any) -> Any:
    what: dict[str, Any] = {"vendor": "openai", "model": "m", "unit": "tokens", "quantity": 100}
    return ledger.reserve(user_id=user_id, cents=Decimal(cents), stage=stage, **what, **more)


def test_spend_is_that_of_the_books_with_what_retries_cost_and_what_is_unsettled(ana: Person) -> None:
    job = History(clock() - timedelta(minutes=5), user_id=ana.id)
    job.add(1, "CLAIMED", "embedding").add(2, "RETRY_SCHEDULED", "embedding", code="X")
    ledger.settle(bought(ana.id, "3"), quantity=90, cents=Decimal("2.5"))
    bought(ana.id, "4", job_id=job.job.pk)
    bought(ana.id, "8", job_id=job.job.pk, stage="job_validated")
    taken_back = bought(uuid4(), "100")
    again()
    ledger.void(taken_back)

    again()

    samples, labels = scraped(), {"day": "today", "vendor": "openai", "unit": "tokens"}
    assert value(samples, "spend_cents", **labels) == 14.5
    assert value(samples, "spend_retry_cents", **labels) == 4
    assert value(samples, "spend_unsettled_cents", **labels) == 12
    assert value(samples, "bought", **labels) == 290
    assert DailySpend.objects.count() == 1


def test_of_many_tenants_the_largest_are_named_and_the_rest_is_one() -> None:
    for _ in range(23):
        History(clock())
    again()

    sizes = {labels: size for (name, labels), size in scraped().items() if name == "accessa_stored_bytes"}
    found = {dict(labels)["tenant"]: size for labels, size in sizes.items()}

    assert len(found) == 21
    assert found["others"] == 3000


def test_with_a_token_nobody_else_may_read(settings: Any) -> None:
    settings.METRICS_TOKEN = "right"
    client = Client()

    assert client.get("/metrics", headers={"authorization": "Bearer right"}).status_code == 200
    for said in ("Bearer wrong", "Bearer ", "right", "", "Bearer rightish", "Bearer ri\u00e9"):
        assert client.get("/metrics", headers={"authorization": said}).status_code == 403, said
    assert client.get("/metrics").status_code == 403


@pytest.mark.parametrize(
    ("address", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("10.0.0.7", {}, 403),
        ("", {}, 403),
        ("127.0.0.1", {"x-forwarded-for": "127.0.0.1"}, 403),
        ("127.0.0.1", {"forwarded": "for=127.0.0.1"}, 403),
        ("127.0.0.1", {"authorization": "Bearer "}, 200),
    ],
)
def test_without_a_token_only_this_host_may_read(address: str, headers: dict[str, str], status: int) -> None:
    assert Client(REMOTE_ADDR=address).get("/metrics", headers=headers).status_code == status


def test_no_label_is_anybodys_text(ana: Person) -> None:
    job = History(clock() - timedelta(hours=1))
    job.add(1, "RETRY_SCHEDULED", "queued", code="Mrs Miller's own words")

    periodic.collect_metrics()

    assert ("accessa_retries_total", (("code", "other"), ("stage", "queued"))) in scraped()
    assert b"Miller" not in Client().get("/metrics").content


def test_every_figure_that_is_counted_is_told() -> None:
    assert {*event_counts.EVENT_METRICS, "vendor", event_counts.SYNC, event_counts.RECORDS} == set(ROLLUP_METRICS)


def test_syncs_that_ended_are_counted_once_and_what_stands_is_told(ana: Person) -> None:
    source = ConnectedSource.objects.create(user_id=ana.id, provider="hubspot")
    ConnectedSource.objects.create(user_id=ana.id, provider="gmail", status="error")
    at = clock() - timedelta(minutes=5)
    for status, code, written in (("completed", None, 40), ("failed", "max_retries_exceeded", 2)):
        job = IngestionJob.objects.create(
            user_id=ana.id, source=source, kind="full_sync", status=status, error_message=code, items_written=written,
            items_failed=1,
        )  # fmt: skip
        IngestionJob.objects.filter(pk=job.pk).update(created_at=at - timedelta(seconds=20), finished_at=at)
    History(at - timedelta(hours=1))  # from when on it is counted
    sync_jobs.start_sync(source, "full_sync", by="test")
    periodic.collect_metrics()

    again()

    samples = scraped()
    where = {"provider": "hubspot", "kind": "full_sync"}
    assert value(samples, "sync_seconds_count", outcome="completed", **where) == 1
    assert value(samples, "sync_seconds_sum", outcome="max_retries_exceeded", **where) == 20
    assert value(samples, "sync_records_total", provider="hubspot", outcome="written") == 42
    assert value(samples, "sync_records_total", provider="hubspot", outcome="failed") == 2
    assert value(samples, "ingestion_messages", state="visible") == 1
    assert value(samples, "ingestion_messages", state="held") == 0
    assert value(samples, "sources", provider="gmail", status="error") == 1


def test_consumers_their_messages_and_the_laws_are_told() -> None:
    now = clock()
    for name, state, seconds in (
        ("a:1", "processing", 2),
        ("b:1", "idle", 3),
        ("c:1", "idle", 300),
        ("d:1", "shutdown", 5),
    ):
        Consumer.objects.create(
            name=name, state=state, received=7, ended=5, failed=1, seen_at=now - timedelta(seconds=seconds)
        )
    Law.objects.create(law_id="LIVA", version="1", status="embedded")
    for version, status, minutes in (("1", "embedded", 90), ("2", "processing", 10), ("3", "normalized", 5)):
        LawVersion.objects.create(
            document_id=uuid4(),
            law_id="LIVA",
            version=version,
            status=status,
            updated_at=now - timedelta(minutes=minutes),
        )
    again()

    samples = scraped()

    states = {state: value(samples, "statutes_consumers", state=state) for state in Consumer.State.values}
    assert states == {"boot": 0, "init": 0, "idle": 1, "processing": 1, "wait": 0, "shutdown": 0}
    assert 2 <= value(samples, "statutes_consumer_silence_seconds") < 10
    assert value(samples, "statutes_messages_total", consumer="a:1", outcome="failed") == 1
    assert value(samples, "statutes_messages_total", consumer="c:1", outcome="received") == 7
    assert 600 <= value(samples, "statutes_still_seconds") < 660
    assert value(samples, "statutes_laws", status="embedded") == 1
    assert value(samples, "statutes_versions", status="processing") == 1
