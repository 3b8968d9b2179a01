"""Rendered laws: normalized markdown from which articles and divisions are read back."""

from typing import Any

import pytest
from hypothesis import given, settings

from documents.markdown.code_fences import find_code_fences
from documents.markdown.normalization import normalize
from statutes.article_chunker import iter_units
from statutes.structure.article_ids import strip_anchor
from statutes.structure.builder import build_law
from statutes.structure.markdown import DEEPEST, render_markdown
from statutes.structure.model import Article, CanonicalLaw, Division, Line, Paragraph, Place
from statutes.tests.law_builders import article, chapter, law, law_from_plan, plans


def at(start: int, end: int, page: int | None = None) -> Place:
    return Place(start, end, page)


def depth(children: list[Division | Article]) -> int:
    return max((1 + depth(child.children) for child in children if isinstance(child, Division)), default=0)


def titles(path: tuple[Division, ...]) -> tuple[str, ...]:
    shown = ("\\#" if one.title == "#" else one.title.strip("\u200b") for one in path)
    return tuple(filter(None, shown))


def test_the_example_of_the_spec_is_rendered() -> None:
    first = Article(
        "12-bis", "12-bis", "Artículo 12 Bis", at(40, 90, 2), "Plazos", [Paragraph("Diez días.", at(60, 90, 2))]
    )
    title = Division(
        "title", "i", "TÍTULO I", at(11, 90, 1), "General", [Paragraph("Se aplica.", at(30, 39, 1))], [first]
    )
    rendered = render_markdown(
        CanonicalLaw("Ley", "es", "characters", [Paragraph("Ley  de prueba", at(0, 10, 1))], [], [title])
    )

    assert rendered.text == (
        "Ley de prueba\n\n# TÍTULO I General\n\nSe aplica.\n\n###### Artículo 12 Bis — Plazos\n\nDiez días.\n"
    )
    assert rendered.page_starts == (0, 47)


@pytest.mark.slow
@settings(max_examples=50)
@given(plans)
def test_any_rendered_law_is_normalized_and_gives_its_articles(plan: Any) -> None:
    given_law = law_from_plan(plan)

    rendered = render_markdown(given_law)

    assert normalize(rendered.text) == rendered.text
    assert not list(find_code_fences(rendered.text))
    assert rendered == render_markdown(given_law)
    read = [unit for unit in iter_units(rendered.text) if unit.article or unit.headings != unit.path]
    assert [unit.article for unit in read] == [one.id for _, one in given_law.articles()]
    if depth(given_law.children) <= DEEPEST:
        assert [unit.path for unit in read] == [titles(path) for path, _ in given_law.articles()]


def test_an_article_after_a_chapter_is_not_in_it() -> None:
    inner = chapter("II", article(2, "Dos."))
    rendered = list(
        iter_units(render_markdown(law(chapter("I", inner, article(3, "Tres.")), article(4, "Cuatro."))).text)
    )

    assert [(unit.article, unit.path) for unit in rendered] == [
        ("2", ("CAPÍTULO I", "CAPÍTULO II")), ("3", ("CAPÍTULO I",)), ("4", ())
    ]  # fmt: skip


def test_a_heading_has_an_id_only_where_its_label_differs() -> None:
    twice = Article("5~2", "5", "ARTÍCULO 5o.", at(0, 9))
    other = Article("art-9", "art-9", "Artículo", at(0, 9))

    text = render_markdown(law(article(5, "Uno."), twice, other)).text

    assert text == "###### Artículo 5\n\nUno.\n\n###### ARTÍCULO 5o.\n\n###### Artículo {#art-9}\n"
    assert [unit.headings for unit in iter_units(text)] == [("Artículo 5",), ("ARTÍCULO 5o.",), ("Artículo",)]
    assert strip_anchor("Artículo {#art-9}") == "Artículo"


FILES = {
    "es": [
        "TÍTULO I", "DE LAS COSAS", "Artículo 1o.- Uno.", "ARTÍCULO 2-A.- Dos.", "Artículo 12 Bis. Tres.",
        "Art. 13. Más.", "Disposición final segunda. Cuatro.", "Artículo 2-A.- Cinco.",
        "TRANSITORIOS", "Primero.- Seis.", "Segundo. Siete.",
    ],
    "en": ["CHAPTER 1", "Section 4(a) The first.", "SEC. 5. The second.", "§ 6-7 The third.", "Section 4. The fourth."],
}  # fmt: skip


@pytest.mark.parametrize("language", FILES)
def test_labels_of_specimens_give_their_ids(language: str) -> None:
    read = build_law([Line(text, at(10 * n, 10 * n + 9), is_whole=True) for n, text in enumerate(FILES[language])])

    text = render_markdown(read).text

    assert "{#" not in text
    assert [unit.article for unit in iter_units(text) if unit.article] == [one.id for _, one in read.articles()]
    assert len([True for _ in read.articles()]) == len([line for line in FILES[language] if line.endswith(".")])


def test_pages_without_text_begin_where_the_next_one_does() -> None:
    rendered = render_markdown(
        CanonicalLaw("", "es", "characters", [Paragraph("Tres.", at(0, 5, 3)), Paragraph("Cinco.", at(6, 9, 5))]),
        pages=7,
    )

    assert rendered.page_starts == (0, 0, 0, 7, 7, 14, 14)
    assert render_markdown(CanonicalLaw("", "es", "bytes", [Paragraph("Sin páginas.", at(0, 5))])).page_starts == ()


def test_an_empty_law_is_rendered_empty() -> None:
    assert render_markdown(law()).text == ""
    assert list(iter_units("")) == []
