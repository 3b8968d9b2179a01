"""Amending laws: quoted articles are not their own; end matter after the last article."""

import pytest

from statutes.article_chunker import CHUNKER, ArticleChunk
from statutes.structure.markdown import render_markdown
from statutes.structure.model import CanonicalLaw, Division
from statutes.tests.law_texts import article_texts, build_from_text

ENDED = "Artículo 3. La ley rige desde mañana."
QUOTED = {
    "marks around each": "«Artículo 7. Los del agua.»\n«Artículo 8. Los de la luz.»",
    "marks around all": "«Artículo 7. Los del agua.\nArtículo 8. Los de la luz.»",
    "marks around a chapter": "“CAPÍTULO II\nArtículo 7. Los del agua.\nArtículo 8. Los de la luz.”.",
    "straight marks": '"Artículo 7. Los del agua.\nArtículo 8. Los de la luz.".',
    "no marks": "Artículo 7. Los del agua.\nCAPÍTULO II\nArtículo 8. Los de la luz.",
    "the number that follows": "Artículo 3. Los del agua.\nArtículo 8. Los de la luz.",
    "a mark that is never closed": "«Artículo 7. Los del agua.",
}
AMENDED = "Artículo 2. Se reforma el artículo 3 de la Ley 5 y se añaden los artículos 7 y 8, para quedar como sigue:"


@pytest.mark.parametrize("kind", QUOTED)
def test_quoted_articles_are_text_of_the_article_that_quotes_them(kind: str) -> None:
    law = build_from_text(f"Artículo 1. La ley es ley.\n{AMENDED}\n{QUOTED[kind]}\n{ENDED}")

    assert list(article_texts(law)) == ["1", "2", "3"]
    assert not any(isinstance(child, Division) for child in law.children)
    assert "Los del agua." in article_texts(law)["2"]
    assert article_texts(law)["3"] == "La ley rige desde mañana."


@pytest.mark.parametrize(
    "text",
    [
        "Artículo 2. La autoridad podrá modificar las reglas siguientes:\nI. Unas.\nArtículo 2 Bis. Otras.",
        "Artículo 2. Se entiende por «Artículo 2» lo que sigue.\nArtículo 2 Bis. Otras.",
        "Artículo 2. Las reglas son:\n«Artículo 7. Unas» se llama.\nArtículo 2 Bis. Otras y «las de la luz\ny el gas».",
    ],
)
def test_text_similar_to_an_amendment_quotes_nothing(text: str) -> None:
    law = build_from_text(f"Artículo 1. La ley es ley.\n{text}\n{ENDED}")

    assert list(article_texts(law)) == ["1", "2", "2-bis", "3"]


OWN = {
    "clauses, and the Bis that the article names": (
        "Artículo 17-G. Los certificados serán válidos.\nArtículo 17-H. Los certificados quedarán sin efectos cuando:\n"
        "I. Lo solicite el firmante.\nX. Se actualicen los supuestos del artículo 17-H Bis de este Código.\n"
        "Artículo 17-H Bis. Podrán restringirse.\nArtículo 17-I. La autoría será verificable.",
        ["17-g", "17-h", "17-h-bis", "17-i"],
    ),
    "clauses, and the article that it names, after repealed ones": (
        "Artículo 5. Quedan exceptuados, en los términos del artículo 8, los usos siguientes:\nI. Los domésticos.\n"
        "Artículo 8. Los usos exceptuados no requieren título.\nArtículo 9. La autoridad vigila.",
        ["5", "8", "9"],
    ),
    "clauses, and the section that it names, after repealed ones": (
        "Sec. 5.002. DEEDS. Except under Section 5.006, a person may amend a deed if:\n(1) it fails.\n"
        "Sec. 5.006. FEES. The court shall allow fees.\nCHAPTER 6. OTHER\nSec. 6.001. SCOPE. It is land.",
        ["5.002", "5.006", "6.001"],
    ),
    "clauses of an article after one that amends": (
        "Artículo 1. Se reforma el artículo 7 de la Ley 5, para quedar como sigue:\nArtículo 7. Los del agua.\n"
        "Artículo 2. Quedan exceptuados, según el artículo 4, los siguientes:\nI. Unos.\nArtículo 4. Otros.",
        ["1", "2", "4"],
    ),
    "a law that is issued": (
        "ARTÍCULO PRIMERO.- Se expide la Ley General de Aguas, para quedar como sigue:\nTÍTULO PRIMERO\n"
        "DE LA LEY\nArtículo 1. La ley es ley.\nArtículo 2. El agua es de todos.\n"
        "ARTÍCULO SEGUNDO.- Se reforma el artículo 9 de la Ley 5, para quedar como sigue:\nArtículo 9. Los del gas.",
        ["primero", "1", "2", "segundo"],
    ),
    "a code that is issued": (
        "ARTÍCULO ÚNICO.- Expídese el Código de Aguas, que queda redactado así:\nArtículo 1. El código es código.",
        ["unico", "1"],
    ),
    "a consolidated text": (
        "Artículo único. Se aprueba el texto refundido de la Ley de Aguas, que queda redactado y cuyo texto se inserta "
        "a continuación:\nTÍTULO I\nArtículo 1. Objeto. Es el agua.\nArtículo 2. Dominio. Es público.",
        ["unico", "1", "2"],
    ),
}


