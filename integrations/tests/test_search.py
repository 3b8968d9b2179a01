"""Search of records by meaning and by word: the tenant's own, connected and not deleted."""

import io
from collections.abc import Sequence
from typing import Any, ClassVar
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from accounts.rls import as_tenant
from embeddings.embedders import registry
from embeddings.embedders.registry import Vectors
from embeddings.models import ActiveModel
from integrations.models import SourceDocument
from integrations.search import MOST_TEXT
from testing.embedders import InstantEmbedder
from testing.factories.records import create_client, create_record, create_source
from testing.factories.searchable_documents import create_searchable_document
from testing.personas import Person

pytestmark = pytest.mark.django_db
ALL = ["documents", "hubspot", "google_drive", "quickbooks", "gmail", "clients"]


def answer(person: Person, query: str, sources: list[str] | None = None, **more: Any) -> dict[str, Any]:
    response = person.post("/search", {"query": query, "sources": sources or ["hubspot"], **more})
    assert response.status_code == 200, response.content
    actual: dict[str, Any] = response.json()
    return actual


def found_ids(person: Person, query: str, sources: list[str] | None = None, **more: Any) -> list[str]:
    return [shown["external_id"] for shown in answer(person, query, sources, **more)["records"]]


def companies(user_id: UUID) -> None:
    source = create_source(user_id)
    create_record(
        source, "company:1", "Northwind grows organic apples and pears", title="Northwind", url="https://a.example/1"
    )
    create_record(source, "company:2", "Contoso repairs aircraft engines", title="Contoso")
    create_record(source, "company:3", "Fabrikam sells accounting software", title="Fabrikam")


# Both arms


def test_a_company_is_found_by_meaning_without_any_of_its_words(ana: Person) -> None:
    companies(ana.id)

    shown = answer(ana, "fruit farm")["records"][0]

    assert (shown["external_id"], shown["parts"]["text"]) == ("company:1", None)
    assert shown["parts"]["vector"]["rank"] == 1


def test_a_company_is_found_by_a_word_with_all_fields(ana: Person) -> None:
    companies(ana.id)
    row = SourceDocument.objects.get(external_id="company:1")

    shown = answer(ana, "pears", mode="text")["records"]

    assert [one["external_id"] for one in shown] == ["company:1"]
    assert shown[0] | {"parts": None, "score": None, "updated_at": None} == {
        "record_id": str(row.pk),
        "source": "hubspot",
        "source_id": str(row.source_id),
        "document_type": "hubspot.company",
        "external_id": "company:1",
        "title": "Northwind",
        "url": "https://a.example/1",
        "client_name": None,
        "text": row.text,
        "snippet": "Northwind grows organic apples and <mark>pears</mark>",
        "score": None,
        "parts": None,
        "updated_at": None,
    }


def test_rare_words_and_titles_rank_higher(ana: Person) -> None:
    source = create_source(ana.id)
    for number in range(20):
        create_record(source, f"company:{number}", f"A company that sells goods {number}")
    create_record(source, "company:77", "sells aardvarks")
    create_record(source, "company:78", "a note about zebras")
    create_record(source, "company:79", "a note", title="Zebras")

    assert found_ids(ana, "which company sells aardvarks", mode="text")[0] == "company:77"
    assert found_ids(ana, "zebras", mode="text") == ["company:79", "company:78"]


def test_phrases_and_exclusions_hold_in_both_arms(ana: Person) -> None:
    source = create_source(ana.id)
    create_record(source, "deal:1", "renewal of the annual contract")
    create_record(source, "deal:2", "annual renewal, contract pending")
    create_record(source, "deal:3", "kidney")

    for mode in ("text", "vector", "hybrid"):
        assert found_ids(ana, '"annual contract" renewal', mode=mode) == ["deal:1"], mode
        assert "deal:1" not in found_ids(ana, "renewal -annual", mode=mode), mode
        assert set(found_ids(ana, 'renewal "of the"', mode=mode)) >= {"deal:1", "deal:2"}, mode


