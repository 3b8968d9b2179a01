"""Prometheus endpoint: it parses, is complete, needs permission, and repeats no tenant's text."""

from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families as parsed

from integrations.models import ConnectedSource, IngestionJob
from integrations.sync import lifecycle
from jobs import claims
from jobs.cluster import live_clusters
from metrics import event_counts, gauges, periodic
from metrics.gauges import KINDS
from metrics.models import DailySpend
from metrics.prometheus_collector import ROLLUP_METRICS
from metrics.tests.event_histories import History, collect_again, database_time, rollups_of
from outbox.models import EVENTS, Message, WebhookEndpoint
from outbox.webhooks import endpoints
from statutes.models import Consumer, Law, LawVersion
from testing.cluster import wait_until
from testing.personas import Person, plan_pdf
from vendors import calls, ledger
from vendors.models import VendorCall
from vendors.vendor_account import Vendor

pytestmark = pytest.mark.django_db(transaction=True)
VENDOR = Vendor("openai", "sk-secret", requests_per_minute=600)

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(**headers: str) -> Samples:
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


@pytest.mark.slow
def test_an_upload_shows_in_every_metric_of_its_pipeline(ana: Person) -> None:
    ana.ingest(plan_pdf("dental"))
    periodic.collect_metrics()  # the margin for open transactions has not passed
    wait_for_visibility()
    collect_again()

    samples = scrape()

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


def wait_for_visibility() -> None:
    now, _ = event_counts.visibility_horizon()
    wait_until(lambda: event_counts.visibility_horizon()[1] > now, seconds=10)


def test_an_empty_database_has_every_name_and_no_cluster() -> None:
    samples = scrape()

    assert value(samples, "workers") == 0
    assert value(samples, "worker_utilization") == 0
    assert value(samples, "longest_waiting_seconds") == 0


def test_kinds_of_waiting_jobs_are_distinguished(ana: Person, ben: Person, settings: Any) -> None:
    settings.JOBS_ACTIVE_PER_USER = 1
    ana.upload(plan_pdf("one"))
    ana.upload(plan_pdf("two"))
    assert claims.claim_next("test:1:1")
    ben.upload(plan_pdf("three"))
    ben.request_upload(plan_pdf("four"))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE upload_jobs SET updated_at = updated_at - interval '1 minute' WHERE state = 'queued'")
        cursor.execute(
            "UPDATE upload_jobs SET run_after = now() + interval '1 hour' WHERE job_id ="
            " (SELECT job_id FROM upload_jobs WHERE user_id = %s LIMIT 1)",
            [ben.id],
        )
    live_clusters.record_heartbeat()
    collect_again()

    samples = scrape()

    kinds = {kind: value(samples, "jobs_standing", kind=kind) for kind in KINDS}
    assert kinds == {"queued": 1, "starved": 1, "waiting": 1, "working": 1, "retrying": 0, "dead": 0}
    assert value(samples, "workers") == settings.WORKERS
    assert value(samples, "worker_utilization") == 1 / settings.WORKERS
    assert 60 <= value(samples, "queue_lag_seconds") < 70


def test_dead_letters_are_counted_by_stage_and_code(ana: Person) -> None:
    dead = ana.ingest(b"%PDF-1.7 this is none")
    collect_again()

    (labels,) = [dict(pairs) for name, pairs in scrape() if name == "accessa_dead_letters"]

    assert labels == {"stage": "queued", "code": dead.failure}


def test_calls_of_vendors_are_timed_and_counted_once() -> None:
    with calls.guarded_call(VENDOR, "embed"):
        pass
    with pytest.raises(Exception, match="VENDOR_UNREACHABLE"), calls.guarded_call(VENDOR, "embed"):
        raise TimeoutError
    with pytest.raises(KeyError), calls.guarded_call(VENDOR, "embed"):  # a fault of ours
        raise KeyError
    assert VendorCall.objects.count() == 2

    History(database_time() - timedelta(hours=1))
    periodic.collect_metrics()
    periodic.collect_metrics()

    assert {labels: figure.count for labels, figure in rollups_of("vendor").items()} == {
        ("openai", "embed", "ok"): 1,
        ("openai", "embed", "VENDOR_UNREACHABLE"): 1,
    }
    assert value(scrape(), "vendor_call_seconds_count", vendor="openai", operation="embed", outcome="ok") == 1


def test_a_call_does_not_fail_when_its_record_cannot_be_inserted() -> None:
    with calls.record_call(VENDOR, "embed"):
        pass
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE vendor_calls RENAME TO away")
        try:
            calls.record_success(VENDOR)
        finally:
            cursor.execute("ALTER TABLE away RENAME TO vendor_calls")

    assert VendorCall.objects.count() == 0


def test_an_open_breaker_shows() -> None:
    for _ in range(3):
        calls.record_failure(VENDOR, TimeoutError())

    assert value(scrape(), "vendor_breaker", vendor="openai", part="") == 1


def reserve(user_id: Any, cents: str, *, stage: str = "embedding", **more: Any) -> Any:
    what: dict[str, Any] = {"vendor": "openai", "model": "m", "unit": "tokens", "quantity": 100}
    return ledger.reserve(user_id=user_id, cents=Decimal(cents), stage=stage, **what, **more)


