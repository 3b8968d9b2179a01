"""Lines become divisions, articles and paragraphs, and no text is lost."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statutes.structure.model import Article, Division
from statutes.structure.patterns import DASHES
from statutes.tests.law_texts import (
    all_texts,
    article_paths,
    article_texts,
    build_from_text,
    encode_law,
    law_from_json,
    law_json,
)

SPANISH = """LEY DE PRUEBA
TÍTULO PRIMERO
DE LAS COSAS
CAPÍTULO I
De los bienes
Artículo 1.- Los bienes son de la nación, y los ingre-
sos que de ellos se obtengan se rigen por lo dispuesto en el
Artículo 5. Los demás casos se resuelven por la ley.
Artículo 2.- Se entiende por:
I. Bien: una cosa;
II.- Nación: todos.
CAPÍTULO II
Artículo 12 Bis. Las personas tienen derechos.
TRANSITORIOS
Primero.- Entra en vigor.
ARTÍCULO SEGUNDO. Se abroga la anterior."""


def test_divisions_are_nested_by_rank() -> None:
    law = build_from_text(SPANISH)

    assert article_paths(law) == {
        "1": "title primero > chapter i",
        "2": "title primero > chapter i",
        "12-bis": "title primero > chapter ii",
        "transitorio-primero": "title transitorios",
        "transitorio-segundo": "title transitorios",
    }
    assert law.title == "LEY DE PRUEBA"
    assert law.language == "es"


def test_lines_of_a_paragraph_are_joined_and_clauses_are_paragraphs() -> None:
    texts = article_texts(build_from_text(SPANISH))

    assert texts["1"].startswith("Los bienes son de la nación, y los ingresos que")
    assert texts["1"].endswith("lo dispuesto en el Artículo 5. Los demás casos se resuelven por la ley.")
    assert texts["2"] == "Se entiende por:\nI. Bien: una cosa;\nII.- Nación: todos."


def test_the_line_below_a_division_is_its_heading() -> None:
    title = build_from_text(SPANISH).children[0]

    assert isinstance(title, Division)
    assert title.title == "TÍTULO PRIMERO DE LAS COSAS"


def test_a_heading_in_capitals_may_take_two_lines() -> None:
    chapter = build_from_text("CAPÍTULO I\nDE LAS COSAS\nDE TODOS\nArtículo 1. La ley.").children[0]

    assert isinstance(chapter, Division)
    assert chapter.heading == "DE LAS COSAS DE TODOS"


def test_a_place_reaches_from_the_label_to_the_last_line() -> None:
    law = build_from_text(SPANISH)

    title = law.children[0]
    assert isinstance(title, Division)
    assert SPANISH[title.place.start : title.place.end].startswith("TÍTULO PRIMERO")
    assert SPANISH[title.place.start : title.place.end].endswith("tienen derechos.")
    first = next(article for _, article in law.articles())
    assert SPANISH[first.place.start : first.place.end].endswith("se resuelven por la ley.")


def test_a_repeated_number_gets_another_id() -> None:
    law = build_from_text("Artículo 1. Los unos.\nArtículo 1. Los otros.", is_whole=True)

    assert [(article.id, article.number) for _, article in law.articles()] == [("1", "1"), ("1~2", "1")]


def test_a_short_line_with_the_label_is_the_articles_heading_when_more_follows() -> None:
    law = build_from_text(
        "Section 1. Definitions.\nIn this act, the board is the board.\nSection 2. The board shall meet."
    )

    first, second = (article for _, article in law.articles())
    assert (first.heading, first.text) == ("Definitions.", "In this act, the board is the board.")
    assert (second.heading, second.text) == ("", "The board shall meet.")


@pytest.mark.parametrize("line", ["Comuníquese, publíquese y archívese.", "Publíquese y cúmplase."])
def test_a_formula_below_a_label_alone_in_its_line_is_the_articles_text(line: str) -> None:
    law = build_from_text(f"Artículo 1.\nLa ley es ley.\nArtículo 2.\n{line}\nDado en Lima.")

    assert article_texts(law) == {"1": "La ley es ley.", "2": line}
    assert [child.kind for child in law.children if isinstance(child, Division)] == ["text"]


NOT_HEADINGS = [
    "La presente ley es de orden público.",
    "Se crea el Instituto.",
    "El Estado garantizará el agua.",
    "Los gastos corren por cuenta del Estado.",
    "El Congreso de la Unión.",
]
HEADINGS = ["Objeto.", "Ámbito de aplicación.", "Derecho al agua.", "Entrada en vigor."]


@pytest.mark.parametrize(("first", "heading"), [(one, "") for one in NOT_HEADINGS] + [(one, one) for one in HEADINGS])
def test_a_short_first_sentence_is_no_heading(first: str, heading: str) -> None:
    law = build_from_text(f"Artículo 1. {first}\nDe ella se sigue lo demás.\nArtículo 2. La ley.\nArtículo 3. La otra.")

    article = next(article for _, article in law.articles())

    assert article.heading == heading
    assert f"{article.heading} {' '.join(article.text.split())}".strip() == f"{first} De ella se sigue lo demás."


def test_where_articles_have_headings_one_may_begin_with_the() -> None:
    law = build_from_text(
        "Artículo 1. Objeto.\nLa ley es de todos.\nArtículo 2. El Congreso de la Unión.\nLo forman dos."
    )

    assert [article.heading for _, article in law.articles()] == ["Objeto.", "El Congreso de la Unión."]


@pytest.mark.parametrize(
    ("line", "heading"),
    [
        ("ARTÍCULO 1o. OBJETO. La ley regula el agua.", "OBJETO."),
        ("Artículo 1. Vigencia. La ley rige desde hoy.", "Vigencia."),
        ("Art. 1.- Naturaleza jurídica.- Los recursos son de todos.", "Naturaleza jurídica."),
        ("Artículo 1. La ley es de todos. Los otros la guardan.", ""),
        ("Artículo 1. Conforme al art. Los demás casos.", ""),
    ],
)
def test_a_heading_may_share_the_line_of_its_text(line: str, heading: str) -> None:
    law = build_from_text(line)

    assert [article.heading for _, article in law.articles()] == [heading]


def test_chapters_of_american_codes_contain_parts() -> None:
    law = build_from_text(
        "Title I The state\nChapter 1 The board\nPart A Of the board\nSection 1. The board.\n"
        "Part B Of others\nSection 2. The others.\nChapter 2 Of the rest\nSection 3. The rest."
    )

    assert article_paths(law) == {
        "1": "title i > chapter 1 > part a",
        "2": "title i > chapter 1 > part b",
        "3": "title i > chapter 2",
    }


def test_an_annex_is_no_part_of_the_last_article() -> None:
    law = build_from_text(
        "Artículo 1. La ley es ley.\nANEXO 1\nTarifas de la ley\nTres cuotas por la toma.", is_whole=True
    )

    assert article_texts(law) == {"1": "La ley es ley."}
    annex = law.children[1]
    assert isinstance(annex, Division)
    assert (annex.kind, annex.heading) == ("annex", "Tarifas de la ley")


CONTENTS = {
    "leaders": "ÍNDICE\nCapítulo I De la ley .... 2\nArtículo 1. Objeto ...... 2\nArtículo 2. De otros .... 3\n",
    "spaced leaders": "Capítulo I De la ley . . . . 2\nArtículo 1. Objeto . . . . 2\nArtículo 2. De otros . . . 3\n",
    "tabs": "Contenido\nCapítulo I De la ley\t2\nArtículo 1. Objeto\t2\nArtículo 2. De otros\t3\n",
    "bare numbers": "CONTENIDO\nCapítulo I De la ley 2\nArtículo 1. Objeto 2\nArtículo 2. De otros 3\n",
    "no numbers": "Índice general\nCapítulo I De la ley\nArtículo 1. Objeto\nArtículo 2. De otros\n",
}  # fmt: skip
BODY = "Capítulo I De la ley\nArtículo 1. La ley es de los que la hacen.\nArtículo 2. Los otros también."


@pytest.mark.parametrize("kind", CONTENTS)
def test_a_table_of_contents_makes_no_articles(kind: str) -> None:
    law = build_from_text(f"LEY DE PRUEBA\n{CONTENTS[kind]}{BODY}")

    assert article_texts(law) == {"1": "La ley es de los que la hacen.", "2": "Los otros también."}
    assert len(law.children) == 1
    assert [paragraph.text for paragraph in law.preamble] == ["LEY DE PRUEBA"]
    assert [" ".join(line.split()) for line in CONTENTS[kind].strip().split("\n")] == [p.text for p in law.contents]


def test_a_tariff_with_leaders_in_an_article_stays_there() -> None:
    law = build_from_text(
        "Artículo 1. Las cuotas de la ley son:\nToma de vivienda ........ 25\nToma de taller ........ 50"
    )

    assert "Toma de taller ........ 50" in article_texts(law)["1"]
    assert not law.contents


@pytest.mark.parametrize("piece", [".", ". ", "…", "Artículo 1", "I", "(a)", "§", "\t1"])
def test_repetitive_long_lines_are_parsed_in_linear_time(piece: str) -> None:
    text = "Artículo 1. La ley.\n" + piece * (100_000 // len(piece))

    law = build_from_text(text)

    assert visible_text("".join(all_texts(law))) == visible_text(text)


def test_a_law_survives_a_json_round_trip() -> None:
    law = build_from_text(SPANISH)

    assert law_from_json(law_json(law)) == law
    assert encode_law(law_from_json(law_json(law))) == encode_law(law)


WORDS = st.sampled_from([
    "Artículo 1.", "Artículo 2 Bis.-", "ARTÍCULO 12.-A", "Art. 3o.-", "Section 4(a)", "SECTION 1.", "§ 12-3-4.",
    "CAPÍTULO I", "TÍTULO II", "Title I", "PART II", "TRANSITORIOS", "Primero.-", "ÍNDICE", "CONTENTS", "ANEXO 1",
    "ARTICLE I", "de la ley", "the act of", "I.", "a)", "....... 12", "\t7", "con-", "sumo", "Ley",
    "1", "(b)", "€", "¿?", "\u2013",
])  # fmt: skip
LINES = st.lists(st.lists(WORDS | st.text(max_size=6), max_size=5).map(" ".join), max_size=25)
JOINTS = {*DASHES, *".:;"}  # what parts a label from its text, and the hyphen of a cut word


@given(LINES, st.booleans())
@settings(max_examples=150, derandomize=True)
def test_no_visible_character_is_lost(texts: list[str], is_whole: bool) -> None:
    text = "\n".join(" ".join(line.split("\n")) for line in texts)

    law = build_from_text(text, is_whole=is_whole)

    assert visible_text("".join(all_texts(law))) == visible_text(text)


def visible_text(text: str) -> Counter[str]:
    return Counter(sign for sign in text if not sign.isspace() and sign not in JOINTS)


def test_articles_are_yielded_in_reading_order_with_their_divisions() -> None:
    law = build_from_text(SPANISH)

    assert [article.id for _, article in law.articles()][:3] == ["1", "2", "12-bis"]
    assert all(isinstance(article, Article) for _, article in law.articles())
