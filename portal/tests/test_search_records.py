"""Search page: records and statutes beside passages, and links of records."""

import re
from uuid import uuid4

import pytest

from embeddings.models import DocumentChunk
from portal.tests.conftest import signed_in
from statutes.models import Law
from testing.factories.records import create_client, create_record, create_source
from testing.factories.searchable_documents import create_searchable_document
from testing.factories.searchable_statutes import create_searchable_statute
from testing.personas import Person

pytestmark = pytest.mark.django_db


def shown(person: Person, query: str, **more: str) -> str:
    answer = signed_in(person).post("/find", {"query": query, "mode": "text", **more})
    assert answer.status_code == 200
    return str(answer.content.decode())


def test_records_stand_below_the_passages_with_system_title_words_and_link(ana: Person) -> None:
    create_searchable_document(ana.id, ["apples in the plan"])
    create_record(
        create_source(ana.id), "company:1", "Northwind grows apples", title="North & wind", url="https://a.example/1"
    )
    create_client(ana.id, "Tailspin", "buys apples")

    page = shown(ana, "apples")

    assert "1 passage found" in page
    assert "2 records of connected systems" in page
    assert '<a href="https://a.example/1" target="_blank" rel="noopener noreferrer">' in page
    assert "North &amp; wind" in page
    assert "HubSpot" in page
    assert "Northwind grows <mark>apples</mark>" in page
    assert "Tailspin" in page
    assert "Client" in page


def test_a_link_that_is_no_web_page_is_not_made_one(ana: Person) -> None:
    source = create_source(ana.id)
    for number, url in enumerate(("javascript:alert(1)", "http://a.example", "//a.example", "HTTPS", None)):
        create_record(source, f"company:{number}", "apples", title="North", url=url)

    page = shown(ana, "apples")

    assert "5 records found" in page
    assert "noopener" not in page


def test_a_search_in_one_document_excludes_systems_and_other_tenants(ana: Person, ben: Person) -> None:
    document = create_searchable_document(ana.id, ["pears in the plan"])
    create_record(create_source(ana.id), "company:1", "apples", title="North")

    assert "Nothing was found" in shown(ana, "apples", document=str(document))
    assert "Nothing was found" in shown(ben, "apples")


def test_statutes_are_listed_last_with_citation_and_language(ana: Person) -> None:
    create_searchable_document(ana.id, ["apples in the plan"])
    create_searchable_statute(
        "LFM", "Artículo 7. Los productores de apples & pears.", title="Ley <b>", status="partial_failed"
    )

    page, alone = shown(ana, "apples"), shown(ana, "productores")

    assert page.index("1 passage found") < page.index("1 passage of statutes")
    assert '<li lang="es">' in page
    assert '#cited"><bdi class="name">Ley &lt;b&gt; (2024-01), Artículo 7, p. 1</bdi>' in page
    assert "productores de apples &amp; pears" in page
    assert "Parts of this statute are missing here." in page
    assert "1 passage of statutes found" in alone


LAW = (
    "Artículo 1. Las personas pagan <b>apples</b> & más." + " El párrafo sigue." * 60 + "\n"
    "Artículo 2. La tasa del impuesto será del dieciséis por ciento." + " El artículo sigue." * 60 + "\f"
    "Artículo 3. Las peras no pagan."
)


def test_a_statute_answers_what_no_document_answers_and_opens_at_its_article(ana: Person) -> None:
    create_searchable_document(ana.id, ["apples in the plan"])
    create_searchable_statute("LFM", LAW)

    page = shown(ana, "¿Cuál es la tasa del impuesto?")

    answer = page.partition('<h3 id="answer-title">Answer from statutes')[2].partition("</section>")[0]
    assert "dieciséis por ciento" in answer
    assert "Ley de Ejemplo (2024-01), Artículo 2, p. 1<" in answer
    assert "Was this right?" not in answer
    opened = signed_in(ana).get(link := re.findall(r'href="(/statutes/[^"]+)"', answer)[0].replace("&amp;", "&"))
    assert link.endswith("#cited")
    assert "<h1" in (text := opened.content.decode())
    assert "Ley de Ejemplo (2024-01), Artículo 2, p. 1</bdi></h1>" in text
    assert '<mark id="cited">La tasa del impuesto será del dieciséis por ciento.' in text
    assert "{#" not in text


def test_a_statutes_page_shows_its_text_without_markup_and_its_neighbours(ana: Person) -> None:
    create_searchable_statute("LFM", LAW)
    link = re.findall(r'<p class="cite"><a href="(/statutes/[0-9a-f-]+)', shown(ana, "personas apples"))[0]

    first = signed_in(ana).get(link).content.decode()
    after = re.findall(r'rel="next" href="([^"]+)"', first)[0]

    assert "&lt;b&gt;apples&lt;/b&gt; &amp; más." in first
    assert 'rel="prev"' not in first
    assert f'rel="prev" href="{link}"' in signed_in(ana).get(after).content.decode()


def test_only_passages_of_live_statutes_have_a_page(ana: Person) -> None:
    document = create_searchable_document(ana.id, ["apples in the plan"])
    withdrawn = create_searchable_statute("LFM", LAW)
    Law.objects.update(document_id=None)

    for owner in (document, withdrawn, uuid4()):
        chunk = DocumentChunk.objects.filter(document=owner).values_list("pk", flat=True).first() or owner
        assert signed_in(ana).get(f"/statutes/{chunk}").status_code == 404


def test_a_search_can_be_restricted_to_statutes(ana: Person) -> None:
    create_searchable_document(ana.id, ["apples in the plan"])
    create_searchable_statute("LFM", "Artículo 7. Los productores de apples.")

    page = shown(ana, "apples", document="laws")

    assert "1 passage of statutes found" in page
    assert "in the plan" not in page
    assert 'name="document" value="laws" checked>' in page


def test_a_search_in_one_document_excludes_statutes(ana: Person) -> None:
    document = create_searchable_document(ana.id, ["pears in the plan"])
    create_searchable_statute("LFM", "Artículo 7. Los productores de apples.")

    assert "Nothing was found" in shown(ana, "apples", document=str(document))
