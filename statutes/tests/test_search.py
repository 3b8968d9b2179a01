"""Search of statutes: shared by all tenants, cited by article, version and page."""

import io
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from django.core.management import call_command
from django.test import Client

from embeddings.embedders.registry import Vectors
from embeddings.models import DocumentChunk
from embeddings.search import query_parser
from embeddings.tests.conftest import RecordingOpenAIServer, vendor  # noqa: F401 - a fixture
from testing.embedders import InstantEmbedder
from testing.factories.searchable_documents import create_searchable_document
from testing.factories.searchable_statutes import create_searchable_statute
from testing.personas import Person
from vendors.models import Purchase

pytestmark = pytest.mark.django_db
BONDS = "Las autoridades fiscales podrán comprobar el cumplimiento de las obligaciones de los contribuyentes. "
LAW = f"""CAPÍTULO I DISPOSICIONES GENERALES
Artículo 1. Las personas físicas pagarán el impuesto por la enajenación de bienes.
Artículo 2. La tasa será del dieciséis por ciento. {"El cálculo se hará por mes. " * 30}
\fArtículo 12 Bis. Los comerciantes expedirán facturas a sus clientes.
CAPÍTULO II FACULTADES
Artículo 13. {BONDS * 14}
Artículo 14. {"Las visitas se harán de día. " * 140}"""
ACT = f"""CHAPTER 1 GENERAL
Section 1. The taxpayer shall keep the records of La Plata county, and of every sale that the act names.
Section 2. {"The inspector may examine the accounts of the taxpayer at any time of the day. " * 14}"""


def search_api(person: Person, query: str, sources: Sequence[str] = ("statutes",), **more: Any) -> dict[str, Any]:
    response = person.post("/search", {"query": query, "sources": list(sources), **more})
    assert response.status_code == 200, response.content
    body: dict[str, Any] = response.json()
    return body


def search_passages(person: Person, query: str, **more: Any) -> list[dict[str, Any]]:
    laws: list[dict[str, Any]] = search_api(person, query, **more)["laws"]
    return laws


def citations(person: Person, query: str, **more: Any) -> list[str]:
    return [law["citation"] for law in search_passages(person, query, **more)]


def marked(passage: dict[str, Any]) -> str:
    return str(passage["snippet_html"].partition("<mark>")[2].partition("</mark>")[0])


# The citation


def test_a_result_has_every_field_of_a_citation(ana: Person) -> None:
    create_searchable_statute("LIVA", LAW)
    row = DocumentChunk.objects.get(chunk_ord=1)
    meta = row.meta or {}

    shown = search_passages(ana, "obligaciones de los contribuyentes", mode="text")[0]

    assert shown | {"score": None, "parts": None, "snippet_text": None, "snippet_html": None, "answer_span": None} == {
        "chunk_id": str(row.pk),
        "chunk_ids": [str(row.pk)],
        "law_id": "LIVA",
        "title": "Ley de Ejemplo",
        "version": "2024-01",
        "status": "embedded",
        "language": "es",
        "article": "Artículo 13",
        "articles": [{"id": "13", "label": "Artículo 13"}],
        "citation": "Ley de Ejemplo (2024-01), Artículo 13, p. 2",
        "headings": ["CAPÍTULO II FACULTADES", "Artículo 13"],
        "pages": [2, 2],
        "start": meta["start"],
        "end": meta["end"],
        "text": row.text,
        "score": None,
        "parts": None,
        "snippet_text": None,
        "snippet_html": None,
        "answer_span": None,
    }
    start, end = (each - meta["start"] for each in shown["answer_span"])
    assert f"<mark>{row.text[start:end]}</mark>" in shown["snippet_html"]
    assert f"{row.text[start:end]} " == BONDS


def test_the_answering_article_of_a_passage_is_cited_with_its_page(ana: Person) -> None:
    create_searchable_statute("LIVA", LAW)

    assert search_passages(ana, "facturas", mode="text")[0]["pages"] == [1, 2]
    assert citations(ana, "facturas", mode="text") == ["Ley de Ejemplo (2024-01), Artículo 12 Bis, p. 2"]
    assert citations(ana, "tasa", mode="text") == ["Ley de Ejemplo (2024-01), Artículo 2, p. 1"]
    assert citations(ana, "artículo 1", mode="text", k=1) == ["Ley de Ejemplo (2024-01), Artículo 1, p. 1"]