def test_spend_includes_retries_and_unsettled_calls(ana: Person) -> None:
    job = History(database_time() - timedelta(minutes=5), user_id=ana.id)
    job.add(1, "CLAIMED", "embedding").add(2, "RETRY_SCHEDULED", "embedding", code="X")
    ledger.settle(reserve(ana.id, "3"), quantity=90, cents=Decimal("2.5"))
    reserve(ana.id, "4", job_id=job.job.pk)
    reserve(ana.id, "8", job_id=job.job.pk, stage="job_validated")
    taken_back = reserve(uuid4(), "100")
    collect_again()
    ledger.void(taken_back)

    collect_again()

    samples, labels = scrape(), {"day": "today", "vendor": "openai", "unit": "tokens"}
    assert value(samples, "spend_cents", **labels) == 14.5
    assert value(samples, "spend_retry_cents", **labels) == 4
    assert value(samples, "spend_unsettled_cents", **labels) == 12
    assert value(samples, "bought", **labels) == 290
    assert DailySpend.objects.count() == 1


def test_the_largest_tenants_are_named_and_the_others_are_one() -> None:
    for _ in range(23):
        History(database_time())
    collect_again()

    sizes = {labels: size for (name, labels), size in scrape().items() if name == "accessa_stored_bytes"}
    by_tenant = {dict(labels)["tenant"]: size for labels, size in sizes.items()}

    assert len(by_tenant) == 21
    assert by_tenant["others"] == 3000


def test_a_configured_token_is_required(settings: Any) -> None:
    settings.METRICS_TOKEN = "right"
    client = Client()

    assert client.get("/metrics", headers={"authorization": "Bearer right"}).status_code == 200
    for header in ("Bearer wrong", "Bearer ", "right", "", "Bearer rightish", "Bearer ri\u00e9"):
        assert client.get("/metrics", headers={"authorization": header}).status_code == 403, header
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


def test_no_label_repeats_free_text(ana: Person) -> None:
    job = History(database_time() - timedelta(hours=1))
    job.add(1, "RETRY_SCHEDULED", "queued", code="Mrs Miller's own words")

    periodic.collect_metrics()

    assert ("accessa_retries_total", (("code", "other"), ("stage", "queued"))) in scrape()
    assert b"Miller" not in Client().get("/metrics").content


def test_every_counted_metric_is_exported() -> None:
    assert {*event_counts.EVENT_METRICS, "vendor", event_counts.SYNC, event_counts.RECORDS} == set(ROLLUP_METRICS)


def test_ended_syncs_are_counted_once_and_the_queue_is_shown(ana: Person) -> None:
    source = ConnectedSource.objects.create(user_id=ana.id, provider="hubspot")
    ConnectedSource.objects.create(user_id=ana.id, provider="gmail", status="error")
    at = database_time() - timedelta(minutes=5)
    for status, code, written in (("completed", None, 40), ("failed", "max_retries_exceeded", 2)):
        job = IngestionJob.objects.create(
            user_id=ana.id, source=source, kind="full_sync", status=status, error_message=code, items_written=written,
            items_failed=1,
        )  # fmt: skip
        IngestionJob.objects.filter(pk=job.pk).update(created_at=at - timedelta(seconds=20), finished_at=at)
    History(at - timedelta(hours=1))  # from when on it is counted
    lifecycle.start_sync(source, "full_sync", by="test")
    periodic.collect_metrics()

    collect_again()

    samples = scrape()
    where = {"provider": "hubspot", "kind": "full_sync"}
    assert value(samples, "sync_seconds_count", outcome="completed", **where) == 1
    assert value(samples, "sync_seconds_sum", outcome="max_retries_exceeded", **where) == 20
    assert value(samples, "sync_records_total", provider="hubspot", outcome="written") == 42
    assert value(samples, "sync_records_total", provider="hubspot", outcome="failed") == 2
    assert value(samples, "ingestion_messages", state="visible") == 1
    assert value(samples, "ingestion_messages", state="held") == 0
    assert value(samples, "sources", provider="gmail", status="error") == 1


def test_statute_consumers_messages_and_statutes_are_shown() -> None:
    now = database_time()
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
    collect_again()

    samples = scrape()

    states = {state: value(samples, "statutes_consumers", state=state) for state in Consumer.State.values}
    assert states == {"boot": 0, "init": 0, "idle": 1, "processing": 1, "wait": 0, "shutdown": 0}
    assert 2 <= value(samples, "statutes_consumer_silence_seconds") < 10
    assert value(samples, "statutes_messages_total", consumer="a:1", outcome="failed") == 1
    assert value(samples, "statutes_messages_total", consumer="c:1", outcome="received") == 7
    assert 600 <= value(samples, "statutes_still_seconds") < 660
    assert value(samples, "statutes_laws", status="embedded") == 1
    assert value(samples, "statutes_versions", status="processing") == 1


def test_the_lag_is_of_the_first_due_message_of_a_receiver_that_does_not_fail() -> None:
    user_id = uuid4()
    endpoints.create_endpoint(user_id=user_id, url="https://hooks.example.com/", events=EVENTS)
    assert gauges.outbox_lag() == 0
    endpoints.publish(user_id=user_id, type="sync.failed", data={})
    Message.objects.update(due_at=Now() + timedelta(seconds=60))
    assert gauges.outbox_lag() == 0

    Message.objects.update(due_at=Now() - timedelta(seconds=600))

    assert 600 <= gauges.outbox_lag() < 700
    WebhookEndpoint.objects.update(failures=1)
    assert gauges.outbox_lag() == 0
