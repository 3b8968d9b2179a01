"""Akoma Ntoso and plain legal XML, in English and in Spanish."""

import pytest

from statutes.article_chunker import iter_units
from statutes.readers import xml
from statutes.readers.xml_tree import Unreadable
from statutes.structure.markdown import render_markdown
from statutes.structure.model import Article, Division
from statutes.tests.law_texts import all_texts, article_paths, article_texts

AKN = """<?xml version="1.0" encoding="UTF-8"?>
<akomaNtoso xmlns="http://docs.oasis-open.org/legaldocml/ns/akn/3.0"><act>
<meta><identification><FRBRalias value="hidden"/>secret</identification></meta>
<preface><longTitle><p>An <docTitle>Act of the board</docTitle> of 2027</p></longTitle></preface>
<preamble><p>Whereas the people of the land;</p></preamble>
<body><part eId="part_1"><num>Part 1</num><heading>General</heading>
<section eId="sec_1"><num>1.</num><heading>Definitions</heading>
  <content><p>In this Act <term>water</term>s means H<sub>2</sub>O.<authorialNote><p>An editor's.</p></authorialNote></p></content>
</section>
<section eId="sec_2"><num>2.</num>
  <subsection><num>(1)</num><intro><p>The board shall:</p></intro>
    <paragraph><num>(a)</num><content><p>meet;</p></content></paragraph>
    <paragraph><num>(b)</num><content><list><point><num>(i)</num><content><p>vote.</p></content></point></list></content></paragraph>
    <wrapUp><p>and keep minutes.</p></wrapUp>
  </subsection>
</section></part></body>
<attachments><attachment><heading>Schedule 1</heading><doc><mainBody><p>Fees</p></mainBody></doc></attachment></attachments>
</act></akomaNtoso>"""  # noqa: E501
LEY = """<ley><titulo>Ley de aguas</titulo><fecha>2027</fecha>
<capitulo><numero>I</numero><nombre>De las aguas</nombre>
  <seccion><numero>Primera</numero>
    <articulo><numero>12 Bis</numero><parrafo>Los que en la ley <b>deben</b>.</parrafo>
    <fraccion>I. Uno</fraccion></articulo>
  </seccion>
  <articulo>Artículo 13.- El agua.</articulo>
</capitulo>
<transitorios><articulo num="Primero"><p>Entra en vigor.</p></articulo></transitorios></ley>"""


def test_akoma_ntoso_gives_sections_with_their_clauses() -> None:
    law = xml.read_xml(AKN.encode())

    assert article_texts(law) == {
        "1": "In this Act waters means H2O.",
        "2": "(1) The board shall:\n(a) meet;\n(b) (i) vote.\nand keep minutes.",
    }
    assert article_paths(law) == {"1": "part 1", "2": "part 1"}
    first = next(article for _, article in law.articles())
    assert (first.label, first.heading) == ("Section 1", "Definitions")
    assert law.title == "Act of the board"
    assert [p.text for p in law.preamble] == ["An Act of the board of 2027", "Whereas the people of the land;"]


def test_an_attachment_is_an_annex() -> None:
    annex = xml.read_xml(AKN.encode()).children[-1]

    assert isinstance(annex, Division)
    assert (annex.kind, annex.number, annex.label) == ("annex", "1", "Schedule 1")
    assert [paragraph.text for paragraph in annex.paragraphs] == ["Fees"]


@pytest.mark.parametrize(
    ("section", "number", "text"),
    [
        ("<num>Section 4(a)</num><p>The board.</p>", "4(a)", "The board."),
        ("<num>4 (b)</num><p>The clerk.</p>", "4(b)", "The clerk."),
        ("<p>Section 4(a) The board.</p>", "4(a)", "The board."),
        ("<p>Section 4(a) The board.</p><p>(b) The clerk.</p>", "4", "(a) The board.\n(b) The clerk."),
    ],
)
def test_a_subsection_in_a_label_is_part_of_the_number(section: str, number: str, text: str) -> None:
    law = xml.read_xml(f"<act><title>Act of the people</title><section>{section}</section></act>".encode())

    assert article_texts(law) == {number: text}
    assert [unit.article for unit in iter_units(render_markdown(law).text) if unit.article] == [number]


def test_metadata_and_editorial_notes_are_ignored() -> None:
    text = " ".join(all_texts(xml.read_xml(AKN.encode())))

    assert "secret" not in text
    assert "editor" not in text


def test_plain_spanish_xml_is_read_by_element_names() -> None:
    law = xml.read_xml(LEY.encode())

    assert article_texts(law) == {
        "12-bis": "Los que en la ley deben.\nI. Uno",
        "13": "El agua.",
        "transitorio-primero": "Entra en vigor.",
    }
    assert article_paths(law)["12-bis"] == "chapter i > section primera"
    assert [article.label for _, article in law.articles()] == ["Artículo 12 Bis", "Artículo 13", "Artículo Primero"]
    assert law.title == "Ley de aguas"


def test_articles_containing_sections_are_divisions() -> None:
    law = xml.read_xml(
        b"<act><article><num>I</num><section><num>1</num><p>The board of the act.</p></section></article></act>"
    )

    assert article_paths(law) == {"1": "chapter i"}
    assert article_texts(law) == {"1": "The board of the act."}


