"""Headings are told from lines that only look like them."""

import pytest

from statutes.structure.headings import Outline, number_key
from statutes.structure.patterns import ENUMERATED

SPANISH = Outline(["Artículo 1. La ley de los que en el"])
ENGLISH = Outline(["Section 1. The act of the people"])
EUROPEAN = Outline(["Article 1. The regulation of the union"])
BRITISH = Outline(["1 The overview of the act", "2 The duty of the supplier", "2A The tariffs"])
HEADINGS = [
    #  the line                               kind       number            label                    rest
    (SPANISH, "Artículo 12 Bis. Los", "article", "12-bis", "Artículo 12 Bis", "Los"),
    (SPANISH, "Artículo 2o. Bis.- Los", "article", "2-bis", "Artículo 2o. Bis", "Los"),
    (SPANISH, "Artículo 5o. Ter. Los", "article", "5-ter", "Artículo 5o. Ter", "Los"),
    (SPANISH, "Artículo 2o. Biscayne paga", "article", "2", "Artículo 2o", "Biscayne paga"),
    (SPANISH, "Art. 3o.- Las", "article", "3", "Art. 3o", "Las"),
    (SPANISH, "ARTÍCULO 12.-A", "article", "12-a", "ARTÍCULO 12.-A", ""),
    (SPANISH, "ARTÍCULO 12.-A Los", "article", "12-a", "ARTÍCULO 12.-A", "Los"),
    (SPANISH, "ARTÍCULO 12.-A los trabajadores", "article", "12", "ARTÍCULO 12", "A los trabajadores"),
    (SPANISH, "Artículo 1o.-A.- Están", "article", "1-a", "Artículo 1o.-A", "Están"),
    (SPANISH, "Artículo 29-A Bis. Los", "article", "29-a-bis", "Artículo 29-A Bis", "Los"),
    (SPANISH, "Artículo 113 Bis 1. Uno", "article", "113-bis-1", "Artículo 113 Bis 1", "Uno"),
    (SPANISH, "ARTÍCULO 1º \u2013 El", "article", "1", "ARTÍCULO 1º", "El"),
    (SPANISH, "Artículo Décimo Segundo. Se", "article", "decimo-segundo", "Artículo Décimo Segundo", "Se"),
    (SPANISH, "Artículo único. Entra", "article", "unico", "Artículo único", "Entra"),
    (SPANISH, "Disposición final única. Uno", "article", "disposicion-final-unica", "Disposición final única", "Uno"),
    (SPANISH, "LIBRO PRIMERO", "book", "primero", "LIBRO PRIMERO", ""),
    (SPANISH, "TÍTULO PRELIMINAR", "title", "preliminar", "TÍTULO PRELIMINAR", ""),
    (SPANISH, "CAPÍTULO IV BIS De las cosas", "chapter", "iv-bis", "CAPÍTULO IV BIS", "De las cosas"),
    (SPANISH, "Capítulo Único", "chapter", "unico", "Capítulo Único", ""),
    (SPANISH, "Sección Primera. Del uso", "section", "primera", "Sección Primera", "Del uso"),
    (SPANISH, "T R A N S I T O R I O S", "title", "transitorios", "T R A N S I T O R I O S", ""),
    (SPANISH, "ANEXO 1", "annex", "1", "ANEXO 1", ""),
    (SPANISH, "ANEXO", "annex", "", "ANEXO", ""),
    (SPANISH, "Artículo 3.º Los", "article", "3", "Artículo 3.º", "Los"),
    (SPANISH, "Artículo segundo transitorio.- El", "article", "segundo-transitorio", "Artículo segundo transitorio",
     "El"),
    (SPANISH, "Artículo transitorio.- Esta", "article", "transitorio", "Artículo transitorio", "Esta"),
    (SPANISH, "Sección 1.ª Planes", "section", "1", "Sección 1.ª", "Planes"),
    (SPANISH, "Párrafo 2° De los planes", "section", "2", "Párrafo 2°", "De los planes"),
    (SPANISH, "DISPOSICIONES FINALES", "title", "disposiciones-finales", "DISPOSICIONES FINALES", ""),
    (SPANISH, "ARTÍCULOS TRANSITORIOS DE DECRETOS DE REFORMA", "title", "transitorios",
     "ARTÍCULOS TRANSITORIOS DE DECRETOS DE REFORMA", ""),
    (ENGLISH, "§§1403, 1404. Repealed", "article", "1403", "§§1403, 1404", "Repealed"),
    (ENGLISH, "[§1405. Omitted]", "article", "1405", "[§1405", "Omitted]"),
    (EUROPEAN, "Article 3a", "article", "3a", "Article 3a", ""),
    (EUROPEAN, "Section 2", "section", "2", "Section 2", ""),
    (BRITISH, "2 The duty of the supplier", "article", "2", "Section 2", "The duty of the supplier"),
    (BRITISH, "2A The tariffs", "article", "2a", "Section 2A", "The tariffs"),
    (ENGLISH, "Section 4(a) The board", "article", "4(a)", "Section 4(a)", "The board"),
    (ENGLISH, "Section 4(b)", "article", "4(b)", "Section 4(b)", ""),
    (ENGLISH, "Section 4 (b). Records", "article", "4(b)", "Section 4 (b)", "Records"),
    (ENGLISH, "Sec. 4(b)(2)(iv) Records", "article", "4(b)(2)(iv)", "Sec. 4(b)(2)(iv)", "Records"),
    (ENGLISH, "Section 4. (a) The board", "article", "4", "Section 4", "(a) The board"),
    (ENGLISH, "Section 4(a)\u2013(c). Repealed", "article", "4", "Section 4", "(a)\u2013(c). Repealed"),
    (ENGLISH, "§ 12-3-4. Definitions.", "article", "12-3-4", "§ 12-3-4", "Definitions."),
    (ENGLISH, "§ 12A-3.1(b) No person", "article", "12a-3.1(b)", "§ 12A-3.1(b)", "No person"),
    (ENGLISH, "SEC. 2. FINDINGS.", "article", "2", "SEC. 2", "FINDINGS."),
    (ENGLISH, "Section 5 Board", "article", "5", "Section 5", "Board"),
    (ENGLISH, "PART II\u2014GENERAL", "part", "ii", "PART II", "GENERAL"),
    (ENGLISH, "ARTICLE I", "chapter", "i", "ARTICLE I", ""),
    (ENGLISH, "Chapter 12A General", "chapter", "12a", "Chapter 12A", "General"),
    (ENGLISH, "Subchapter B", "subchapter", "b", "Subchapter B", ""),
    (ENGLISH, "Schedule 1", "annex", "1", "Schedule 1", ""),
]  # fmt: skip
REFERENCES = [
    (SPANISH, "Artículo 5 de esta Ley se aplica"),
    (SPANISH, "Artículo 27, fracción II"),
    (SPANISH, "artículo 5. Los demás"),
    (SPANISH, "Artículo 7 bis 3 de la Ley"),
    (SPANISH, "Título II de esta Ley"),
    (SPANISH, "Título civil"),
    (SPANISH, "Anexo de la Ley"),
    (SPANISH, "Primero.- El"),  # an ordinal is an article among the transitory ones only
    (ENGLISH, "Section 4(a) of this Act"),
    (ENGLISH, "Section 4(a)(1), the board"),
    (ENGLISH, "Section 4 applies"),
    (ENGLISH, "§ 12-3-4 of the code"),
    (ENGLISH, "Part II of the Act"),
    (ENGLISH, "Part-time work"),
    (SPANISH, "Párrafo 2 del artículo"),
    (SPANISH, "Párrafo reformado DOF 01-01-2024"),
    (EUROPEAN, "Section 2 of this Regulation"),
    (BRITISH, "12 Of another count"),
]