def test_pieces_of_a_long_article_are_merged_and_cited_as_one(ana: Person) -> None:
    create_searchable_statute("LIVA", LAW)

    pieces = search_passages(ana, "visitas", mode="text")
    whole = search_passages(ana, "visitas", mode="text", merge=True)

    assert [law["article"] for law in pieces] == ["Artículo 14"] * 2
    assert [(law["article"], len(law["chunk_ids"])) for law in whole] == [("Artículo 14", 2)]
    assert whole[0]["text"].count("Las visitas") == 140


def test_an_article_after_the_last_piece_of_another_is_cited_separately(ana: Person) -> None:
    again = f"Artículo 16. {'Los muelles cierran de noche. ' * 200}"
    create_searchable_statute("LIVA", f"LEY DE EJEMPLO\n{LAW}\nArtículo 15. Los faros no pagan.\n{again}")

    assert search_passages(ana, "faros", mode="text")[0]["articles"] == [
        {"id": "14", "label": "Artículo 14"}, {"id": "15", "label": "Artículo 15"}
    ]  # fmt: skip
    assert citations(ana, "faros", mode="text") == ["Ley de Ejemplo (2024-01), Artículo 15, p. 2"]
    assert citations(ana, "visitas", mode="text", k=2) == ["Ley de Ejemplo (2024-01), Artículo 14, p. 2"] * 2
    merged = search_passages(ana, "visitas", mode="text", merge=True)
    assert [(law["article"], len(law["chunk_ids"])) for law in merged] == [("Artículo 14", 2)]


def test_headings_and_markup_belong_to_the_cited_article(ana: Person) -> None:
    short = "\n".join(f"Artículo {number}. El párrafo {'cedro' if number == 5 else 'pino'}." for number in range(3, 6))
    create_searchable_statute("LF", f"CAPÍTULO I ÁRBOLES\nArtículo 1. Los abetos.\nCAPÍTULO II MADERAS\n{short}")

    law = search_passages(ana, "cedro", mode="text")[0]

    assert law["citation"] == "Ley de Ejemplo (2024-01), Artículo 5, p. 1"
    assert law["headings"] == ["CAPÍTULO II MADERAS", "Artículo 5"]
    assert "#" not in law["snippet_html"] + law["snippet_text"]
    assert search_passages(ana, "maderas", mode="text")[0]["article"] is None
    assert citations(ana, "maderas", mode="text") == ["Ley de Ejemplo (2024-01), Artículo 1 – Artículo 5, p. 1"]  # noqa: RUF001


def test_results_show_missing_articles_pages_and_passages(ana: Person) -> None:
    create_searchable_statute(
        "LIVA", f"TÍTULO I PUERTOS\n{'Este título trata de puertos. ' * 30}\n{LAW}", form="xml", status="partial_failed"
    )

    law = search_passages(ana, "puertos", mode="text", k=1)[0]

    assert (law["article"], law["articles"], law["pages"]) == (None, [], [])
    assert law["citation"] == "Ley de Ejemplo (2024-01), TÍTULO I PUERTOS"
    assert law["status"] == "partial_failed"


def test_the_named_subsection_of_a_passage_is_cited(ana: Person) -> None:
    create_searchable_statute(
        "ACT", "Section 4(a) Records of the board.\nSection 4(b) The records that the clerk of the act keeps."
    )

    for label in ("Section 4(a)", "Section 4(b)"):
        assert citations(ana, f"What does {label.lower()} say of records?", mode="text") == [
            f"Ley de Ejemplo (2024-01), {label}, p. 1"
        ]


def test_a_version_from_a_notification_is_cited_by_its_date(ana: Person) -> None:
    create_searchable_statute("LIVA", LAW, version="2026-01-02T03:04:05.000000Z")

    law = search_passages(ana, "facturas", mode="text")[0]

    assert law["citation"] == "Ley de Ejemplo (2026-01-02), Artículo 12 Bis, p. 2"
    assert law["version"] == "2026-01-02T03:04:05.000000Z"


