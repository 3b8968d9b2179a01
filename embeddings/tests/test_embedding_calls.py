"""The embed stage with OpenAI's own client against a server that speaks its protocol: what is bought, kept and paid."""

import hashlib
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import pytest
from django.db import connection
from django.db.models import Sum

from embeddings import tokenizer
from embeddings.embedders.openai import OpenAI
from embeddings.embedders.registry import DIMENSIONS
from embeddings.models import DocumentChunk, VectorBuffer
from embeddings.tests.conftest import RecordingOpenAIServer
from jobs import worker
from jobs.claims import ClaimLost
from jobs.cluster import shared_state
from jobs.models import UploadJob
from testing.cluster import running_cluster as real_cluster
from testing.cluster import wait_until
from testing.factories.pending_documents import create_chunked_job, passage_texts
from testing.factories.searchable_documents import create_searchable_document
from testing.fakes.openai import KEY, text_vector
from testing.personas import Person, claim_at_stage, run_all_jobs
from vendors import calls, rate_limit
from vendors.models import Budget, Purchase

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
CALL = "POST /v1/embeddings"
POISON = "POISON"
ATTEMPTS_OF_ONE_TRY = 0  # a wait takes the claim's count back


def reload_job(job: UploadJob) -> UploadJob:
    return UploadJob.objects.get(pk=job.pk)


def requeue(job: UploadJob) -> None:
    """As a person's retry does; no parse is behind these passages, so the service would go back to the beginning."""
    UploadJob.objects.filter(pk=job.pk).update(state="queued", finished_at=None, attempts=0, last_error=None)


def vectors_of(job: UploadJob) -> dict[str, list[float]]:
    """Return the vector of each passage that has one, committed or buffered, by its text."""
    buffered = VectorBuffer.objects.filter(document=job.document_id).values_list("chunk__text", "embedding")
    chunks = DocumentChunk.objects.filter(document=job.document_id).exclude(embedding=None)
    return {text: list(embedding) for text, embedding in [*buffered, *chunks.values_list("text", "embedding")]}


def bought(vendor: RecordingOpenAIServer, passages: Sequence[str]) -> list[int]:
    """How often each of ``passages`` was sold."""
    return [vendor.ledger.counts[hashlib.sha256(text.encode()).hexdigest()] for text in passages]


def settled(job: UploadJob) -> tuple[int, Decimal]:
    sums = Purchase.objects.filter(job_id=job.pk, state="settled").aggregate(Sum("quantity"), Sum("cents"))
    return sums["quantity__sum"] or 0, sums["cents__sum"] or Decimal(0)


def test_each_passage_gets_its_own_vector_and_is_bought_once(ana: Person, vendor: RecordingOpenAIServer) -> None:
    passages = passage_texts(600)
    job = create_chunked_job(passages, user_id=ana.id)

    worker.drain()

    vectors = vectors_of(job)
    assert reload_job(job).state == "done"
    assert all(vectors[text] == pytest.approx(text_vector(text).tolist(), abs=1e-6) for text in passages)
    assert bought(vendor, passages) == [1] * 600
    assert reload_job(job).embed_model == "text-embedding-3-small"


def test_job_cost_is_the_vendors_charge_and_the_prediction(
    ana: Person, vendor: RecordingOpenAIServer, settings: Any
) -> None:
    settings.OPENAI_CENTS_PER_MILLION_TOKENS = 2.0
    job = create_chunked_job(passage_texts(300), user_id=ana.id)

    worker.drain()

    sold = vendor.ledger.totals["tokens"]
    shown = ana.get(f"/job/{job.pk}").json()
    assert settled(job) == (sold, Decimal(sold) * 2 / 1_000_000)
    assert Decimal(str(shown["cost_cents"])) == Decimal(sold) * 2 / 1_000_000
    assert reload_job(job).payload["planned_tokens"] == sold
    assert reload_job(job).payload["planned_cents"] == shown["cost_cents"]
    assert set(Purchase.objects.values_list("document_id", "user_id", "stage", "vendor", "unit", "state")) == {
        (job.document_id, ana.id, "embedding", "openai", "tokens", "settled")
    }