@pytest.mark.parametrize(("outline", "line", "kind", "number", "label", "rest"), HEADINGS)
def test_a_heading_is_split_into_label_and_rest(
    outline: Outline, line: str, kind: str, number: str, label: str, rest: str
) -> None:
    heading = outline.heading(line)

    assert heading is not None
    assert (heading.kind, heading.number, heading.label, heading.rest) == (kind, number, label, rest)


@pytest.mark.parametrize(
    ("more", "number"),
    [
        (["(b) The clerk shall keep them."], "4"),
        (["(1) the first; and", "(2) the second.", "(b) The clerk."], "4"),
        (["The clerk shall; (b) the act too."], "4"),
        (["Section 5. The act.", "(b) The clerk."], "4(a)"),
        (["(a) the records; and", "(b) the act."], "4(a)"),
        (["(b) The clerk.", "Section 4(b) The act."], "4(a)"),
    ],
)
def test_a_label_with_its_first_subsection_is_one_section(more: list[str], number: str) -> None:
    line = "Section 4(a) The board shall keep the records:"

    heading = Outline([line, *more]).heading(line)

    assert heading is not None
    assert (heading.number, heading.rest) == (
        number,
        f"{'(a) ' if number == '4' else ''}The board shall keep the records:",
    )


@pytest.mark.parametrize(("outline", "line"), REFERENCES)
def test_references_are_no_headings(outline: Outline, line: str) -> None:
    assert outline.heading(line) is None


@pytest.mark.parametrize("before", ["conforme al", "lo dispuesto en los artículos 3,", "a que se refiere la"])
def test_a_reference_wrapped_to_a_line_start_is_no_heading(before: str) -> None:
    assert SPANISH.heading("Artículo 5. Los demás", before) is None


def test_a_line_in_capitals_is_no_wrapped_reference() -> None:
    assert ENGLISH.heading("SECTION 1. SHORT TITLE.", "of America in Congress assembled,") is not None
    assert ENGLISH.heading("Section 1. Short title.", "of America in Congress assembled,") is None


def test_the_first_label_of_a_bill_loses_its_quotation_mark() -> None:
    heading = SPANISH.heading("“Artículo 1°.- Esta", "al siguiente Proyecto de ley:")

    assert heading is not None
    assert (heading.number, heading.label, heading.rest) == ("1", "Artículo 1°", "Esta")
    assert SPANISH.heading("“Artículo 1°.- Esta", "el artículo 1° por el siguiente:") is None


def test_an_ordinal_is_an_article_among_transitory_ones() -> None:
    heading = SPANISH.heading("Décimo Primero.- Se abroga", in_transitory=True)

    assert heading is not None
    assert (heading.number, heading.rest) == ("decimo-primero", "Se abroga")


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("12 Bis", "12-bis"),
        ("3o", "3"),
        ("1º", "1"),
        ("VII", "vii"),
        ("Único", "unico"),
        ("4 (A) (1)", "4(a)(1)"),
        ("12 (bis)", "12-bis"),
        ("(4)", "4"),
    ],
)
def test_numbers_are_compared_without_case_accents_and_signs(number: str, expected: str) -> None:
    assert number_key(number) == expected


@pytest.mark.parametrize(
    "line", ["I. Las", "II.- Los", "IV) Los", "a) la", "(a) the", "(a)(1) The", "(iv) the", "1. Uno", "- uno"]
)
def test_clauses_begin_paragraphs(line: str) -> None:
    assert ENUMERATED.match(line)


@pytest.mark.parametrize("line", ["(as amended) the", "Ley de", "12 Bis", "mil. Los", "IVA. Los"])
def test_words_begin_no_paragraph(line: str) -> None:
    assert not ENUMERATED.match(line)