# Two languages


@pytest.mark.parametrize(
    "query",
    ["obligaciones", "obligación", "obligacion", "OBLIGACIÓN", "la obligación de otros", '"autoridad fiscal"'],
)
def test_spanish_words_match_in_any_form_and_without_accents(query: str, ana: Person) -> None:
    create_searchable_statute("LIVA", LAW)

    assert search_passages(ana, query, mode="text", k=1)[0]["article"] == "Artículo 13"


def test_each_language_is_searched_and_marked_with_its_own_stemmer(ana: Person) -> None:
    create_searchable_statute("LIVA", LAW)
    create_searchable_statute("ACT", ACT, title="Records Act")

    assert citations(ana, "examining accounts", mode="text", k=1) == ["Records Act (2024-01), Section 2, p. 1"]
    assert "examine" in marked(search_passages(ana, "examining", mode="text")[0])
    assert "obligaciones" in marked(search_passages(ana, "la obligación", mode="text")[0])


def test_a_stop_word_of_one_language_is_no_rare_word_of_the_other(ana: Person) -> None:
    create_searchable_statute("LIVA", LAW)
    create_searchable_statute("ACT", ACT, title="Records Act")

    assert {law["law_id"] for law in search_passages(ana, "la tasa que es del dieciséis", mode="text")} == {"LIVA"}
    assert search_passages(ana, "de la que", mode="text") == []


def test_quotes_and_exclusions_apply_in_every_language(ana: Person) -> None:
    create_searchable_statute("LIVA", LAW)
    create_searchable_statute("ACT", ACT, title="Records Act")

    for mode in ("text", "vector", "hybrid"):
        assert {law["article"] for law in search_passages(ana, '"visita se harán"', mode=mode)} == {"Artículo 14"}, mode
        assert {law["law_id"] for law in search_passages(ana, "fiscal accounts -artículos", mode=mode)} == {"ACT"}, mode
        assert {
            law["law_id"] for law in search_passages(ana, 'contribuyente taxpayer "of the" "de la"', mode=mode)
        } != set(), mode


def test_the_stemmer_of_uploads_does_not_change(ana: Person) -> None:
    create_searchable_document(ana.id, ["las obligaciones de los contribuyentes", "obligations of taxpayers"])

    assert [one["text"] for one in search_api(ana, "obligation", ["documents"], mode="text")["passages"]] == [
        "obligations of taxpayers"
    ]
    assert search_api(ana, "obligación", ["documents"], mode="text")["passages"] == []


# Whose


def test_every_tenant_searches_statutes_and_lists_none_as_a_document(ana: Person, ben: Person) -> None:
    document = create_searchable_statute("LIVA", LAW)

    assert citations(ana, "facturas") == citations(ben, "facturas") != []
    assert ana.get("/documents").json()["results"] == []
    for path in (f"/documents/{document}", f"/documents/{document}/chunks", f"/documents/{document}/parsed"):
        assert ana.get(path).status_code == 404, path
    assert ana.delete(f"/documents/{document}").status_code == 404
    assert Client().post("/search", {"query": "tasa", "sources": ["statutes"]}).status_code == 401


def test_statutes_are_searched_only_on_request(ana: Person) -> None:
    document = create_searchable_statute("LIVA", LAW)

    response = ana.post("/search", {"query": "facturas"}).json()

    assert response == {"passages": [], "records": [], "laws": [], "nearest": []}
    for ids in ([str(document)], []):
        assert search_api(ana, "facturas", ["documents"], document_ids=ids)["passages"] == []
        assert search_api(ana, "facturas", ["documents", "statutes"], document_ids=ids)["passages"] == []


def test_documents_of_a_tenant_are_not_among_the_statutes(ana: Person, ben: Person) -> None:
    create_searchable_document(ana.id, ["facturas"], filename="private.pdf")
    create_searchable_statute("LIVA", LAW)

    both = search_api(ana, "facturas", ["documents", "statutes"])

    assert [one["filename"] for one in both["passages"]] == ["private.pdf"]
    assert "private.pdf" not in str(both["laws"])
    assert "private.pdf" not in str(search_api(ben, "facturas", ["documents", "statutes"]))