@pytest.mark.parametrize("kind", OWN)
def test_articles_without_an_amending_lead_are_own_articles(kind: str) -> None:
    text, own = OWN[kind]

    assert list(article_texts(build_from_text(text))) == own


@pytest.mark.parametrize(
    "lead",
    [
        "Se expide la Ley de Aguas y se reforma el artículo 7 de la Ley 5, para quedar como sigue:",
        "Se aprueba el Reglamento de Aguas.\nSustitúyese el artículo 7 de la Ley 5, por el siguiente:",
        "Se modifica el artículo 7 de la Ley 5:",
    ],
)
@pytest.mark.parametrize("between", ["", "TÍTULO I\nCAPÍTULO II\n"], ids=["right below", "below divisions"])
def test_text_below_an_amending_lead_is_quoted(lead: str, between: str) -> None:
    law = build_from_text(
        f"Artículo 2. {lead}\n{between}Artículo 7. Los del agua.\nI. Unos.\nArtículo 8. Otros.\n{ENDED}"
    )

    assert list(article_texts(law)) == ["2", "3"]
    assert not any(isinstance(child, Division) for child in law.children)


ES_FORGOTTEN = (
    "Artículo 1. Se modifica el artículo 7, que queda redactado así:\n{0}Artículo 7. Los del agua.\n"
    "Artículo 2. Las autoridades velan.\nArtículo 3. Se modifica el artículo 9, que queda redactado así:\n"
    "{0}Artículo 9. Los del gas.{1}\nArtículo 4. La ley rige."
)
EN_FORGOTTEN = (
    "Section 1. Section 10 of the Code is amended to read as follows:\n{0}Sec. 10. Meters are read.\n"
    "Sec. 2. The Secretary shall report.\nSec. 3. Section 12 of the Code is amended to read as follows:\n"
    "{0}Sec. 12. Wells are dug.{1}.\nSec. 4. This Act takes effect today."
)


@pytest.mark.parametrize("text", [ES_FORGOTTEN, EN_FORGOTTEN], ids=["es", "en"])
@pytest.mark.parametrize("pair", ["«»", '""', "“”"])
def test_an_unclosed_quotation_ends_at_the_next_one(text: str, pair: str) -> None:
    texts_by_id = article_texts(build_from_text(text.format(*pair)))

    assert list(texts_by_id) == ["1", "2", "3", "4"]
    assert len(texts_by_id["1"].split("\n")) == len(texts_by_id["3"].split("\n")) == 2


def test_a_quotation_may_open_again_at_each_section() -> None:
    law = build_from_text(
        EN_FORGOTTEN.format("“", "”").replace("are read.\n", "are read.\nCHAPTER 5. WELLS\n“Sec. 11. Wells are dry.”\n")
    )

    assert list(article_texts(law)) == ["1", "2", "3", "4"]
    assert not any(isinstance(child, Division) for child in law.children)