@pytest.mark.parametrize("at_once", [1, 3])
def test_no_more_calls_are_in_flight_than_are_allowed(
    at_once: int, ana: Person, vendor: RecordingOpenAIServer, settings: Any
) -> None:
    settings.EMBED_IN_FLIGHT, settings.EMBED_BATCH = at_once, 10
    vendor.hold_until, vendor.delay = at_once, 0.05
    job = create_chunked_job(passage_texts(120), user_id=ana.id)

    worker.drain()

    assert reload_job(job).state == "done"
    assert vendor.most_in_hand == at_once


def test_a_call_has_256_texts_at_most(ana: Person, vendor: RecordingOpenAIServer) -> None:
    create_chunked_job(passage_texts(600), user_id=ana.id)

    worker.drain()

    assert sorted(vendor.sizes) == [88, 256, 256]


def test_a_call_has_300_000_tokens_at_most(ana: Person, vendor: RecordingOpenAIServer) -> None:
    create_chunked_job(passage_texts(80, words=7_000), user_id=ana.id)

    worker.drain()

    assert len(vendor.tokens) == 2
    assert max(vendor.tokens) <= 300_000


def test_progress_cost_and_vectors_are_written_in_one_transaction(
    ana: Person, vendor: RecordingOpenAIServer, settings: Any
) -> None:
    settings.EMBED_IN_FLIGHT = 1
    job = create_chunked_job(passage_texts(300), user_id=ana.id)
    claim = claim_at_stage("embedding")
    with connection.cursor() as cursor:
        cursor.execute("""
            CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN IF NEW.state = 'settled' THEN RAISE 'no'; END IF; RETURN NEW; END $$;
            CREATE TRIGGER refused BEFORE UPDATE ON purchases FOR EACH ROW EXECUTE FUNCTION refuse();""")

    worker.run_stage(claim)

    assert not VectorBuffer.objects.exists()
    assert (reload_job(job).progress["embeds_done"], int(reload_job(job).cost_cents)) == (0, 0)


def test_a_text_that_the_vendor_refuses_loses_only_itself(ana: Person, vendor: RecordingOpenAIServer) -> None:
    passages = passage_texts(300)
    passages[137] += POISON
    vendor.poison = POISON
    job = create_chunked_job(passages, user_id=ana.id)

    worker.drain()

    good = [text for text in passages if POISON not in text]
    assert reload_job(job).state == "deadletter"
    assert (reload_job(job).last_error or {})["code"] == "TEXT_REFUSED"
    assert vectors_of(job).keys() == set(good)
    assert bought(vendor, passages) == [POISON not in text for text in passages]
    assert vendor.requests <= 2 + 2 * 9  # two calls a halving
    assert not Purchase.objects.filter(state="reserved").exists()


def test_a_retry_after_a_refused_text_buys_nothing_again(ana: Person, vendor: RecordingOpenAIServer) -> None:
    passages = [*passage_texts(30), f"A {POISON} of its own."]
    vendor.poison = POISON
    job = create_chunked_job(passages, user_id=ana.id)
    worker.drain()
    vendor.poison = ""

    requeue(job)
    run_all_jobs()

    assert reload_job(job).state == "done"
    assert bought(vendor, passages) == [1] * 31


def test_vendor_that_refuses_every_text_gets_few_calls(ana: Person, vendor: RecordingOpenAIServer) -> None:
    vendor.poison = "Passage"
    job = create_chunked_job(passage_texts(512), user_id=ana.id)

    worker.drain()

    assert (reload_job(job).last_error or {})["code"] == "VENDOR_REFUSED"
    assert vendor.requests < 100


def test_batch_with_undercounted_tokens_is_halved(ana: Person, vendor: RecordingOpenAIServer) -> None:
    passages = passage_texts(80, words=7_000)
    job = create_chunked_job(passages, user_id=ana.id, counts=[1] * 80)

    worker.drain()

    assert reload_job(job).state == "done"
    assert bought(vendor, passages) == [1] * 80


@pytest.mark.parametrize("kind", ["status-413", "status-422"])
def test_batch_that_is_too_large_for_the_vendor_is_halved(
    kind: str, ana: Person, vendor: RecordingOpenAIServer
) -> None:
    passages = passage_texts(20)
    vendor.inject_fault(CALL, kind)
    job = create_chunked_job(passages, user_id=ana.id)

    worker.drain()

    assert reload_job(job).state == "done"
    assert bought(vendor, passages) == [1] * 20