def test_statutes_are_filtered_by_id_and_by_passage_filters(ana: Person) -> None:
    create_searchable_statute("LIVA", LAW)
    create_searchable_statute("LISR", LAW.replace("CAPÍTULO II", "CAPÍTULO IV"), title="Ley de Renta")

    def titles(**more: Any) -> set[str]:
        return {law["title"] for law in search_passages(ana, "obligaciones", **more)}

    assert titles() == {"Ley de Ejemplo", "Ley de Renta"}
    assert titles(law_ids=["LISR", "NONE"]) == {"Ley de Renta"}
    assert titles(law_ids=["NONE"]) == titles(law_ids=[]) == set()
    assert titles(filters={"heading": "capítulo iv"}) == {"Ley de Renta"}
    assert titles(filters={"filename": "ley de ejemplo"}) == {"Ley de Ejemplo"}
    assert titles(filters={"pages": [3, 3]}) == set()


# Who pays


def test_the_searching_tenant_pays_and_has_its_own_rate_limit(
    ana: Person,
    ben: Person,
    vendor: RecordingOpenAIServer,  # noqa: F811
    settings: Any,
) -> None:
    create_searchable_statute("LIVA", LAW)
    Purchase.objects.all().delete()
    settings.SEARCHES_PER_MINUTE = 1

    assert search_passages(ana, "facturas")
    again = ana.post("/search", {"query": "tasa", "sources": ["statutes"]})

    assert set(Purchase.objects.values_list("user_id", "stage")) == {(ana.id, "search")}
    assert (again.status_code, again.json()["code"]) == (429, "SEARCH_LIMIT_REACHED")
    assert search_passages(ben, "facturas")


class Noted(InstantEmbedder):
    """Remembers the texts it was given."""

    model = "noted"
    texts: ClassVar[list[str]] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.texts.extend(texts)
        return super().embed(texts)


def test_a_query_is_embedded_once_per_model_and_not_without_statutes(
    ana: Person, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.EMBEDDER = f"{__name__}.Noted"
    monkeypatch.setattr(query_parser, "HttpEmbedder", Noted)  # as by a vendor

    Noted.texts.clear()
    search_api(ana, "visitas", ["statutes"])
    nothing = list(Noted.texts)
    create_searchable_statute("LIVA", LAW)
    create_searchable_document(ana.id, ["visitas"])
    Noted.texts.clear()
    search_api(ana, "visitas", ["documents", "statutes"])

    assert (nothing, Noted.texts) == ([], ["visitas"])


# The other faces


def test_the_command_prints_citations_with_their_snippets(ana: Person) -> None:
    create_searchable_statute("LIVA", LAW.replace("a sus clientes", "a A & 3 < 4"))
    create_searchable_document(ana.id, [f"{'A word of it. ' * 60}Of facturas & 3 < 4."], filename="private.pdf")
    out = io.StringIO()

    call_command("search", "facturas", sources="documents,statutes", user=ana.user.email, k=1, stdout=out)

    own, own_words, law, words = out.getvalue().splitlines()
    assert own.startswith("1. private.pdf, page 1")
    assert "Of facturas & 3 < 4." in own_words
    assert law.startswith("1. Ley de Ejemplo (2024-01), Artículo 12 Bis, p. 2 (")
    assert "expedirán facturas a A & 3 < 4." in words
    assert not any(mark in own_words + words for mark in ("<mark>", "&amp;", "##"))


@pytest.mark.parametrize(("source", "code"), [("laws", "UNKNOWN_SOURCE"), ("corpus", "UNKNOWN_SOURCE")])
def test_an_unknown_source_is_rejected_with_the_known_ones(source: str, code: str, ana: Person) -> None:
    response = ana.post("/search", {"query": "tasa", "sources": ["statutes", source]})

    assert (response.status_code, response.json()["code"], response.json()["field"]) == (400, code, "sources")
    assert "statutes" in response.json()["detail"]
