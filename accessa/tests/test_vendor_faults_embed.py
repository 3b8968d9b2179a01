"""Each fault of OpenAI, and of another deployment's /internal/embed, at each call: end state, attempts, sales.

The words are explained in ``fault_matrix.OUTCOMES``; for a search they name what the caller is told.
"""

import json
import os
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
from django.db.models import Sum

from accessa.tests import fault_matrix
from accessa.tests.fault_matrix import CANARY, MORE_KINDS, OUTCOMES, PATIENT, QUICK, SLOW
from embeddings.embedders import openai, registry, remote_accessa
from embeddings.embedders.registry import DIMENSIONS
from embeddings.models import DocumentChunk
from testing.embedders import InstantEmbedder
from testing.factories.pending_documents import create_chunked_job, passage_texts
from testing.factories.searchable_documents import create_searchable_document
from testing.fakes.faults import HARMLESS, faults_for
from testing.fakes.http_messages import Request, Response, json_response
from testing.fakes.openai import KEY, OpenAIServer, text_vector
from testing.fakes.server import Server
from testing.personas import Person
from vendors.models import Purchase

pytestmark = pytest.mark.django_db

# A batch that is refused (400, 413, 422) is halved, and its halves are taken: nothing is lost, no attempt charged.
# A search is answered at once: "later" is 503 SEARCH_UNAVAILABLE with Retry-After, "text" is 400 TEXT_REFUSED.
TABLE = """
kind                          embed         search  brain
status-400                    done          text    done
status-400-echo               done          text    done
status-401                    key           later   key
status-402                    quota         later   quota
status-403                    key           later   key
status-404                    misconfigured later   misconfigured
status-408                    fault         later   fault
status-409                    fault         later   fault
status-413                    done          text    done
status-422                    done          text    done
status-429                    limited       later   limited
status-429-seconds            limited       later   limited
status-429-date               limited       later   limited
status-429-ms                 limited       later   limited
status-429-nonsense           limited       later   limited
status-429-insufficient_quota quota         later   limited
status-500                    fault         later   fault
status-500-echo               fault         later   fault
status-502                    fault         later   fault
status-503                    fault         later   fault
status-504                    fault         later   fault
status-529                    fault         later   fault
status-408-after-sale         fault         later   fault
status-500-after-sale         fault         later   fault
status-502-after-sale         fault         later   fault
status-503-after-sale         fault         later   fault
status-504-after-sale         fault         later   fault
refused                       breaker       later   breaker
reset                         silence       later   silence
reset-after-sale              silence       later   silence
reset-mid-body                silence       later   silence
hang                          silence       later   silence
hang-after-sale               silence       later   silence
one-byte-a-second             silence       later   silence
ten-bytes-a-second            silence       later   silence
head-ten-bytes-a-second       silence       later   silence
truncated-json                invalid       later   invalid
truncated-body                invalid       later   invalid
empty-200                     invalid       later   invalid
garbage                       invalid       later   invalid
html-200                      invalid       later   invalid
another-shape                 invalid       later   invalid
json-list                     invalid       later   invalid
json-null                     invalid       later   invalid
redirect-302                  invalid       later   invalid
status-204                    invalid       later   invalid
fewer                         invalid       later   -
more                          invalid       later   -
none                          invalid       later   -
shuffled                      done          done    -
index-repeated                invalid       later   -
too-narrow                    invalid       later   -
too-wide                      invalid       later   -
nan                           invalid       later   -
infinite                      invalid       later   -
zero-vector                   invalid       later   -
wrong-model                   done          done    -
"""
# Of a fault that charges an attempt: certainly nothing was made, so nothing stays in the books.
NOTHING_MADE = {"refused", "status-409"}
CELLS = list(fault_matrix.cells(TABLE))
CALL = "POST /v1/embeddings"
BATCH, PASSAGES = 4, [f"{text} {CANARY}" for text in passage_texts(12)]


def cells(site: str) -> list[Any]:
    return [cell for cell in CELLS if cell.id.startswith(f"{site}-")]


def test_the_table_is_complete() -> None:
    assert fault_matrix.kinds(TABLE) == {*faults_for("openai"), *MORE_KINDS}


@pytest.fixture
def vendor(settings: Any) -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        settings.EMBEDDER = "openai"
        settings.OPENAI_API_KEY = KEY
        settings.OPENAI_BASE_URL = server.url
        settings.OPENAI_REQUESTS_PER_MINUTE = settings.OPENAI_TOKENS_PER_MINUTE = 0
        settings.VENDOR_TIMEOUT_SECONDS = PATIENT
        settings.EMBED_BATCH = BATCH
        yield server
        for seconds in (QUICK, PATIENT):
            openai._client(KEY, server.url, seconds, os.getpid()).close()
        openai._client.cache_clear()