WAITS = {
    "status-429": "VENDOR_RATE_LIMITED",
    "status-429-seconds": "VENDOR_RATE_LIMITED",
    "status-429-insufficient_quota": "VENDOR_QUOTA_EXHAUSTED",
    "status-402": "VENDOR_QUOTA_EXHAUSTED",
    "status-401": "VENDOR_REFUSES_KEY",
    "status-403": "VENDOR_REFUSES_KEY",
    "status-404": "VENDOR_MISCONFIGURED",
}


@pytest.mark.parametrize(("kind", "reason"), WAITS.items())
def test_misconfiguration_waits_without_spending_attempts(
    kind: str, reason: str, ana: Person, vendor: RecordingOpenAIServer
) -> None:
    passages = passage_texts(20)
    vendor.inject_fault(CALL, kind)
    job = create_chunked_job(passages, user_id=ana.id)

    worker.drain()
    held = reload_job(job)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE vendor_rate_limits SET paused_until = NULL")
    run_all_jobs()

    assert (held.state, held.wait_reason, held.attempts) == ("queued", reason, ATTEMPTS_OF_ONE_TRY)
    assert reload_job(job).state == "done"
    assert bought(vendor, passages) == [1] * 20
    assert not Purchase.objects.filter(state="reserved").exists()


# kind, code, and how often each passage is sold in the end: what was sold and then lost must be bought again.
FAULTS = [
    ("status-500", "VENDOR_UNAVAILABLE", 1),
    ("status-503", "VENDOR_UNAVAILABLE", 1),
    ("status-408", "VENDOR_UNAVAILABLE", 1),
    ("reset", "VENDOR_UNREACHABLE", 1),
    ("reset-mid-body", "VENDOR_UNREACHABLE", 2),
    ("truncated-body", "VENDOR_ANSWER_INVALID", 2),
    ("truncated-json", "VENDOR_ANSWER_INVALID", 2),
    ("hang", "VENDOR_UNREACHABLE", 1),
    ("one-byte-a-second", "VENDOR_UNREACHABLE", 2),
    ("empty-200", "VENDOR_ANSWER_INVALID", 2),
    ("garbage", "VENDOR_ANSWER_INVALID", 2),
    ("html-200", "VENDOR_ANSWER_INVALID", 2),
    ("another-shape", "VENDOR_ANSWER_INVALID", 2),
    ("json-list", "VENDOR_ANSWER_INVALID", 2),
    ("json-null", "VENDOR_ANSWER_INVALID", 2),
    ("redirect-302", "VENDOR_ANSWER_INVALID", 1),
    ("status-204", "VENDOR_ANSWER_INVALID", 2),
    ("fewer", "VENDOR_ANSWER_INVALID", 2),
    ("more", "VENDOR_ANSWER_INVALID", 2),
    ("none", "VENDOR_ANSWER_INVALID", 2),
    ("index-repeated", "VENDOR_ANSWER_INVALID", 2),
    ("too-narrow", "VENDOR_ANSWER_INVALID", 2),
    ("too-wide", "VENDOR_ANSWER_INVALID", 2),
    ("nan", "VENDOR_ANSWER_INVALID", 2),
    ("infinite", "VENDOR_ANSWER_INVALID", 2),
    ("zero-vector", "VENDOR_ANSWER_INVALID", 2),
]


@pytest.mark.parametrize(("kind", "code", "times"), FAULTS)
def test_failed_call_is_retried_and_an_invalid_response_is_dropped(
    kind: str, code: str, times: int, ana: Person, vendor: RecordingOpenAIServer, settings: Any
) -> None:
    if kind in ("hang", "one-byte-a-second"):
        settings.VENDOR_TIMEOUT_SECONDS = 2.5
    passages = passage_texts(20)
    vendor.inject_fault(CALL, kind)
    job = create_chunked_job(passages, user_id=ana.id)

    worker.drain()
    held, buffered = reload_job(job), VectorBuffer.objects.count()
    run_all_jobs()

    assert (held.state, (held.last_error or {})["code"], buffered) == ("retryable", code, 0)
    assert reload_job(job).state == "done"
    assert bought(vendor, passages) == [times] * 20
    assert vectors_of(job)[passages[7]] == pytest.approx(text_vector(passages[7]).tolist(), abs=1e-6)