@pytest.mark.parametrize(
    "lead",
    [
        "el siguiente proyecto de ley:",
        "ha dado su aprobación al siguiente proyecto de reforma constitucional:",
        "Téngase por ley de la República:",
        "Ha sancionado la siguiente\nLEY DE LA REPUBLICA:",
    ],
)
def test_articles_of_a_wholly_quoted_bill_are_own_articles(lead: str) -> None:
    law = build_from_text(f"EL CONGRESO\n{lead}\n“Artículo 1.- La ley es ley.\nArtículo 2.- La ley rige.”.")

    assert list(article_texts(law)) == ["1", "2"]


def test_sections_of_an_amended_code_are_text_of_the_act() -> None:
    law = build_from_text(
        "AN ACT\nSECTION 1.01. Section 171.001, Tax Code, is amended to read as follows:\n"
        "Sec. 171.001. TAX IMPOSED. A tax is imposed.\nSec. 171.002. RATES. The rate is low.\n"
        "SECTION 1.02. This Act takes effect in the year."
    )

    assert list(article_texts(law)) == ["1.01", "1.02"]


def texts(law: CanonicalLaw) -> list[tuple[str, list[str]]]:
    """Return the texts that stand beside a law's divisions and articles."""
    children = (child for child in law.children if isinstance(child, Division) and child.kind == "text")
    return [(one.label, [paragraph.text for paragraph in one.paragraphs]) for one in children]


CLOSINGS = {
    "es": [
        "Ciudad de México, a 1 de marzo de 2027.- Dip. Ana Gil, Presidenta.- Rúbrica.",
        "Dado en Madrid, el 1 de marzo.",
        "Por tanto, mando a todos que guarden la ley.",
        "Publíquese y cúmplase.",
        "Comuníquese al señor Presidente de la República para su promulgación.",
        "Habiéndose cumplido con lo establecido en el artículo 93, promúlguese.",
        "El Presidente del Senado de la República,",
        "DADA EN LA SALA DE SESIONES DEL CONGRESO.",
    ],
    "en": [
        "Done at Brussels, 1 March 2027.",
        "This Regulation shall be binding in its entirety.",
        "Approved March 1, 2027.",
        "I certify that H.B. No. 1 was passed by the House.",
        "10th March 2027",
    ],
}
LAWS = {
    "es": "CAPÍTULO I\nDe la ley\nArtículo 1. La ley es de todos.\nCAPÍTULO II\nDe otros\nArtículo 2. La ley rige.",
    "en": "CHAPTER 1\nOf the act\nSection 1. The act is of the state.\nCHAPTER 2\nOf the rest\nSection 2. The end.",
}


@pytest.mark.parametrize(("language", "line"), [(language, line) for language in LAWS for line in CLOSINGS[language]])
def test_end_matter_is_in_no_article(language: str, line: str) -> None:
    law = build_from_text(
        f"{LAWS[language]}\n{line}\nANEXO I" if language == "es" else f"{LAWS[language]}\n{line}\nSCHEDULE 1"
    )

    assert law.preamble == []
    assert texts(law) == [("", [line])]
    assert [child.kind for child in law.children if isinstance(child, Division)] == [
        "chapter", "chapter", "text", "annex"
    ]  # fmt: skip


FORMS = [
    "I certify that I own the land.",
    "______________ (signature)",
    "Given under my hand and seal of office this day.",
    "IN WITNESS WHEREOF, the parties sign.",
    "Approved March 3, 1999, the compact binds the State.",
    "Signed by authority of the owner.",
]


@pytest.mark.parametrize("line", FORMS)
def test_a_prescribed_form_does_not_end_its_section(line: str) -> None:
    first = "Section 1. The deed must be as follows:"
    within = f"{first}\n{line}\nThe clerk shall keep it."

    law = build_from_text(f"{within}\nSection 2. The act applies.\n{line}")

    assert list(article_texts(law)) == ["1", "2"]
    assert article_texts(law)["1"].replace("\n", " ").endswith(f"{line} The clerk shall keep it.")
    assert article_texts(law)["2"] == "The act applies."
    assert texts(law) == [("", [line])]


