"""Tenant isolation: each of the two layers is removed in turn, and the other must hold at every endpoint."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.db.models import QuerySet
from django.db.models.sql.where import WhereNode
from django.test import Client

from documents import tags
from documents.models import Document, Tag
from embeddings.models import DocumentChunk
from embeddings.search import postings
from jobs import services
from jobs.models import UploadJob
from outbox.models import EVENTS
from outbox.webhooks import endpoints
from testing.factories.records import create_client, create_record, create_source
from testing.personas import Person, Upload, plan_pdf

Look = Callable[[Person, Upload], Any]
TENANT_TABLES = (
    "documents",
    "tags",
    "document_tags",
    "upload_jobs",
    "events",
    "document_chunk_buffer",
    "document_chunks",
    "document_vector_buffer",
    "answer_feedback",
    "saved_questions",
    "document_terms",
    "posting_segments",
    "posting_blocks",
    "shadow_vectors",
    "sentence_vectors",
    "outbox",
    "webhook_endpoints",
    "user_sessions",
    "connected_sources",
    "source_documents",
    "client_intelligence",
)

# Every address at which a tenant reads; Ben tries each with Ana's ids.
ONE: dict[str, Look] = {
    "job": lambda ben, ana: ben.get(f"/job/{ana.job_id}"),
    "document's job": lambda ben, ana: ben.get(f"/jobs/{ana.document_id}"),
    "retry": lambda ben, ana: ben.post(f"/jobs/{ana.document_id}/retry"),
    "document": lambda ben, ana: ben.get(f"/documents/{ana.document_id}"),
    "original": lambda ben, ana: ben.get(f"/documents/{ana.document_id}/original"),
    "picture": lambda ben, ana: ben.get(f"/documents/{ana.document_id}/pages/1"),
    "thumbnail": lambda ben, ana: ben.get(f"/documents/{ana.document_id}/thumbnail"),
    "parsed": lambda ben, ana: ben.get(f"/documents/{ana.document_id}/parsed"),
    "chunks": lambda ben, ana: ben.get(f"/documents/{ana.document_id}/chunks"),
    "rename": lambda ben, ana: ben.patch(f"/documents/{ana.document_id}", {"filename": "renamed.pdf", "tags": []}),
    # Her tag has the id of her document.
    "tag": lambda ben, ana: ben.get(f"/tags/{ana.document_id}"),
    "change tag": lambda ben, ana: ben.patch(f"/tags/{ana.document_id}", {"name": "renamed"}),
    "delete tag": lambda ben, ana: ben.delete(f"/tags/{ana.document_id}"),
    "delete": lambda ben, ana: ben.delete(f"/documents/{ana.document_id}"),
}
MANY: dict[str, Look] = {
    "jobs": lambda ben, ana: ben.get("/jobs"),
    "documents": lambda ben, ana: ben.get("/documents"),
    "tags": lambda ben, ana: ben.get("/tags"),
    "documents with a tag": lambda ben, ana: ben.get("/documents", tag=str(ana.document_id)),
    "search by tag": lambda ben, ana: ben.post(
        "/search", {"query": "hospital care", "filters": {"tags": [str(ana.document_id)]}}
    ),
    "webhook endpoints": lambda ben, ana: ben.get("/webhook-endpoints"),
    "search": lambda ben, ana: ben.post("/search", {"query": "hospital care"}),
    "search in it": lambda ben, ana: ben.post(
        "/search", {"query": "hospital care", "document_ids": [str(ana.document_id)]}
    ),
    "answer": lambda ben, ana: ben.post("/answer", {"question": "hospital care"}),
    "answer from it": lambda ben, ana: ben.post(
        "/answer", {"question": "hospital care", "document_ids": [str(ana.document_id)]}
    ),
    "search in systems": lambda ben, ana: ben.post("/search", {"query": "hospital care", "sources": ["hubspot"]}),
    "search among clients": lambda ben, ana: ben.post("/search", {"query": "hospital care", "sources": ["clients"]}),
}


@pytest.fixture
def owned(ana: Person, ben: Person) -> Upload:
    endpoints.create_endpoint(user_id=ana.id, url="https://hooks.example.com/", events=EVENTS)
    uploaded = ana.ingest(plan_pdf("hospital care", "drugs"))
    assert uploaded.job.state == "done"
    tag = Tag.objects.create(tag_id=uploaded.document_id, user_id=ana.id, name="plans", key="plans")
    tags.add_tags(Document.objects.get(), [tag.pk])
    create_record(create_source(ana.id), "company:1", "hospital care")
    create_client(ana.id, "Northwind", "hospital care")
    return uploaded


# `user_id = …`, with a parameter or a value, in the SQL that is written by hand.
WHOSE = re.compile(r"\b(?:\w+\.)?user_id = (?:%\(\w+\)s|%s\b|'[0-9a-f-]{36}'(?:::uuid)?)")


def careless(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
    """Run a search's statement without asking whose passage it is."""
    text = sql if isinstance(sql, str) else sql.as_string(connection.connection)
    asks = re.search(r"document_(chunks|terms)|source_documents|client_intelligence", text)
    return execute(WHOSE.sub("true", text) if asks else sql, params, many, context)


