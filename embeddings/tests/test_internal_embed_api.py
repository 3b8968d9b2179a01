"""One deployment's vectors for another: POST /internal/embed, and the embedder that asks there."""

import json
import os
from typing import Any

import numpy
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from accounts.authentication import NO_TENANT_ID
from embeddings.embedders import registry, remote_accessa
from embeddings.embedders.registry import DIMENSIONS
from embeddings.embedders.remote_accessa import RemoteAccessa
from embeddings.models import DocumentChunk
from embeddings.tests.conftest import RecordingOpenAIServer
from jobs import worker
from jobs.models import UploadJob
from jobs.outcomes import Retryable, Wait
from testing.embedders import InstantEmbedder
from testing.factories.pending_documents import create_chunked_job, passage_texts
from testing.fakes.http_messages import Request, Response, json_response
from testing.fakes.server import Server
from testing.personas import Person, run_all_jobs
from vendors.call_failures import InvalidResponse
from vendors.models import Purchase

SECRET = "what-only-two-deployments-know"
PATH = "/internal/embed"
CALL = f"POST {PATH}"


@pytest.fixture
def shared(settings: Any, db: None) -> Client:
    settings.BRAIN_API_SECRET = SECRET
    settings.EMBEDDER = "testing.embedders.InstantEmbedder"
    return Client(headers={"authorization": f"Bearer {SECRET}"}, raise_request_exception=False)


def ask(client: Client, body: object, **headers: Any) -> Any:
    return client.post(PATH, body, content_type="application/json", headers=headers or None)


# The face


def test_texts_become_vectors_with_their_model_and_width(shared: Client) -> None:
    answer = ask(shared, {"texts": ["copay", "deductible"]})

    body = answer.json()
    assert (answer.status_code, body["model"], body["dim"]) == (200, "instant", DIMENSIONS)
    assert (
        numpy.array(body["embeddings"], numpy.float32).tobytes()
        == InstantEmbedder().embed(["copay", "deductible"]).tobytes()
    )


@pytest.mark.parametrize(
    "headers",
    [{"authorization": f"Bearer {SECRET}"}, {"authorization": f"bearer  {SECRET} "}, {"x-brain-api-secret": SECRET}],
)
def test_the_secret_may_come_in_either_header(headers: dict[str, str], shared: Client) -> None:
    assert ask(Client(), {"texts": ["copay"]}, **headers).status_code == 200


WRONG = [
    ({}, "NOT_AUTHENTICATED"),
    ({"authorization": "Basic eDp4"}, "NOT_AUTHENTICATED"),
    ({"authorization": "Bearer"}, "INVALID_TOKEN"),
    ({"authorization": "Bearer "}, "INVALID_TOKEN"),
    ({"authorization": f"Bearer {SECRET}x"}, "INVALID_TOKEN"),
    ({"authorization": f"Bearer {SECRET[:-1]}"}, "INVALID_TOKEN"),
    ({"authorization": "Bearer \xe9"}, "INVALID_TOKEN"),
    ({"x-brain-api-secret": ""}, "INVALID_TOKEN"),
    ({"x-brain-api-secret": SECRET.upper()}, "INVALID_TOKEN"),
    ({"x-brain-api-secret": "wrong", "authorization": f"Bearer {SECRET}"}, "INVALID_TOKEN"),
]


@pytest.mark.parametrize(("headers", "code"), WRONG)
def test_without_the_secret_it_is_401(headers: dict[str, str], code: str, shared: Client) -> None:
    answer = ask(Client(raise_request_exception=False), {"texts": ["copay"]}, **headers)

    assert (answer.status_code, answer.json()["code"]) == (401, code)
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_tenant_and_platform_tokens_are_refused(shared: Client, ana: Person, platform: Person) -> None:
    for person in (ana, platform):
        assert person.post(PATH, {"texts": ["copay"]}).status_code == 401


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer "}, {"x-brain-api-secret": ""}])
@pytest.mark.parametrize("method", ["get", "post", "options", "delete"])
def test_endpoint_is_404_without_a_configured_secret(
    method: str, headers: dict[str, str], settings: Any, db: None
) -> None:
    settings.BRAIN_API_SECRET = ""

    answer = getattr(Client(headers=headers), method)(PATH)

    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")


