"""Concurrent changes during a search: a new version, a withdrawal, a model that is away."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from django.db import connection, connections

from accounts.system_tenant import SYSTEM_TENANT_ID
from embeddings.tests.conftest import RecordingOpenAIServer, vendor  # noqa: F401 - a fixture
from jobs import worker
from portal.tests.conftest import signed_in
from statutes import search
from statutes.models import Law
from statutes.tests.sample_laws import LOWER, RATE, TAXED, deliver, law_xml, process
from testing.factories.searchable_documents import create_searchable_document
from testing.factories.searchable_statutes import create_searchable_statute
from testing.fakes.s3 import S3Server
from testing.personas import Person, claim_at_stage
from testing.slow_vendor import SlowVendor

# Before the model is looked up; before anything is ranked; between the ranking and what is shown of it; after that.
POINTS = ("FROM active_models", "tsvector_to_array", "c.chunk_ord, c.text", 'FROM "law_versions"')


@contextmanager
def before_the_first(marker: str, do: Callable[[], object]) -> Iterator[list[str]]:
    """Do something on a connection of its own just before the first statement with ``marker``."""
    seen: list[str] = []

    def elsewhere() -> None:
        do()
        connections.close_all()

    def watch(execute: Any, sql: Any, params: Any, *rest: Any) -> Any:
        if isinstance(sql, str) and marker in sql and not seen:
            seen.append(sql)
            other = threading.Thread(target=elsewhere)
            other.start()
            other.join()
        return execute(sql, params, *rest)

    with connection.execute_wrapper(watch):
        yield seen


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_during_a_replacement_one_of_two_versions_is_found(laws: S3Server, ana: Person) -> None:
    process(laws, law_xml(TAXED, RATE), "2024-00")

    for at, (point, law_ids) in enumerate([*((point, None) for point in POINTS), (POINTS[1], ["LIVA"])]):
        before, after = f"2024-{at:02}", f"2024-{at + 1:02}"
        deliver(laws, law_xml(TAXED, LOWER if at % 2 == 0 else RATE), after)
        claim = claim_at_stage("embedded")
        with before_the_first(point, partial(worker.run_stage, claim)) as seen:
            passages = search.search_statutes(user_id=ana.id, query="tasa del impuesto", law_ids=law_ids)

        assert seen, point
        assert Law.objects.get().version == after
        assert ({law.version for law in passages}, len(passages)) in (({before}, 2), ({after}, 2)), point
        assert all(law.citation.startswith(f"{law.title} ({law.version})") for law in passages)
        assert len(
            {law.text for law in passages}
            & {law.text for law in search.search_statutes(user_id=ana.id, query="impuesto")}
        )


@pytest.mark.django_db
@pytest.mark.parametrize("narrowed", [{}, {"law_ids": ["LIVA"]}, {"filters": {"filename": "ley de ejemplo"}}])
def test_a_statute_replaced_during_query_embedding_is_found(
    narrowed: dict[str, Any], ana: Person, settings: Any
) -> None:
    settings.EMBEDDERS_OF = {SYSTEM_TENANT_ID: "testing.slow_vendor.SlowVendor"}
    old = create_searchable_statute("LIVA", "Artículo 1. La tasa es del quince por ciento.")

    def replaced() -> None:
        create_searchable_statute("LIVA", "Artículo 1. La tasa es del dieciséis por ciento.", version="2024-02")
        taken_out(old)

    SlowVendor.meanwhile.append(replaced)
    passages = search.search_statutes(user_id=ana.id, query="tasa", **narrowed)

    assert not SlowVendor.meanwhile
    assert [law.version for law in passages] == ["2024-02"]


def taken_out(document_id: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM document_terms WHERE document_id = %s", [document_id])
        cursor.execute("DELETE FROM document_chunks WHERE document_id = %s", [document_id])


# The laws' model is away


@pytest.fixture
def apart(vendor: RecordingOpenAIServer, settings: Any) -> RecordingOpenAIServer:  # noqa: F811
    """Set another model for statutes, whose vendor is down."""
    settings.EMBEDDER, settings.EMBEDDERS_OF = "local", {SYSTEM_TENANT_ID: "openai"}
    create_searchable_statute("LIVA", "Artículo 1. La tasa de los puertos es del dieciséis por ciento.")
    vendor.inject_fault("POST /v1/embeddings", "status-500", times=5)
    return vendor


@pytest.mark.django_db
def test_an_unavailable_model_leaves_text_search_in_the_api(ana: Person, apart: RecordingOpenAIServer) -> None:
    def said(**more: Any) -> Any:
        return ana.post("/search", {"query": "tasa", "sources": ["statutes"], **more})

    assert (said().status_code, said().json()["code"]) == (503, "SEARCH_UNAVAILABLE")
    assert len(said(mode="text").json()["laws"]) == 1
    assert ana.post("/search", {"query": "tasa"}).status_code == 200


@pytest.mark.django_db
def test_an_unavailable_model_leaves_documents_and_text_search_on_the_page(
    ana: Person, apart: RecordingOpenAIServer
) -> None:
    create_searchable_document(ana.id, ["la tasa de mi seguro"], filename="private.pdf")

    page = signed_in(ana).post("/find", {"query": "tasa"}).content.decode()

    assert "private.pdf" in page
    assert "Ley de Ejemplo (2024-01), Artículo 1, p. 1" in page