def test_a_word_with_quotes_and_backslashes_is_a_word(ana: Person) -> None:
    create_record(create_source(ana.id), "file:1", r"C:\reports\o'neil's.txt and ''quoted''")

    assert found_ids(ana, r"\ ' '' C:\reports\o'neil's.txt", mode="text") == ["file:1"]


def test_common_words_find_records_that_have_all_of_them(ana: Person) -> None:
    """Beyond what one search looks at: the function does not go through all of them."""
    source = create_source(ana.id)
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO source_documents (user_id, source_id, external_id, document_type, raw_payload, text)
               SELECT %s, %s, 'note:' || n, 'hubspot.note', '{}',
                      'common ' || CASE WHEN n %% 2 = 0 THEN 'even' ELSE 'odd' END FROM generate_series(1, 4100) n""",
            [ana.id, source.pk],
        )

    assert len(found_ids(ana, "common", mode="text", k=50)) == 50
    assert all(int(name[5:]) % 2 for name in found_ids(ana, "common odd", mode="text", k=50))


# What is meant


def test_without_sources_only_uploads_are_searched_and_the_passages_are_the_same(ana: Person) -> None:
    create_searchable_document(ana.id, ["apples in the plan"])
    companies(ana.id)

    plain = ana.post("/search", {"query": "apples"}).json()
    both = answer(ana, "apples", ["documents", "hubspot"])

    assert plain["records"] == []
    assert plain["passages"] == both["passages"] != []
    assert both["records"][0]["external_id"] == "company:1"
    assert answer(ana, "apples")["passages"] == []


def test_each_source_is_searched_by_its_name(ana: Person) -> None:
    for provider, kind in (("hubspot", "company"), ("google_drive", "file"), ("gmail", "thread")):
        create_record(create_source(ana.id, provider), f"{kind}:1", "apples")

    assert found_ids(ana, "apples", ["google_drive"]) == ["file:1"]
    assert set(found_ids(ana, "apples", ["hubspot", "gmail"])) == {"company:1", "thread:1"}
    assert found_ids(ana, "apples", ["quickbooks", "clients"]) == []


def test_clients_are_found_including_the_tenants_own(ana: Person) -> None:
    source = create_source(ana.id)
    create_client(ana.id, "Northwind", "Northwind grows apples", source=source, external_id="company:1")
    create_client(ana.id, "Tailspin", "Tailspin buys apples")

    shown = answer(ana, "apples", ["clients"])["records"]

    assert {(one["client_name"], one["source"], one["document_type"]) for one in shown} == {
        ("Northwind", "clients", "client"),
        ("Tailspin", "clients", "client"),
    }
    assert {one["source_id"] for one in shown} == {str(source.pk), None}
    assert found_ids(ana, "apples", ["hubspot"]) == []


def test_an_unknown_source_is_refused_by_name(ana: Person) -> None:
    refused = ana.post("/search", {"query": "apples", "sources": ["documents", "salesforce"]})

    assert (refused.status_code, refused.json()["code"], refused.json()["field"]) == (400, "UNKNOWN_SOURCE", "sources")
    assert ana.post("/search", {"query": "apples", "sources": []}).json()["field"] == "sources"


@pytest.mark.parametrize("mode", ["text", "vector"])
def test_deleted_and_disconnected_records_are_not_found(mode: str, ana: Person) -> None:
    source, left = create_source(ana.id), create_source(ana.id, "gmail")
    create_record(source, "company:1", "apples", deleted_at=timezone.now())
    create_record(left, "thread:1", "apples")
    create_client(ana.id, "Northwind", "apples", source=left)
    assert set(found_ids(ana, "apples", ALL, mode=mode)) == {"thread:1", None}

    type(left).objects.filter(pk=left.pk).update(status="disconnected")

    assert found_ids(ana, "apples", ALL, mode=mode) == []


def test_a_broken_source_s_records_are_still_found(ana: Person) -> None:
    create_record(create_source(ana.id, status="error"), "company:1", "apples")

    assert found_ids(ana, "apples") == ["company:1"]


def test_a_long_text_is_shown_by_its_beginning_and_found_beyond_it(ana: Person) -> None:
    text = "filler " * 1000 + "aardvark"
    create_record(create_source(ana.id), "file:1", text)

    shown = answer(ana, "aardvark", mode="text")["records"][0]

    assert shown["text"] == text[:MOST_TEXT]
    assert "<mark>aardvark</mark>" in shown["snippet"]


def test_markup_in_a_record_stays_text(ana: Person) -> None:
    create_record(create_source(ana.id), "thread:1", "<script>alert(1)</script> apples")

    assert answer(ana, "apples")["records"][0]["snippet"].count("<") == 2


# The command


def printed(*arguments: str, **options: Any) -> str:
    out = io.StringIO()
    call_command("search", *arguments, stdout=out, **options)
    return out.getvalue()


def test_the_command_searches_the_given_sources(ana: Person) -> None:
    companies(ana.id)
    create_searchable_document(ana.id, ["apples in the plan"], filename="plan.pdf")

    assert printed("apples", sources="hubspot,clients", k=1).startswith("1. hubspot, Northwind (")
    assert "plan.pdf, page 1" in printed("apples")
    assert "Northwind" not in printed("apples")
    with pytest.raises(CommandError, match="UNKNOWN_SOURCE"):
        printed("apples", sources="salesforce")


# Models and vendors


class Watched(InstantEmbedder):
    """Remembers how many texts each call had."""

    model = "watched"
    sizes: ClassVar[list[int]] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.sizes.append(len(texts))
        return super().embed(texts)


@pytest.fixture
def watched(settings: Any) -> type[Watched]:
    settings.EMBEDDER = f"{__name__}.Watched"
    Watched.sizes.clear()
    return Watched


def test_records_of_another_model_are_found_by_words_only(ana: Person) -> None:
    companies(ana.id)
    chosen = registry.get_embedder("local")
    ActiveModel.objects.create(user_id=ana.id, embed_model=chosen.model, embed_version=chosen.version, pinned=True)
    SourceDocument.objects.exclude(external_id="company:3").update(embedding_model="former@1")

    assert found_ids(ana, "apples", mode="vector") == ["company:3"]
    assert set(found_ids(ana, "apples")) == {"company:1", "company:3"}


def test_passages_and_records_share_one_query_vector(ana: Person, watched: type[Watched]) -> None:
    create_searchable_document(ana.id, ["apples in the plan"])
    create_record(create_source(ana.id), "company:1", "apples")
    watched.sizes.clear()

    both = answer(ana, "apples", ["documents", "hubspot"])

    assert watched.sizes == [1]
    assert both["passages"]
    assert both["records"]


def test_without_vectors_the_query_is_not_embedded(ana: Person, watched: type[Watched]) -> None:
    create_record(create_source(ana.id), "company:1", "apples", embed=False)

    assert found_ids(ana, "apples") == ["company:1"]
    assert watched.sizes == []


# Tenancy


def test_the_search_functions_return_the_callers_rows_only(ana: Person, ben: Person) -> None:
    source = create_source(ana.id)
    create_record(source, "company:1", "apples")
    create_client(ana.id, "Northwind", "apples")
    params: list[Any] = [["appl"], "", [source.pk], 10]

    def rows() -> int:
        with connection.cursor() as cursor:
            seen = 0
            for function in ("find_source_documents", "find_clients"):
                cursor.execute(f"SELECT * FROM {function}(%s, %s::tsquery, %s::uuid[], %s)", params)
                seen += len(cursor.fetchall())
        return seen

    for person, count in ((ana.id, 2), (ben.id, 0), (uuid4(), 0)):
        with as_tenant(person):
            assert rows() == count
    assert rows() == 0, "nobody asks"


def test_only_the_tenant_role_can_call_the_search_functions() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT p.proname, r.grantee::regrole::text FROM pg_proc p, aclexplode(p.proacl) r
               WHERE p.proname IN ('find_source_documents', 'find_clients') AND r.grantee <> p.proowner"""
        )
        assert sorted(cursor.fetchall()) == [
            ("find_clients", "accessa_client"),
            ("find_source_documents", "accessa_client"),
        ]