BAD = [
    ({"texts": ["x"] * 257}, 400, "TOO_MANY_TEXTS"),
    ({"texts": ["x", ""]}, 400, "EMPTY_TEXT"),
    ({"texts": [" \n"]}, 400, "EMPTY_TEXT"),
    ({"texts": ["x" * 32_001]}, 400, "TEXT_TOO_LONG"),
    ({"texts": []}, 400, "INVALID_REQUEST"),
    ({"texts": "copay"}, 400, "INVALID_REQUEST"),
    ({"texts": None}, 400, "INVALID_REQUEST"),
    ({"texts": [["x"]]}, 400, "INVALID_REQUEST"),
    ({"texts": [None]}, 400, "INVALID_REQUEST"),
    ({"texts": ["\0"]}, 400, "INVALID_REQUEST"),
    ({}, 400, "INVALID_REQUEST"),
    ([], 400, "INVALID_REQUEST"),
    ("{", 400, "MALFORMED_JSON"),
    ({"texts": ["x" * 30_000] * 10}, 413, "BODY_TOO_LARGE"),
]


@pytest.mark.parametrize(("body", "status", "code"), BAD)
def test_invalid_texts_are_refused_by_field(body: object, status: int, code: str, shared: Client) -> None:
    answer = ask(shared, body)

    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_largest_allowed_request_is_embedded(shared: Client) -> None:
    assert ask(shared, {"texts": [f"text {n}" for n in range(256)]}).status_code == 200
    assert ask(shared, {"texts": ["x" * 32_000]}).status_code == 200


def test_deployment_with_a_remote_embedder_answers_409(shared: Client, settings: Any) -> None:
    settings.EMBEDDER = "remote"

    answer = ask(shared, {"texts": ["copay"]})

    assert (answer.status_code, answer.json()["code"]) == (409, "NO_MODEL_HERE")


def test_a_paid_model_is_on_the_platforms_bill(shared: Client, vendor: RecordingOpenAIServer) -> None:
    answer = ask(shared, {"texts": ["copay", "deductible"]})

    assert answer.json()["model"] == "text-embedding-3-small"
    (entry,) = Purchase.objects.values_list("user_id", "stage", "state", "quantity")
    assert entry == (NO_TENANT_ID, "internal_embed", "settled", vendor.ledger.totals["tokens"])


@pytest.mark.parametrize(("kind", "status", "code"), [
    ("status-500", 503, "EMBEDDER_UNAVAILABLE"),
    ("status-429", 503, "EMBEDDER_UNAVAILABLE"),
    ("garbage", 503, "EMBEDDER_UNAVAILABLE"),
    ("status-400", 400, "TEXT_REFUSED"),
])  # fmt: skip
def test_vendor_failure_is_503(
    kind: str, status: int, code: str, shared: Client, vendor: RecordingOpenAIServer
) -> None:
    vendor.inject_fault("*", kind)

    answer = ask(shared, {"texts": ["copay"]})

    assert (answer.status_code, answer.json()["code"]) == (status, code)


# The embedder that asks there


class Brain(Server):
    """Another deployment, as its wire shows it."""

    name = "brain"

    def __init__(self) -> None:
        super().__init__()
        self.model = "instant"
        self.sizes: list[int] = []

    def respond(self, request: Request) -> Response:
        if request.bearer != SECRET:
            return json_response({"code": "INVALID_TOKEN", "detail": "The token is not valid."}, 401)
        batch = json.loads(request.body)["texts"]
        self.sizes.append(len(batch))
        self.ledger.sell(batch)
        embeddings = InstantEmbedder().embed(batch).tolist()
        return json_response(self.spoilt({"embeddings": embeddings, "model": self.model, "dim": DIMENSIONS}))

    def spoilt(self, body: dict[str, Any]) -> dict[str, Any]:
        return body

    def error_response(self, status: int, code: str | None = None) -> Response:
        return json_response({"code": code or "REFUSED", "detail": "No."}, status)


