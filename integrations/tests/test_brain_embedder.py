"""Records embedded by the deployment of BOOTS_BRAIN_URL (spec 002 §1), uploads by EMBEDDER."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from embeddings.embedders import registry, remote_accessa
from embeddings.models import DocumentChunk
from embeddings.tests.test_internal_embed_api import SECRET, Brain
from integrations.models import ConnectedSource, SourceDocument
from integrations.records import embedding_backfill
from integrations.tests.fake_provider.rest import Account
from integrations.tests.sync_helpers import item, run_sync
from testing.factories.records import create_record, create_source
from testing.personas import Person, plan_pdf

pytestmark = pytest.mark.django_db
BRAIN = "another-model"


@pytest.fixture
def brain(settings: Any) -> Iterator[Brain]:
    """Set the two variables of spec 002, and nothing else."""
    registry.get_embedder.cache_clear()
    with Brain() as server:
        server.model = BRAIN
        settings.BOOTS_BRAIN_URL, settings.BRAIN_API_SECRET = server.url, SECRET
        settings.VENDOR_TIMEOUT_SECONDS = 5.0
        yield server
    remote_accessa._client(5.0, os.getpid()).close()
    remote_accessa._client.cache_clear()
    registry.get_embedder.cache_clear()


def record_models() -> set[str | None]:
    return set(SourceDocument.objects.values_list("embedding_model", flat=True))


def found(person: Person, mode: str) -> list[str]:
    response = person.post("/search", {"query": "apples", "sources": ["hubspot"], "mode": mode})
    assert response.status_code == 200, response.content
    return [record["external_id"] for record in response.json()["records"]]


def test_records_are_embedded_and_found_by_the_other_deployment(
    account: Account, source: ConnectedSource, brain: Brain, ana: Person
) -> None:
    account.list("companies", item("company:1", name="Apples"))

    run_sync(source)

    assert record_models() == {f"{BRAIN}@1"}
    assert found(ana, "vector") == ["company:1"]


def test_uploads_keep_embedder(brain: Brain, ana: Person, settings: Any) -> None:
    ana.ingest(plan_pdf("hospital care"))

    model = registry.get_embedder(settings.EMBEDDER).model
    assert set(DocumentChunk.objects.values_list("embed_model", flat=True)) == {model}
    assert not brain.sizes


@pytest.mark.parametrize("unset", ["BOOTS_BRAIN_URL", "BRAIN_API_SECRET"])
def test_one_of_the_two_variables_selects_nothing(
    unset: str, account: Account, source: ConnectedSource, brain: Brain, settings: Any
) -> None:
    setattr(settings, unset, "")
    account.list("companies", item("company:1", name="Apples"))

    run_sync(source)

    assert record_models().isdisjoint({f"{BRAIN}@1", None})
    assert not brain.sizes


def test_records_of_the_former_model_are_embedded_again(
    brain: Brain, ana: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_backfill, "_tenants", embedding_backfill.TenantCursor())
    create_record(create_source(ana.id), "company:1", "apples")
    assert record_models().isdisjoint({f"{BRAIN}@1"})

    assert embedding_backfill.backfill_embeddings() == 1

    assert record_models() == {f"{BRAIN}@1"}
    assert embedding_backfill.backfill_embeddings() == 0


def test_words_are_found_while_the_other_deployment_is_away(brain: Brain, ana: Person) -> None:
    create_record(create_source(ana.id), "company:1", "apples")
    brain.close()

    assert found(ana, "text") == ["company:1"]
    response = ana.post("/search", {"query": "apples", "sources": ["hubspot"], "mode": "vector"})
    assert (response.status_code, response.json()["code"]) == (503, "SEARCH_UNAVAILABLE")