@pytest.fixture
def unscoped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every query forgets to ask whose row it is: filters on user_id do nothing, wherever they are written."""
    filtered = QuerySet.filter

    def forgetful(self: Any, *args: Any, **terms: Any) -> Any:
        return filtered(self, *args, **{name: term for name, term in terms.items() if name != "user_id"})

    monkeypatch.setattr(QuerySet, "filter", forgetful)
    # Their cursors are none of Django's.
    reads = [(postings, name) for name in ("SELECT_SEGMENTS", "SELECT_DOCUMENT_TERMS", "SELECT_BLOCKS", "IN_SEGMENTS")]
    for module, name in (*reads, (services, "TENANT_JOB")):
        monkeypatch.setattr(module, name, WHOSE.sub("true", getattr(module, name)))
    with connection.execute_wrapper(careless):
        yield


@contextmanager
def unprotected() -> Iterator[None]:
    """Row-level security is off, and the role may still read."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
        for table in TENANT_TABLES:
            cursor.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
            cursor.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
    yield


@pytest.fixture
def without_policies(owned: Upload) -> Iterator[None]:
    with unprotected():  # the test's transaction is rolled back, and this with it
        yield


def hidden(answer: Any) -> bool:
    return bool(answer.status_code == 404 and answer.json()["code"] == "NOT_FOUND")


def nothing_in(answer: Any) -> bool:
    body = answer.json()
    if "answered" in body:
        visible = body["sentences"] + body["nearest"]
    else:
        visible = body["results"] if "results" in body else body["passages"] + body["records"]
    return bool(answer.status_code == 200 and visible == [])


class ServiceForTenant(Person):
    """The platform's calls on behalf of a tenant, which are for reading only."""

    def __init__(self, platform: Person, tenant: Person) -> None:
        headers = {"authorization": f"Bearer {platform.token}", "x-accessa-user": str(tenant.id)}
        self.client = Client(headers=headers, raise_request_exception=False)


WRITES = {"retry", "delete", "rename", "change tag", "delete tag"}


def shown(ben: Person, owned: Upload) -> list[str]:
    """Return the endpoints at which Ben sees Ana's document."""
    one = {name: look for name, look in ONE.items() if not (isinstance(ben, ServiceForTenant) and name in WRITES)}
    visible = [name for name, look in MANY.items() if not nothing_in(look(ben, owned))]
    return visible + [name for name, look in one.items() if not hidden(look(ben, owned))]


def test_another_tenants_rows_are_invisible_with_both_layers(owned: Upload, ben: Person) -> None:
    assert shown(ben, owned) == []


def test_without_scoping_the_policies_still_hide(owned: Upload, ben: Person, unscoped: None) -> None:
    assert shown(ben, owned) == []
    assert Document.objects.filter(pk=owned.document_id).exists()


def test_without_policies_the_querysets_still_hide(owned: Upload, ben: Person, without_policies: None) -> None:
    assert shown(ben, owned) == []
    assert Document.objects.filter(pk=owned.document_id).exists()


def test_with_both_layers_gone_everything_would_show(
    owned: Upload, ben: Person, unscoped: None, without_policies: None
) -> None:
    """That the two tests above take away what they say. What answers 409 to a finished job has found it."""
    assert set(shown(ben, owned)) == {*ONE, *MANY}


# A service that acts for a tenant, at the same addresses


@pytest.fixture
def for_ben(platform: Person, ben: Person) -> Person:
    return ServiceForTenant(platform, ben)


def test_for_another_tenant_a_service_sees_nothing(owned: Upload, for_ben: Person) -> None:
    assert shown(for_ben, owned) == []


def test_for_another_tenant_the_policies_alone_hide(owned: Upload, for_ben: Person, unscoped: None) -> None:
    assert shown(for_ben, owned) == []