def test_xml_without_article_elements_is_read_as_lines() -> None:
    law = xml.read_xml(b"<act><p>THE ACT</p><p>Section 1. The board of the act.</p><p>Section 2. The rest.</p></act>")

    assert article_texts(law) == {"1": "The board of the act.", "2": "The rest."}


def test_places_are_bytes_of_the_source() -> None:
    content = LEY.encode()

    first = next(article for _, article in xml.read_xml(content).articles())

    assert content[first.place.start : first.place.end].startswith(b"<articulo><numero>12 Bis")
    paragraph = first.paragraphs[0].place
    assert content[paragraph.start : paragraph.end] == b"<parrafo>Los que en la ley <b>deben</b>."


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1", "windows-1252"])
def test_any_usual_encoding_is_read(encoding: str) -> None:
    declared = f'<?xml version="1.0" encoding="{encoding}"?>' + LEY

    assert "12-bis" in article_texts(xml.read_xml(declared.encode(encoding)))


@pytest.mark.parametrize("name", ["title", "titulo"])
def test_the_title_of_a_law_is_no_division(name: str) -> None:
    law = xml.read_xml(
        f"<law><{name}>Ley de la luz</{name}><articulo><num>1</num><p>La luz.</p></articulo></law>".encode()
    )

    assert [paragraph.text for paragraph in law.preamble] == ["Ley de la luz"]
    assert [article.id for article in law.children if isinstance(article, Article)] == ["1"]


def test_text_after_an_article_stays_after_it() -> None:
    law = xml.read_xml(
        b"<law><chapter><num>1</num><article><num>1</num><p>One.</p></article></chapter><p>Between.</p>"
        b"<chapter><num>2</num><article><num>2</num><p>Two.</p></article></chapter><p>Signed.</p></law>"
    )

    assert law.preamble == []
    assert [child.kind for child in law.children if isinstance(child, Division)] == ["chapter", "text"] * 2


def test_text_between_elements_is_kept() -> None:
    section = "<section><num>1</num>bare <i>text</i> of it</section>"

    law = xml.read_xml(f"<act>before<chapter><num>1</num>within{section}after</chapter></act>".encode())

    assert "".join(" ".join(all_texts(law)).split()) == "beforeChapter1withinSection1baretextofitafter"


BILLION = '<!DOCTYPE l [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {name} "{"&" + before + ";" * 1}">' for name, before in zip("bcdefgh", "abcdefg", strict=True)
)
REFUSED = {
    "billion laughs": (BILLION + "]><l>&h;</l>", "XML_ENTITY_REFUSED"),
    "an external entity": ('<!DOCTYPE l [<!ENTITY x SYSTEM "file:///etc/passwd">]><l>&x;</l>', "XML_ENTITY_REFUSED"),
    "a parameter entity": ('<!DOCTYPE l [<!ENTITY % x SYSTEM "http://127.0.0.1/x"> %x;]><l/>', "XML_ENTITY_REFUSED"),
    "an internal subset": ("<!DOCTYPE l [<!ELEMENT l ANY>]><l/>", "XML_ENTITY_REFUSED"),
    "an entity of a DTD elsewhere": ('<!DOCTYPE l SYSTEM "http://127.0.0.1/x"><l>&x;</l>', "XML_ENTITY_REFUSED"),
    "an entity that nobody declares": ("<l>&x;</l>", "NOT_XML"),
    "deep nesting": ("<a>" * 101 + "</a>" * 101, "XML_TOO_DEEP"),
    "a tag left open": ("<a><b></a>", "NOT_XML"),
    "two roots": ("<a/><b/>", "NOT_XML"),
    "nothing": ("", "NOT_XML"),
    "an encoding that nobody knows": ('<?xml version="1.0" encoding="klingon"?><a/>', "NOT_XML"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_invalid_xml_is_rejected(kind: str) -> None:
    content, code = REFUSED[kind]

    with pytest.raises(Unreadable) as refused:
        xml.read_xml(content.encode())

    assert refused.value.code == code


def test_an_empty_doctype_is_accepted_and_not_fetched() -> None:
    law = xml.read_xml(
        b'<!DOCTYPE act SYSTEM "http://127.0.0.1:1/act.dtd"><act><section><num>1</num>The act.</section></act>'
    )

    assert article_texts(law) == {"1": "The act."}


def test_a_number_that_is_too_long_for_one_is_no_id() -> None:
    """Each passage of an article has its id: a megabyte of one made gigabytes of 5,000 passages."""
    endless = "1" * 300
    by_attribute = f'<articulo num="{endless}"><p>Los que en la ley deben.</p></articulo>'
    by_element = f"<articulo><num>{endless}</num><p>El agua.</p></articulo>"

    law = xml.read_xml(f"<ley>{by_attribute}{by_element}</ley>".encode())

    articles = [child for child in law.children if isinstance(child, Article)]
    assert [article.id for article in articles] == ["unnumbered", "unnumbered~2"]
    assert [article.label for article in articles] == ["Artículo", "Artículo"]
    assert endless in articles[1].text, "it stays text"
