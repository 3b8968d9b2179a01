"""Tests of the sample statutes: reproducible bytes, complete articles."""

import json
from pathlib import Path

import pytest

from samples.make_statutes import HERE, blocks, make
from statutes.readers.file_type import sniff_format
from statutes.structure import schema_validation
from statutes.structure.model import CanonicalLaw
from statutes.tests.law_texts import encode_law, law_json, read_law

LAWS = HERE / "statutes"
#  the file                       its text      language  articles
FILES = {
    "ley-de-ejemplo.docx": ("ley", "es", 25),
    "sample-benefits-act.xml": ("benefits", "en", 26),
    "sample-disclosure-act.pdf": ("disclosure", "en", 25),
}


def read(name: str) -> CanonicalLaw:
    return read_law(LAWS / name, format=sniff_format(LAWS / name, most=1_000_000))


def test_making_them_again_gives_the_same_bytes(tmp_path: Path) -> None:
    make(tmp_path)

    for name in FILES:
        assert (tmp_path / name).read_bytes() == (LAWS / name).read_bytes(), "run python -m samples.make_statutes"


@pytest.mark.parametrize("name", FILES)
def test_each_law_has_the_articles_of_its_text(name: str) -> None:
    text, language, count = FILES[name]

    law = read(name)

    articles = [article for _, article in law.articles()]
    assert (law.language, len(articles)) == (language, count)
    assert law.title == blocks(text)[0].lines[0]
    words = "".join(line for block in blocks(text) for line in block.lines)
    assert all(squeezed(paragraph.text) in squeezed(words) for article in articles for paragraph in article.paragraphs)
    assert all(article.paragraphs for article in articles)


@pytest.mark.parametrize("name", FILES)
def test_each_law_fits_the_published_schema_with_the_same_bytes_each_time(name: str) -> None:
    laws = [read(name) for _ in range(2)]

    schema_validation.check_schema(law_json(laws[0]))
    assert encode_law(laws[0]) == encode_law(laws[1])
    assert json.loads(encode_law(laws[0])) == law_json(laws[0])


def test_the_printed_acts_contents_and_heads_are_in_no_article() -> None:
    law = read("sample-disclosure-act.pdf")

    assert len(law.contents) == 31
    text = "".join(article.text for _, article in law.articles())
    assert "Acts of 2027" not in text
    assert ". . ." not in text


def test_articles_are_cited_by_their_divisions() -> None:
    law = read("ley-de-ejemplo.docx")

    path, article = next((path, article) for path, article in law.articles() if article.id == "12-bis")
    assert [division.title for division in path] == [
        "TÍTULO SEGUNDO DE LAS PERSONAS USUARIAS",
        "CAPÍTULO I De los derechos",
    ]
    assert article.label == "Artículo 12 Bis"


def squeezed(text: str) -> str:
    return "".join(text.split())