@pytest.mark.parametrize(("kind", "site", "word"), cells("embed"))
def test_a_document_is_embedded_and_one_bad_batch_loses_only_itself(
    kind: str, site: str, word: str, ana: Person, vendor: OpenAIServer, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fault_matrix.listen(caplog)
    job = create_chunked_job(PASSAGES, user_id=ana.id)
    settings.VENDOR_TIMEOUT_SECONDS = QUICK if kind in SLOW else PATIENT
    fault_matrix.inject_fault(vendor, CALL, kind)

    watch = fault_matrix.Stopwatch()
    ran = fault_matrix.run(job, lambda: _be_well(vendor, settings))

    assert ran.outcome == OUTCOMES[word]
    assert kind not in fault_matrix.SLOW or watch.seconds < 25  # the slowest response would take 30 and more
    embedded: dict[str, Any] = dict(
        DocumentChunk.objects.filter(document_id=job.document_id).values_list("text", "embedding")
    )
    assert all(embedded.get(text) is not None for text in PASSAGES)
    assert numpy.allclose(
        [embedded[text] for text in PASSAGES], [text_vector(text) for text in PASSAGES], rtol=0, atol=1e-6
    )
    lost = fault_matrix.ALL_KINDS[kind].sold and kind not in HARMLESS
    assert (len(vendor.ledger.counts), vendor.ledger.repeated) == (len(PASSAGES), BATCH if lost else 0)
    unsure = bool(ran.charged) and kind not in NOTHING_MADE
    assert Purchase.objects.filter(state="reserved").count() == int(unsure)
    assert _booked() >= vendor.ledger.totals["tokens"], "something was sold that is not in the books"
    assert fault_matrix.leaks(caplog, KEY, ana.token) == []


def _be_well(vendor: Server, settings: Any) -> None:
    assert fault_matrix.consumed(vendor), "it never went wrong"
    vendor.clear_faults()
    settings.VENDOR_TIMEOUT_SECONDS = PATIENT


def _booked() -> int:
    return Purchase.objects.aggregate(tokens=Sum("quantity"))["tokens"] or 0


@pytest.mark.parametrize(("kind", "site", "word"), cells("search"))
def test_a_search_is_answered_or_refused_by_name(
    kind: str, site: str, word: str, ana: Person, vendor: OpenAIServer, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fault_matrix.listen(caplog)
    create_searchable_document(ana.id, ["covered care"], vectors=numpy.eye(1, DIMENSIONS, dtype=numpy.float32))
    settings.VENDOR_TIMEOUT_SECONDS = QUICK if kind in SLOW else PATIENT
    fault_matrix.inject_fault(vendor, CALL, kind)

    watch = fault_matrix.Stopwatch()
    answer = ana.post("/search", {"query": CANARY})
    seconds, calls_before = watch.seconds, vendor.requests
    _be_well(vendor, settings)
    fault_matrix.let_vendors_rest()
    again = ana.post("/search", {"query": CANARY})

    code = answer.json().get("code", "done")
    assert {"text": (400, "TEXT_REFUSED"), "later": (503, "SEARCH_UNAVAILABLE"), "done": (200, "done")}[word] == (
        answer.status_code,
        code,
    )
    assert (int(answer.headers.get("Retry-After", 0)) > 0) == (word == "later")
    assert seconds < 4
    assert calls_before <= 1, "a search is asked once"
    assert again.status_code == 200
    assert _booked() >= vendor.ledger.totals["tokens"], "something was sold that is not in the books"
    assert fault_matrix.leaks(caplog, KEY, ana.token) == []


# Another deployment

SECRET = "what-only-two-deployments-know"


class Brain(Server):
    """Another deployment: its POST /internal/embed."""

    name = "brain"

    def respond(self, request: Request) -> Response:
        if request.bearer != SECRET:
            return self.error_response(401)
        batch = json.loads(request.body)["texts"]
        self.ledger.sell(batch)
        embedded = InstantEmbedder().embed(batch)
        return json_response(
            {"embeddings": embedded.tolist(), "model": InstantEmbedder.model, "dim": embedded.shape[1]}
        )

    def error_response(self, status: int, code: str | None = None) -> Response:
        return json_response({"code": code or "BRAIN", "detail": f"The other deployment answers {status}."}, status)


@pytest.fixture
def brain(settings: Any) -> Iterator[Brain]:
    with Brain() as server:
        settings.EMBEDDER = "remote"
        settings.BOOTS_BRAIN_URL, settings.BRAIN_API_SECRET = server.url, SECRET
        settings.VENDOR_TIMEOUT_SECONDS = PATIENT
        settings.EMBED_BATCH = BATCH
        registry.get_embedder.cache_clear()
        yield server
        for seconds in (QUICK, PATIENT):
            remote_accessa._client(seconds, os.getpid()).close()
        remote_accessa._client.cache_clear()
    registry.get_embedder.cache_clear()


@pytest.mark.parametrize(("kind", "site", "word"), cells("brain"))
def test_another_deployment_may_be_as_bad(
    kind: str, site: str, word: str, ana: Person, brain: Brain, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fault_matrix.listen(caplog)
    job = create_chunked_job(PASSAGES, user_id=ana.id)
    assert registry.get_embedder("remote").model == InstantEmbedder.model
    settings.VENDOR_TIMEOUT_SECONDS = QUICK if kind in SLOW else PATIENT
    fault_matrix.inject_fault(brain, "POST /internal/embed", kind)

    watch = fault_matrix.Stopwatch()
    ran = fault_matrix.run(job, lambda: _be_well(brain, settings))

    assert ran.outcome == OUTCOMES[word]
    assert kind not in fault_matrix.SLOW or watch.seconds < 25  # the slowest response would take 30 and more
    assert DocumentChunk.objects.filter(document_id=job.document_id, embed_model=InstantEmbedder.model).count() == len(
        PASSAGES
    )
    assert brain.ledger.repeated <= BATCH + 1
    assert not Purchase.objects.exists()
    assert fault_matrix.leaks(caplog, SECRET, ana.token) == []