@pytest.mark.parametrize("language", LAWS)
def test_end_matter_is_a_passage_without_article_and_with_its_page(language: str) -> None:
    law = build_from_text(
        f"{LAWS[language]}\n{CLOSINGS[language][1]}\n{'ANEXO I' if language == 'es' else 'SCHEDULE 1'}\nThe rest."
    )

    chunks = CHUNKER.split(render_markdown(law).text)

    cited = [(chunk.articles, chunk.headings) for chunk in chunks if isinstance(chunk, ArticleChunk)]
    assert [articles for articles, _ in cited] == [("1", "2"), (), ()]
    assert cited[1][1] == ()
    assert [one.place.page for one in law.children if isinstance(one, Division) and one.kind == "text"] == [1]


def test_a_formula_between_articles_keeps_the_chapter() -> None:
    law = build_from_text(LAWS["es"].replace("CAPÍTULO II", "Dado en Lima.\nArtículo 1 Bis. La otra.\nCAPÍTULO II"))

    chapter = law.children[0]
    assert isinstance(chapter, Division)
    assert [one.kind if isinstance(one, Division) else one.id for one in chapter.children] == ["1", "text", "1-bis"]


def test_a_note_after_the_schedules_has_its_title() -> None:
    law = build_from_text(
        f"{LAWS['en']}\nSCHEDULE 1\nMeters\nThe meters.\nEXPLANATORY NOTE\nThis note is no part of the act."
    )

    assert texts(law) == [("EXPLANATORY NOTE", ["This note is no part of the act."])]
    assert CHUNKER.split(render_markdown(law).text)[-1].headings == ("EXPLANATORY NOTE",)


def test_signatures_are_with_the_date() -> None:
    law = build_from_text(
        f"{LAWS['en']}\nThe second words of it.\nAna Gil\nLuis Mora\n10th March 2027 Two of the Lords"
    )

    assert texts(law) == [("", ["Ana Gil Luis Mora", "10th March 2027 Two of the Lords"])]


ORDINALS = "PRIMERA. La ley es de todos.\nSEGUNDA.- La ley rige."
BELOW = {
    "DISPOSICIONES FINALES": ("disposicion-final-primera", "disposicion-final-segunda"),
    "DISPOSICIONES COMPLEMENTARIAS TRANSITORIAS": (
        "disposicion-complementaria-transitoria-primera", "disposicion-complementaria-transitoria-segunda",
    ),
    "DISPOSICIONES GENERALES": ("disposicion-general-primera", "disposicion-general-segunda"),
    "DISPOSICIONES TRANSITORIAS Y FINALES": ("transitorio-primera", "transitorio-segunda"),
    "TÍTULO VI\nDISPOSICIONES FINALES": ("disposicion-final-primera", "disposicion-final-segunda"),
}  # fmt: skip


@pytest.mark.parametrize("title", BELOW)
def test_ordinals_below_final_provisions_are_articles(title: str) -> None:
    law = build_from_text(f"Artículo 1. La ley es ley.\n{title}\n{ORDINALS}")

    assert list(article_texts(law)) == ["1", *BELOW[title]]
    rendered = CHUNKER.split(render_markdown(law).text)
    assert [one for chunk in rendered if isinstance(chunk, ArticleChunk) for one in chunk.articles] == list(
        article_texts(law)
    )


def test_a_chapter_of_general_provisions_is_an_ordinary_chapter() -> None:
    law = build_from_text(
        "TÍTULO I\nDISPOSICIONES GENERALES\nArtículo primero. La ley es de todos.\nPrimero.- Los otros."
    )

    assert article_texts(law) == {"primero": "La ley es de todos.\nPrimero.- Los otros."}


def test_numbering_continues_in_a_title_of_final_provisions() -> None:
    law = build_from_text(
        "TÍTULO I\nDe la ley\nArtículo 1. La ley.\nTÍTULO II\nDISPOSICIONES FINALES\nArtículo 2. La otra."
    )

    assert [child.title for child in law.children if isinstance(child, Division)] == [
        "TÍTULO I De la ley", "TÍTULO II DISPOSICIONES FINALES"
    ]  # fmt: skip
    assert list(article_texts(law)) == ["1", "2"]
