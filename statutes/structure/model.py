"""Canonical form of a law, published as ``schemas/law.schema.json``: divisions, articles, paragraphs, their places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

SCHEMA_VERSION = "1"
# From the outside in: an inner division has the greater rank. Transitory provisions are a title of their own. A "text"
# has no articles: it stands after or between articles and divisions, signatures and notes for example.
RANKS = {
    "annex": 0, "book": 1, "part": 2, "subpart": 3, "title": 4, "subtitle": 5,
    "chapter": 6, "subchapter": 7, "section": 8, "subsection": 9, "text": 10,
}  # fmt: skip
# American codes divide chapters into parts.
INNER_PART_RANKS = RANKS | {"part": 8, "subpart": 9}


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the source, in characters of its text, or in bytes of XML up to the closing tag."""

    start: int
    end: int
    page: int | None = None  # from 1; None where the format has no pages

    def upto(self, other: Place) -> Place:
        return Place(self.start, other.end, self.page)

    def as_json(self) -> dict[str, Any]:
        return {"start": self.start, "end": self.end, "page": self.page}


@dataclass(frozen=True, slots=True)
class Line:
    """A line or a paragraph, as the reader of a format yields it."""

    text: str
    place: Place
    is_whole: bool = False  # a complete paragraph


@dataclass(slots=True)
class Paragraph:
    text: str
    place: Place

    def as_json(self) -> dict[str, Any]:
        return {"text": self.text, **self.place.as_json()}


@dataclass(slots=True)
class Article:
    """The unit of citation. ``number`` is its key within the law: "12-bis", "3", "primero"."""

    id: str
    number: str
    label: str  # as in the source: "Artículo 12 Bis"
    place: Place
    heading: str = ""
    paragraphs: list[Paragraph] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n\n".join(paragraph.text for paragraph in self.paragraphs)

    def as_json(self) -> dict[str, Any]:
        names = {"id": self.id, "number": self.number, "label": self.label, "heading": self.heading}
        paragraphs = [paragraph.as_json() for paragraph in self.paragraphs]
        return {"type": "article", **names, **self.place.as_json(), "paragraphs": paragraphs}


@dataclass(slots=True)
class Division:
    """A book, part, title, chapter, section, annex or text (``RANKS``). Its own paragraphs are in no article."""

    kind: str
    number: str
    label: str  # "TÍTULO II"; a text may have none
    place: Place
    heading: str = ""
    paragraphs: list[Paragraph] = field(default_factory=list)
    children: list[Division | Article] = field(default_factory=list)

    @property
    def title(self) -> str:
        return f"{self.label} {self.heading}".strip()

    def as_json(self) -> dict[str, Any]:
        return {
            **{"type": self.kind, "number": self.number, "label": self.label, "heading": self.heading},
            **self.place.as_json(),
            "paragraphs": [paragraph.as_json() for paragraph in self.paragraphs],
            "children": [child.as_json() for child in self.children],
        }


@dataclass(slots=True)
class CanonicalLaw:
    """A parsed law. ``offsets`` is the unit of its places; ``contents``, its table of contents, is not cited."""

    title: str
    language: str
    offsets: str
    preamble: list[Paragraph] = field(default_factory=list)
    contents: list[Paragraph] = field(default_factory=list)
    children: list[Division | Article] = field(default_factory=list)

    def articles(self) -> Iterator[tuple[tuple[Division, ...], Article]]:
        """Yield each article with the divisions around it, in reading order."""
        todo: list[tuple[tuple[Division, ...], Division | Article]] = [((), child) for child in self.children[::-1]]
        while todo:
            path, child = todo.pop()
            if isinstance(child, Article):
                yield path, child
            else:
                todo += [((*path, child), inner) for inner in child.children[::-1]]

    def as_json(self, *, law_id: str, version: str, source: dict[str, Any]) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "law_id": law_id,
            "version": version,
            "title": self.title,
            "language": self.language,
            "source": {**source, "offsets": self.offsets},
            "preamble": [paragraph.as_json() for paragraph in self.preamble],
            "contents": [paragraph.as_json() for paragraph in self.contents],
            "children": [child.as_json() for child in self.children],
        }