def test_refused_connection_is_retried_and_free(ana: Person, vendor: RecordingOpenAIServer) -> None:
    vendor.inject_fault(CALL, "refused")
    job = create_chunked_job(passage_texts(20), user_id=ana.id)

    worker.drain()
    code = (reload_job(job).last_error or {})["code"]
    left = Purchase.objects.count()
    vendor.clear_faults()
    run_all_jobs()

    assert (code, left) == ("VENDOR_UNREACHABLE", 0)
    assert reload_job(job).state == "done"


@pytest.mark.parametrize("kind", ["shuffled", "wrong-model"])
def test_vectors_are_matched_by_their_index(kind: str, ana: Person, vendor: RecordingOpenAIServer) -> None:
    passages = passage_texts(20)
    vendor.inject_fault(CALL, kind)
    job = create_chunked_job(passages, user_id=ana.id)

    worker.drain()

    vectors = vectors_of(job)
    assert all(vectors[text] == pytest.approx(text_vector(text).tolist(), abs=1e-6) for text in passages)


def test_concurrent_responses_are_kept_when_one_call_fails(
    ana: Person, vendor: RecordingOpenAIServer, settings: Any
) -> None:
    settings.EMBED_BATCH = 10
    passages = passage_texts(30)
    vendor.delay = 0.1
    vendor.inject_fault(CALL, "status-500")
    job = create_chunked_job(passages, user_id=ana.id)

    worker.drain()

    assert reload_job(job).state == "retryable"
    assert reload_job(job).progress["embeds_done"] == VectorBuffer.objects.count() == 20
    assert settled(job)[0] == vendor.ledger.totals["tokens"]
    run_all_jobs()
    assert bought(vendor, passages) == [1] * 30


def test_failure_that_may_have_been_charged_stays_in_the_ledger(ana: Person, vendor: RecordingOpenAIServer) -> None:
    vendor.inject_fault(CALL, "truncated-json")
    job = create_chunked_job(passage_texts(20), user_id=ana.id)

    run_all_jobs()

    left = Purchase.objects.filter(job_id=job.pk, state="reserved").aggregate(Sum("quantity"))["quantity__sum"]
    assert left + settled(job)[0] == vendor.ledger.totals["tokens"]


def test_spent_budget_stops_the_job_until_the_next_day(
    ana: Person, vendor: RecordingOpenAIServer, settings: Any
) -> None:
    settings.EMBED_BATCH = 10
    passages = passage_texts(60)
    job = create_chunked_job(passages, user_id=ana.id)
    one = sum(len(text) for text in passages[:10]) // 4  # about as many tokens
    budget = Budget.objects.create(user_id=ana.id, cents_per_day=Decimal(one * 3) * 2 / 1_000_000)

    worker.drain()
    held, spent = reload_job(job), Purchase.objects.aggregate(Sum("cents"))["cents__sum"]
    budget.delete()
    run_all_jobs()

    assert (held.state, held.wait_reason, held.attempts) == ("queued", "BUDGET_SPENT", ATTEMPTS_OF_ONE_TRY)
    assert 0 < spent <= budget.cents_per_day
    assert held.cost_cents == spent
    assert reload_job(job).state == "done"
    assert bought(vendor, passages) == [1] * 60


def test_used_up_rate_limit_keeps_calls_in_flight_and_waits(
    ana: Person, vendor: RecordingOpenAIServer, settings: Any
) -> None:
    settings.EMBED_BATCH, settings.OPENAI_REQUESTS_PER_MINUTE = 10, 4  # a burst of two
    vendor.delay = 0.1
    job = create_chunked_job(passage_texts(60), user_id=ana.id)

    worker.drain()

    held = reload_job(job)
    assert (held.state, held.wait_reason, held.attempts) == ("queued", "VENDOR_BUDGET", ATTEMPTS_OF_ONE_TRY)
    assert held.progress["embeds_done"] == VectorBuffer.objects.count() == 20


