"""A law in its canonical form: divisions, articles, paragraphs, each with its place in the source.

``schemas/law.schema.json`` is the published shape of ``Law.as_json``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

SCHEMA_VERSION = "1"
# From the outside in; of what stands inside another, the rank is greater. What is transitory is a title of its own.
# A "text" holds no article: what stands after or between articles and divisions, signatures and notes for example.
RANKS = {
    "annex": 0, "book": 1, "part": 2, "subpart": 3, "title": 4, "subtitle": 5,
    "chapter": 6, "subchapter": 7, "section": 8, "subsection": 9, "text": 10,
}  # fmt: skip
# American codes divide chapters into parts.
RANKS_OF_INNER_PARTS = RANKS | {"part": 8, "subpart": 9}


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands: characters of the text that was read, or bytes of an XML file.

    An element of XML ends where its closing tag begins.
    """

    start: int
    end: int
    page: int | None = None  # from 1; None where the format has no pages

    def upto(self, other: Place) -> Place:
        return Place(self.start, other.end, self.page)

    def as_json(self) -> dict[str, Any]:
        return {"start": self.start, "end": self.end, "page": self.page}


@dataclass(frozen=True, slots=True)
class Line:
    """A line or a paragraph as a reader of some format gives it."""

    text: str
    place: Place
    is_whole: bool = False  # a paragraph by itself: no neighbour belongs to it


@dataclass(slots=True)
class Paragraph:
    text: str
    place: Place

    def as_json(self) -> dict[str, Any]:
        return {"text": self.text, **self.place.as_json()}


@dataclass(slots=True)
class Article:
    """The unit that is cited. ``number`` is its key within the law: "12-bis", "3", "primero"."""

    id: str
    number: str
    label: str  # as it stands there: "Artículo 12 Bis"
    place: Place
    heading: str = ""
    paragraphs: list[Paragraph] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n\n".join(paragraph.text for paragraph in self.paragraphs)

    def as_json(self) -> dict[str, Any]:
        return {
            "type": "article",
            "id": self.id,
            "number": self.number,
            "label": self.label,
            "heading": self.heading,
            **self.place.as_json(),
            "paragraphs": [paragraph.as_json() for paragraph in self.paragraphs],
        }


@dataclass(slots=True)
class Division:
    """A book, part, title, chapter, section, annex or text (``RANKS``). Its own paragraphs are in no article of it."""

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
            "type": self.kind,
            "number": self.number,
            "label": self.label,
            "heading": self.heading,
            **self.place.as_json(),
            "paragraphs": [paragraph.as_json() for paragraph in self.paragraphs],
            "children": [child.as_json() for child in self.children],
        }


@dataclass(slots=True)
class Law:
    """What was read of a file. ``offsets`` says what the places count: "characters" or "bytes".

    ``contents`` is a table of contents: it repeats what the law says and is not to be cited.
    """

    title: str
    language: str
    offsets: str
    preamble: list[Paragraph] = field(default_factory=list)
    contents: list[Paragraph] = field(default_factory=list)
    children: list[Division | Article] = field(default_factory=list)

    def articles(self) -> Iterator[tuple[tuple[Division, ...], Article]]:
        """Yield each article with the divisions that it stands in, in reading order."""
        yield from _articles(self.children, ())

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


def law_from_json(told: dict[str, Any]) -> Law:
    """Return the law that ``Law.as_json`` told."""
    return Law(
        told["title"],
        told["language"],
        told["source"]["offsets"],
        _paragraphs(told["preamble"]),
        _paragraphs(told["contents"]),
        [_child(child) for child in told["children"]],
    )


def _child(told: dict[str, Any]) -> Division | Article:
    place, paragraphs = _place(told), _paragraphs(told["paragraphs"])
    if told["type"] == "article":
        return Article(told["id"], told["number"], told["label"], place, told["heading"], paragraphs)
    children = [_child(child) for child in told["children"]]
    return Division(told["type"], told["number"], told["label"], place, told["heading"], paragraphs, children)


def _paragraphs(told: list[dict[str, Any]]) -> list[Paragraph]:
    return [Paragraph(paragraph["text"], _place(paragraph)) for paragraph in told]


def _place(told: dict[str, Any]) -> Place:
    return Place(told["start"], told["end"], told["page"])


def _articles(
    children: list[Division | Article], path: tuple[Division, ...]
) -> Iterator[tuple[tuple[Division, ...], Article]]:
    for child in children:
        if isinstance(child, Article):
            yield path, child
        else:
            yield from _articles(child.children, (*path, child))
