"""Statutes of the kill loop: every format, some in two versions, reproducible by seed."""

import io
import random
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from samples.make_statutes import CONTENT_TYPES, RELATIONS, WORD
from testing.pdfs import text_pdf

WORDS = {
    "es": "impuesto ingreso contribuyente autoridad plazo pago tasa ejercicio territorio enajenación base registro",
    "en": "member claim notice hearing record provider benefit appeal period agency premium document",
}
LABELS = {"es": "Artículo", "en": "Section"}
ARTICLE_WORDS = 260  # enough for each to be a passage of its own
WIDTH = 9  # words in a line of a page


@dataclass(frozen=True)
class Statute:
    """One version of a law. ``late``: it comes when the first ones are there."""

    law_id: str
    version: str
    form: str
    content: bytes
    late: bool = False
    priority: str = "normal"

    @property
    def key(self) -> str:
        return f"raw/{self.law_id}/{self.version}.{self.form}"

    @property
    def message(self) -> dict[str, Any]:
        return {
            "document_id": self.law_id,
            "s3_raw_key": self.key,
            "uploader_id": "user-42",
            "ingest_timestamp": "2025-01-12T15:31:45Z",
            "priority": self.priority,
            "version": self.version,
        }


def statutes(count: int, *, seed: int = 1) -> Iterator[Statute]:
    """Yield ``count`` versions. Of every fifth law a second one follows that shares all articles but its last.

    Of every other fifth two come at once, which have nothing in common: bought twice would be nobody's fault.
    """
    dice = random.Random(seed)
    number = total = 0
    while total < count:
        language, form = ("es", "en")[number % 2], ("xml", "docx", "pdf")[number % 3]
        articles = [_article(dice, language) for _ in range(dice.randint(2, 5))]
        law_id, urgent = f"LAW_{number}", ("normal", "high", "low")[number % 7 % 3]
        yield Statute(law_id, "2024-1", form, render_statute(form, language, law_id, articles), priority=urgent)
        total += 1
        if number % 5 == 0 and total < count:
            articles[-1] = _article(dice, language)
            yield Statute(law_id, "2024-2", form, render_statute(form, language, law_id, articles), late=True)
            total += 1
        elif number % 5 == 3 and total < count:
            articles = [_article(dice, language) for _ in articles]
            yield Statute(law_id, "2024-2", form, render_statute(form, language, f"{law_id} bis", articles))
            total += 1
        number += 1


def _article(dice: random.Random, language: str) -> str:
    words = WORDS[language].split()
    return " ".join(dice.choices(words, k=ARTICLE_WORDS))


def render_statute(form: str, language: str, title: str, articles: list[str]) -> bytes:
    """Return the file of a law."""
    label, heading = LABELS[language], f"Act {title}" if language == "en" else f"Ley {title}"
    if form == "xml":
        body = "".join(
            f"<article><num>{label} {n}.</num><p>{escape(text)}</p></article>" for n, text in _counted(articles)
        )
        return f"<law><title>{heading}</title>{body}</law>".encode()
    lines = [heading, *(f"{label} {n}. {text}" for n, text in _counted(articles))]
    return _docx(lines) if form == "docx" else text_pdf(*("\n".join(_wrapped(line)) for line in lines))


def _counted(articles: list[str]) -> Iterator[tuple[int, str]]:
    return enumerate(articles, 1)


def _wrapped(line: str) -> Iterator[str]:
    words = line.split()
    for at in range(0, len(words), WIDTH):
        yield " ".join(words[at : at + WIDTH])


def _docx(lines: list[str]) -> bytes:
    body = "".join(f"<w:p><w:r><w:t>{escape(line)}</w:t></w:r></w:p>" for line in lines)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in (
            ("[Content_Types].xml", CONTENT_TYPES),
            ("_rels/.rels", RELATIONS),
            ("word/document.xml", f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'),
        ):
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    return file.getvalue()
