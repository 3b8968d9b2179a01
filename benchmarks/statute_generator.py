"""Generated statutes in XML, DOCX and PDF; the same bytes in every run."""

import io
import random
import re
import textwrap
import zipfile
from collections.abc import Iterator
from xml.sax.saxutils import escape

from benchmarks.subprocesses import ROOT
from samples.make_statutes import CONTENT_TYPES, HEAD, RELATIONS, WORD
from testing.pdfs import text_pdf

FORMATS = ("xml", "docx", "pdf")
ARTICLES_PER_CHAPTER = 20  # articles
ARTICLE_CHARS = 1_400  # some 330 tokens: each is a passage of its own
LINE_CHARS, LINES = 85, 46  # of a PDF's page

Article = tuple[str, list[str]]  # its label and its paragraphs


def generate_law(format: str, articles: int, name: str = "") -> bytes:
    """Return a law's file. Two of different names share no passage, whose vector would be known already."""
    chapters = list(_chapters(articles, name))
    return {"xml": _xml, "docx": _docx, "pdf": _pdf}[format](chapters)


def _chapters(articles: int, name: str) -> Iterator[list[Article]]:
    chance, sentences = random.Random(name), _sentences()
    for first in range(1, articles + 1, ARTICLES_PER_CHAPTER):
        numbers = range(first, min(first + ARTICLES_PER_CHAPTER, articles + 1))
        yield [(f"Artículo {number}.-", _paragraphs(chance, sentences)) for number in numbers]


def _sentences() -> list[str]:
    text = (ROOT / "samples" / "text" / "statutes" / "ley.txt").read_text(encoding="utf-8")
    lines = (re.sub(r"^(?:Artículo \S+|[IVX]+\.) ", "", line) for line in text.splitlines())
    return [line for line in lines if line.endswith(".") and 60 < len(line) < 400]


def _paragraphs(chance: random.Random, sentences: list[str]) -> list[str]:
    paragraphs: list[str] = []
    while sum(map(len, paragraphs)) < ARTICLE_CHARS:
        paragraphs.append(chance.choice(sentences))
    return paragraphs


def _title(number: int) -> str:
    return f"CAPÍTULO {number}"


def _xml(chapters: list[list[Article]]) -> bytes:
    body = "".join(
        f"<chapter><num>{_title(number)}</num>{''.join(map(_element, articles))}</chapter>"
        for number, articles in enumerate(chapters, 1)
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<law><title>Ley de Prueba</title>{body}</law>\n'.encode()


def _element(article: Article) -> str:
    label, paragraphs = article
    return f"<article><num>{label}</num>{''.join(f'<p>{escape(text)}</p>' for text in paragraphs)}</article>"


def _lines(chapters: list[list[Article]]) -> Iterator[str]:
    yield "Ley de Prueba"
    for number, articles in enumerate(chapters, 1):
        yield _title(number)
        for label, (first, *more) in articles:
            yield f"{label} {first}"
            yield from more


def _docx(chapters: list[list[Article]]) -> bytes:
    paragraphs = "".join(f"<w:p><w:r><w:t>{escape(line)}</w:t></w:r></w:p>" for line in _lines(chapters))
    document = f'{HEAD}<w:document xmlns:w="{WORD}"><w:body>{paragraphs}</w:body></w:document>'
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in (
            ("[Content_Types].xml", CONTENT_TYPES),
            ("_rels/.rels", RELATIONS),
            ("word/document.xml", document),
        ):
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _pdf(chapters: list[list[Article]]) -> bytes:
    lines = [line for paragraph in _lines(chapters) for line in textwrap.wrap(paragraph, LINE_CHARS)]
    return text_pdf(*("\n".join(lines[at : at + LINES]) for at in range(0, len(lines), LINES)))