def test_a_batch_shrinks_to_the_tokens_that_are_left(ana: Person, vendor: RecordingOpenAIServer, settings: Any) -> None:
    passages = passage_texts(40)
    tokens = sum(tokenizer.count_many(passages))
    settings.OPENAI_TOKENS_PER_MINUTE = 2 * tokens  # a burst of all, at once
    job = create_chunked_job(passages, user_id=ana.id)
    calls.acquire(OpenAI().vendor, tokens=tokens * 6 // 10)

    worker.drain()

    held = reload_job(job)
    assert (held.state, held.wait_reason, held.attempts) == ("queued", "VENDOR_BUDGET", ATTEMPTS_OF_ONE_TRY)
    assert 10 <= VectorBuffer.objects.count() < 40


def test_a_batch_above_the_limit_of_a_minute_is_bought_in_parts(
    ana: Person, vendor: RecordingOpenAIServer, settings: Any
) -> None:
    passages = passage_texts(40)
    settings.OPENAI_TOKENS_PER_MINUTE = sum(tokenizer.count_many(passages))  # a burst of half of them
    create_chunked_job(passages, user_id=ana.id)

    worker.drain()

    assert max(vendor.sizes) <= 20


def test_a_batch_above_a_limit_that_only_the_vendor_knows_is_halved_until_it_passes(
    ana: Person, vendor: RecordingOpenAIServer, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limit, "LIMITED_SECONDS", 60.0)  # a 429 of a minute ago still counts
    passages, settings.EMBED_BATCH = passage_texts(40), 40
    vendor.tokens_per_minute = sum(tokenizer.count_many(passages)) // 3
    job = create_chunked_job(passages, user_id=ana.id)

    for _ in range(3):
        worker.drain()
        with connection.cursor() as cursor:
            cursor.execute("UPDATE vendor_rate_limits SET paused_until = clock_timestamp() - interval '1 second'")
            cursor.execute("UPDATE upload_jobs SET run_after = NULL WHERE state = 'queued'")

    assert list(dict.fromkeys(vendor.sizes))[:3] == [40, 20, 10]
    assert VectorBuffer.objects.count() >= 10
    assert reload_job(job).attempts == ATTEMPTS_OF_ONE_TRY


def test_outage_spends_no_attempt_once_the_circuit_is_open(
    ana: Person, vendor: RecordingOpenAIServer, settings: Any
) -> None:
    settings.EMBED_BATCH, settings.VENDOR_BREAKER_FAULTS = 10, 3
    vendor.inject_fault(CALL, "status-500", times=3)
    job = create_chunked_job(passage_texts(30), user_id=ana.id)

    worker.drain()

    held = reload_job(job)
    assert (held.state, held.wait_reason, held.attempts) == ("queued", "VENDOR_AWAY", ATTEMPTS_OF_ONE_TRY)


def test_worker_that_lost_its_claim_writes_and_buys_nothing(
    ana: Person, vendor: RecordingOpenAIServer, settings: Any
) -> None:
    settings.EMBED_BATCH, settings.EMBED_IN_FLIGHT = 10, 2
    job = create_chunked_job(passage_texts(60), user_id=ana.id)
    claim = claim_at_stage("embedding")

    with connection.cursor() as cursor:
        cursor.execute("UPDATE upload_jobs SET claim_token = gen_random_uuid()")
    with pytest.raises(ClaimLost):
        worker.run_stage(claim)

    assert vendor.requests == 0
    assert not VectorBuffer.objects.exists()
    assert reload_job(job).cost_cents == 0


def test_stopping_cluster_keeps_bought_vectors(
    ana: Person, vendor: RecordingOpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = create_chunked_job(passage_texts(60), user_id=ana.id)
    claim = claim_at_stage("embedding")
    monkeypatch.setattr(shared_state, "is_stopping", lambda: vendor.requests > 0)
    monkeypatch.setattr("django.conf.settings.EMBED_BATCH", 10, raising=False)

    ending = worker.run_stage(claim)

    assert getattr(ending, "reason", None) == "STOPPING"
    assert VectorBuffer.objects.count() == vendor.ledger.sold > 0
    assert reload_job(job).progress["embeds_done"] == vendor.ledger.sold


@pytest.mark.django_db(transaction=True)
def test_killed_worker_loses_only_its_calls_in_flight(
    ana: Person, vendor: RecordingOpenAIServer, tmp_path: Path
) -> None:
    (tmp_path / "embedding:answered~1").touch()
    passages = passage_texts(100)
    job = create_chunked_job(passages, user_id=ana.id)
    there = {"EMBEDDER": "openai", "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": vendor.url, "EMBED_BATCH": 10}

    with real_cluster(workers=1, ACCESSA_FAILPOINTS=tmp_path, JOBS_LEASE_SECONDS=2, **there):
        wait_until(lambda: reload_job(job).state == "done", seconds=60)

    at_once = 3 + 1 + 1  # in the air, answered and being read, and the one that is being written down
    assert list(tmp_path.glob("*~1")) == []
    assert 10 <= vendor.ledger.repeated <= at_once * 10
    assert settled(job)[1] == reload_job(job).cost_cents
    assert vectors_of(job).keys() == set(passages)


# A query, and what one that cannot be embedded is answered with


def test_search_is_billed_to_the_caller(ana: Person, vendor: RecordingOpenAIServer) -> None:
    passages = passage_texts(20)
    create_chunked_job(passages, user_id=ana.id)
    worker.drain()

    vectors = ana.post("/search", {"query": passages[3]}).json()["passages"]

    assert vectors[0]["text"] == passages[3]
    (entry,) = Purchase.objects.filter(stage="search").values_list("user_id", "state", "document_id")
    assert entry == (ana.id, "settled", None)


UNAVAILABLE = [kind for kind, _, _ in FAULTS if kind not in ("hang", "one-byte-a-second")] + [*WAITS]


@pytest.mark.parametrize("kind", UNAVAILABLE)
def test_search_without_the_vendor_is_503_with_retry_after(
    kind: str, ana: Person, vendor: RecordingOpenAIServer
) -> None:
    create_searchable_document(ana.id, ["covered care"], vectors=numpy.eye(1, DIMENSIONS, dtype=numpy.float32))
    vendor.inject_fault(CALL, kind)

    answer = ana.post("/search", {"query": "copay"})

    assert (answer.status_code, answer.json()["code"]) == (503, "SEARCH_UNAVAILABLE")
    assert int(answer.headers["Retry-After"]) > 0


def test_a_search_past_the_budget_is_429(ana: Person, vendor: RecordingOpenAIServer) -> None:
    create_searchable_document(ana.id, ["covered care"], vectors=numpy.eye(1, DIMENSIONS, dtype=numpy.float32))
    Budget.objects.create(user_id=ana.id, cents_per_day=Decimal("0.000009"))

    answers = [ana.post("/search", {"query": "is care covered"}) for _ in range(5)]

    assert [answer.status_code for answer in answers[:1]] == [200]
    assert (answers[-1].status_code, answers[-1].json()["code"]) == (429, "BUDGET_SPENT")
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert vendor.requests == [answer.status_code for answer in answers].count(200)


def test_query_above_a_whole_days_budget_is_429(ana: Person, vendor: RecordingOpenAIServer) -> None:
    create_searchable_document(ana.id, ["covered care"], vectors=numpy.eye(1, DIMENSIONS, dtype=numpy.float32))
    Budget.objects.create(user_id=ana.id, cents_per_day=Decimal("0.000001"))

    answer = ana.post("/search", {"query": "is care covered"})

    assert (answer.status_code, answer.json()["code"]) == (429, "BUDGET_SPENT")
    assert vendor.requests == 0


def test_query_that_the_vendor_refuses_is_400(ana: Person, vendor: RecordingOpenAIServer) -> None:
    create_searchable_document(ana.id, ["covered care"], vectors=numpy.eye(1, DIMENSIONS, dtype=numpy.float32))
    vendor.inject_fault(CALL, "status-400")

    answer = ana.post("/search", {"query": "copay"})

    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (400, "TEXT_REFUSED", "query")


def test_query_with_too_many_tokens_is_refused_without_a_call(
    ana: Person, vendor: RecordingOpenAIServer, settings: Any
) -> None:
    create_searchable_document(ana.id, ["covered care"], vectors=numpy.eye(1, DIMENSIONS, dtype=numpy.float32))
    settings.MAX_QUERY_CHARS = 100_000

    answer = ana.post("/search", {"query": "保険 " * 20_000})

    assert (answer.status_code, answer.json()["code"]) == (400, "QUERY_TOO_LONG")
    assert vendor.requests == 0


def test_local_model_buys_nothing(ana: Person, settings: Any) -> None:
    settings.EMBEDDER = "testing.embedders.InstantEmbedder"
    job = create_chunked_job(passage_texts(20), user_id=ana.id)

    worker.drain()

    assert reload_job(job).state == "done"
    assert not Purchase.objects.exists()
    assert "planned_cents" not in reload_job(job).payload