def test_for_another_tenant_the_querysets_alone_hide(owned: Upload, for_ben: Person, without_policies: None) -> None:
    assert shown(for_ben, owned) == []


def test_for_the_owner_a_service_sees_all_of_it(owned: Upload, ana: Person, platform: Person) -> None:
    assert set(shown(ServiceForTenant(platform, ana), owned)) == {*ONE, *MANY} - WRITES


# The functions that search records by their words restrict themselves, where no policy reaches

FORGETFUL = """
    CREATE OR REPLACE FUNCTION {function}(words text[], required tsquery, sources uuid[], most integer)
    RETURNS TABLE (id uuid, score double precision) LANGUAGE sql STABLE SECURITY DEFINER
    AS $$ SELECT d.id, 1.0::float8 FROM {table} d $$"""
BY_WORDS = {"find_source_documents": "source_documents", "find_clients": "client_intelligence"}


def by_words(person: Person) -> list[Any]:
    body = {"query": "hospital care", "sources": ["hubspot", "clients"], "mode": "text"}
    records: list[Any] = person.post("/search", body).json()["records"]
    return records


@pytest.fixture
def forgetful_functions(owned: Upload, ben: Person) -> None:
    create_source(ben.id)
    with connection.cursor() as cursor:
        for function, table in BY_WORDS.items():
            cursor.execute(FORGETFUL.format(function=function, table=table))


def test_without_the_functions_restraint_both_layers_hide(ana: Person, ben: Person, forgetful_functions: None) -> None:
    assert by_words(ben) == []
    assert len(by_words(ana)) == 2


def test_without_it_and_without_scoping_the_policies_hide(
    ben: Person, forgetful_functions: None, unscoped: None
) -> None:
    assert by_words(ben) == []


def test_without_it_and_without_policies_the_querysets_hide(
    ben: Person, forgetful_functions: None, without_policies: None
) -> None:
    assert by_words(ben) == []


def test_without_policies_and_scoping_the_functions_hide(
    owned: Upload, ana: Person, ben: Person, unscoped: None, without_policies: None
) -> None:
    assert by_words(ben) == []
    assert len(by_words(ana)) == 2


def test_the_owner_sees_all_of_it_at_the_same_addresses(owned: Upload, ana: Person) -> None:
    for name, look in (ONE | MANY).items():
        if name not in WRITES:
            answer = look(ana, owned)
            assert answer.status_code == 200, name
            assert name in ONE or not nothing_in(answer), name


# Byte for byte: what is another tenant's cannot be told from what does not exist

NOWHERE = Upload(UUID(int=7), UUID(int=8))


def shared(headers: Mapping[str, str]) -> dict[str, str]:
    """All but the id that each request has of its own."""
    return {name: value for name, value in headers.items() if name != "X-Correlation-ID"}


def test_a_foreign_id_answers_like_an_unknown_one(owned: Upload, ben: Person) -> None:
    for name, look in (ONE | MANY).items():
        foreign, unknown = look(ben, owned), look(ben, NOWHERE)

        assert (foreign.status_code, foreign.content) == (unknown.status_code, unknown.content), name
        assert shared(foreign.headers) == shared(unknown.headers), name


def test_a_foreign_job_is_not_even_counted_as_polled(owned: Upload, ana: Person, ben: Person) -> None:
    for _ in range(12):
        assert hidden(ben.get(f"/job/{owned.job_id}"))

    assert ana.get(f"/job/{owned.job_id}").status_code == 200


def test_no_row_of_the_owner_changed_by_anything_that_another_tried(owned: Upload, ben: Person) -> None:
    before = UploadJob.objects.values().get(), DocumentChunk.objects.count()

    for look in (ONE | MANY).values():
        look(ben, owned)

    assert (UploadJob.objects.values().get(), DocumentChunk.objects.count()) == before


def test_wrongly_spelled_ids_are_404_in_the_one_shape(ana: Person) -> None:
    for path in ("/job/1", "/jobs/x", "/documents/6c8a1e6e-1f0b-4aa8-9f0a", "/documents/'--/chunks", "/jobs/%00"):
        answer = ana.get(path)
        assert hidden(answer), path
        assert answer["Content-Type"] == "application/json"


def test_scoping_is_really_forgotten_by_the_fixture(owned: Upload, unscoped: None) -> None:
    where: WhereNode = UploadJob.objects.filter(user_id=UUID(int=1)).query.where
    assert not where.children
