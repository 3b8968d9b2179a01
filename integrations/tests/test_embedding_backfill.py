"""Embedding backfill: records get vectors of their tenant's model, once, in one process."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, ClassVar

import psycopg
import pytest
from django.conf import settings as configured
from django.db import connection

from embeddings import active_model
from embeddings.embedders.registry import Vectors
from embeddings.models import ActiveModel
from integrations.models import ClientIntelligence, ConnectedSource, SourceDocument
from integrations.records import embedding_backfill
from integrations.records.embedding_backfill import LOCK_KEY, backfill_embeddings
from jobs.outcomes import Wait
from testing.embedders import InstantEmbedder
from testing.error_codes import error_code
from testing.factories.records import create_client, create_record, create_source
from testing.personas import Person
from vendors.calls import VendorRefused

pytestmark = pytest.mark.django_db


class Watched(InstantEmbedder):
    """Remembers what it was asked; refuses what is unwanted; is away, or does something, when it is told to."""

    model = "watched"
    batch_size = 4
    seen: ClassVar[list[str]] = []
    refused: ClassVar[list[int]] = []
    away: ClassVar[list[bool]] = []  # of the next call, the last first
    meanwhile: ClassVar[list[Callable[[], object]]] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        if any("unwanted" in text for text in texts):
            self.refused.append(len(texts))
            raise VendorRefused(400, None)
        if (self.away and self.away.pop()) or any("away" in text for text in texts):
            raise Wait(60, error_code("VENDOR_AWAY"))
        while self.meanwhile:
            self.meanwhile.pop()()
        self.seen.extend(texts)
        return super().embed(texts)


@pytest.fixture(autouse=True)
def moved(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was embedded before the test says otherwise is of a former model."""
    settings.EMBEDDER = f"{__name__}.Watched"
    Watched.seen.clear()
    Watched.away.clear()
    Watched.refused.clear()
    Watched.meanwhile.clear()
    monkeypatch.setattr(embedding_backfill, "_refused", set())
    monkeypatch.setattr(embedding_backfill, "_tenants", embedding_backfill.TenantCursor())


def former(source: ConnectedSource, count: int) -> None:
    for number in range(count):
        create_record(source, f"company:{number}", f"text {number}", embedding_model="former@1")


def database() -> dict[str, Any]:
    named = connection.get_connection_params()
    return {name: value for name, value in named.items() if name in ("host", "port", "dbname", "user", "password")}


def models() -> set[str | None]:
    documents = SourceDocument.objects.exclude(text="").values_list("embedding_model", flat=True)
    return {*documents, *ClientIntelligence.objects.values_list("embedding_model", flat=True)}


def test_a_model_change_reembeds_every_record_once(ana: Person, ben: Person) -> None:
    former(create_source(ana.id), 9)
    former(create_source(ben.id), 2)
    create_client(ben.id, "Northwind", "a client", embedding_model="former@1")
    Watched.seen.clear()

    assert backfill_embeddings() == 12

    assert len(Watched.seen) == 12
    assert models() == {"watched@1"}
    assert backfill_embeddings() == 0
    assert len(Watched.seen) == 12


def test_reembedded_records_are_found(ana: Person) -> None:
    former(create_source(ana.id), 3)
    query = {"query": "text 1", "sources": ["hubspot"], "mode": "vector", "k": 1}
    assert ana.post("/search", query).json()["records"] == []

    backfill_embeddings()

    assert ana.post("/search", query).json()["records"][0]["external_id"] == "company:1"


def test_only_records_without_a_vector_are_embedded(ana: Person) -> None:
    source = create_source(ana.id)
    create_record(source, "company:1", "left", embed=False)
    create_record(source, "company:2", "")
    create_client(ana.id, "Northwind", "left too", embed=False)
    create_record(source, "company:3", "right")
    others = SourceDocument.objects.exclude(external_id="company:1").extra(select={"xmin": "xmin::text"})
    before = list(others.values("pk", "xmin"))
    Watched.seen.clear()

    assert backfill_embeddings() == 2

    assert sorted(Watched.seen) == ["left", "left too"]
    row = SourceDocument.objects.get(external_id="company:1")
    assert bytes(row.embedding_text_sha256 or b"") == sha256(b"left").digest()
    assert list(others.values("pk", "xmin")) == before


def test_a_pinned_tenant_keeps_its_model(ana: Person) -> None:
    ActiveModel.objects.create(user_id=ana.id, embed_model="local", embed_version="1", pinned=True)
    create_record(create_source(ana.id), "company:1", "text", embed=False, embedding_model=None)

    assert active_model.active_model(ana.id).model == "local"
    assert backfill_embeddings() in (0, 1)
    assert Watched.seen == []


def test_a_refused_text_is_sent_once_and_blocks_no_other(ana: Person) -> None:
    source = create_source(ana.id)
    create_record(source, "file:1", "unwanted", embed=False)
    former(source, 5)
    Watched.seen.clear()

    backfill_embeddings()
    refused = list(Watched.refused)
    backfill_embeddings()

    assert len(Watched.seen) == 5
    assert refused[-1] == 1, "alone at last"
    assert Watched.refused == refused
    assert SourceDocument.objects.filter(embedding_model=None).count() == 1


def test_vectors_bought_before_an_outage_are_kept(ana: Person) -> None:
    former(create_source(ana.id), 12)
    Watched.seen.clear()
    Watched.away.extend([True, False])

    assert backfill_embeddings() == 4

    assert SourceDocument.objects.filter(embedding_model="watched@1").count() == len(Watched.seen) == 4
    assert backfill_embeddings() == 8


def test_one_tenants_failure_does_not_stop_other_tenants(ana: Person, ben: Person) -> None:
    create_record(create_source(ana.id), "company:1", "away", embed=False)
    former(create_source(ben.id), 3)

    assert backfill_embeddings() == 3


def test_without_time_left_nothing_is_embedded(ana: Person) -> None:
    former(create_source(ana.id), 3)

    assert backfill_embeddings(seconds=0) == 0


def test_two_processes_do_not_embed_the_same(ana: Person) -> None:
    former(create_source(ana.id), 3)
    with psycopg.connect(**database()) as other:
        other.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [LOCK_KEY])

        assert backfill_embeddings() == 0

        other.execute("SELECT pg_advisory_unlock_all()")
    assert backfill_embeddings() == 3


def test_records_of_a_source_being_purged_are_not_embedded(ana: Person) -> None:
    former(create_source(ana.id, status="disconnected"), 3)
    Watched.seen.clear()

    assert backfill_embeddings() == 0
    assert Watched.seen == []


def test_a_concurrently_changed_text_keeps_the_vector_of_its_sync(ana: Person) -> None:
    former(create_source(ana.id), 1)
    Watched.meanwhile.append(lambda: SourceDocument.objects.update(text="newer"))

    assert backfill_embeddings(seconds=5) == 0

    assert Watched.meanwhile == []
    assert SourceDocument.objects.get().embedding_model == "former@1"


def test_the_backfill_is_a_periodic_task() -> None:
    assert "integrations.records.embedding_backfill.start_backfill" in configured.JOBS_PERIODIC_TASKS