@pytest.fixture
def brain(settings: Any, db: None) -> Any:
    registry.get_embedder.cache_clear()
    with Brain() as server:
        settings.EMBEDDER = "remote"
        settings.BOOTS_BRAIN_URL = server.url + "/"
        settings.BRAIN_API_SECRET = SECRET
        settings.VENDOR_TIMEOUT_SECONDS = 5.0
        yield server
    remote_accessa._client(5.0, os.getpid()).close()
    remote_accessa._client.cache_clear()
    registry.get_embedder.cache_clear()


def test_remote_embedding_costs_nothing(brain: Brain, ana: Person) -> None:
    passages = passage_texts(100)
    job = create_chunked_job(passages, user_id=ana.id)

    worker.drain()

    done = UploadJob.objects.get(pk=job.pk)
    assert (done.state, done.embed_model, int(done.cost_cents)) == ("done", "instant", 0)
    assert brain.sizes == [1, *[32] * 3, 4] or sorted(brain.sizes) == [1, 4, 32, 32, 32]
    assert set(brain.ledger.counts.values()) == {1}
    assert DocumentChunk.objects.filter(embed_model="instant").count() == 100
    assert not Purchase.objects.exists()
    assert ana.post("/search", {"query": passages[5]}).json()["passages"][0]["text"] == passages[5]


def test_response_has_the_remote_models_vectors(brain: Brain) -> None:
    assert RemoteAccessa().embed(["copay", "x"]) == pytest.approx(InstantEmbedder().embed(["copay", "x"]))
    assert RemoteAccessa().embed([]).shape == (0, DIMENSIONS)


SPOILT = [
    {"embeddings": []},
    {"embeddings": None},
    {"embeddings": [[1.0] * (DIMENSIONS - 1)]},
    {"embeddings": [[0.0] * DIMENSIONS]},
    {"embeddings": [[float("nan")] * DIMENSIONS]},
    {"embeddings": [[1e300] * DIMENSIONS]},
    {"embeddings": [["x"] * DIMENSIONS]},
    {"embeddings": [{}]},
    {"dim": 384},
    {"dim": None},
    {"model": ""},
    {"model": 7},
    {"model": "x" * 300},
]


@pytest.mark.parametrize("spoilt", SPOILT)
def test_invalid_response_is_rejected_as_a_whole(
    spoilt: dict[str, Any], brain: Brain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brain, "spoilt", lambda body: body | spoilt)

    with pytest.raises(InvalidResponse):
        RemoteAccessa().call(["copay"])


def test_changed_remote_model_fails_once_and_is_then_adopted(brain: Brain) -> None:
    embedder = RemoteAccessa()
    assert embedder.model == "instant"
    brain.model = "another"

    with pytest.raises(InvalidResponse):
        embedder.call(["copay"])

    assert embedder.model == "another"


def test_remote_models_name_is_fetched_once(brain: Brain) -> None:
    embedder = RemoteAccessa()

    assert [embedder.model, embedder.model] == ["instant"] * 2
    assert brain.sizes == [1]


@pytest.mark.parametrize("kind", ["status-500", "garbage", "reset", "redirect-302", "truncated-body", "refused"])
def test_failing_deployment_is_retried(kind: str, brain: Brain, ana: Person) -> None:
    job = create_chunked_job(passage_texts(10), user_id=ana.id)
    brain.inject_fault(CALL, kind)

    worker.drain()
    held = UploadJob.objects.get(pk=job.pk)
    brain.clear_faults()
    run_all_jobs()

    assert held.state == "retryable"
    assert UploadJob.objects.get(pk=job.pk).state == "done"


def test_wrong_secret_makes_the_job_wait(brain: Brain, settings: Any) -> None:
    settings.BRAIN_API_SECRET = "another"

    with pytest.raises(Wait, match="VENDOR_REFUSES_KEY"):
        _ = RemoteAccessa().model


def test_closed_deployment_is_a_retryable_failure(brain: Brain) -> None:
    brain.close()

    with pytest.raises(Retryable, match="VENDOR_UNREACHABLE"):
        _ = RemoteAccessa().model


@pytest.mark.parametrize("name", ["BOOTS_BRAIN_URL", "BRAIN_API_SECRET"])
def test_a_missing_setting_is_named(name: str, brain: Brain, settings: Any) -> None:
    setattr(settings, name, "")

    with pytest.raises(ImproperlyConfigured, match=name):
        _ = RemoteAccessa().model
