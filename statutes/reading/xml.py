"""Akoma Ntoso (LegalDocML), and plain XML with books, titles, chapters, sections and articles by name."""

from __future__ import annotations

from collections.abc import Iterator

from statutes.building import LONGEST_TITLE, TRANSITORY, Numbering, build, title
from statutes.canonical import Article, Division, Law, Line, Paragraph
from statutes.outline import AFTER_LABEL, Outline, key, language
from statutes.reading.blocks import ASIDE, BLOCKS, HEADINGS, NUMBERS, paragraphs, place
from statutes.reading.tree import Element, parse

DIVISIONS = {
    "annex": "annex", "anexo": "annex", "attachment": "annex", "component": "annex", "schedule": "annex",
    "book": "book", "libro": "book",
    "part": "part", "parte": "part", "subpart": "subpart",
    "title": "title", "titulo": "title", "título": "title", "subtitle": "subtitle",
    "transitorios": "title", "transitorio": "title", "transitional": "title", "disposicionestransitorias": "title",
    "chapter": "chapter", "capitulo": "chapter", "capítulo": "chapter", "subchapter": "subchapter",
    "section": "section", "seccion": "section", "sección": "section", "division": "section",
    "subsection": "subsection", "subseccion": "subsection", "subsección": "subsection",
}  # fmt: skip
ARTICLES = ("article", "articulo", "artículo", "art")
SECTIONS = ("section", "sec")
TRANSITORIES = ("transitorios", "transitorio", "transitional", "disposicionestransitorias")
NUMBER_ATTRIBUTES = ("num", "number", "numero", "número", "n", "eid", "id")
ANNEXES = tuple(name for name, kind in DIVISIONS.items() if kind == "annex")
TITLES = ("doctitle", "shorttitle", "title", "titulo", "título", "name", "nombre")
_NOUNS = {*DIVISIONS, *ARTICLES, *SECTIONS, "§"}
# What a bare number counts, where the language is Spanish or English.
_COUNTED = {
    "annex": ("Anexo", "Annex"), "book": ("Libro", "Book"), "part": ("Parte", "Part"),
    "subpart": ("Subparte", "Subpart"),
    "title": ("Título", "Title"), "subtitle": ("Subtítulo", "Subtitle"), "chapter": ("Capítulo", "Chapter"),
    "subchapter": ("Subcapítulo", "Subchapter"), "section": ("Sección", "Section"),
    "subsection": ("Subsección", "Subsection"), "article": ("Artículo", "Article"),
}  # fmt: skip


def read(content: bytes) -> Law:
    """Return the law of an XML file, its places in bytes. Raises ``Unreadable``."""
    root = parse(content)
    articles = list(root.everywhere(*ARTICLES))
    if articles and not any(article.has(*SECTIONS) for article in articles):
        return _Reader(ARTICLES, root).law()
    if root.has(*SECTIONS):
        return _Reader(SECTIONS, root).law()  # English acts: sections are what is cited, articles hold them
    return build(list(_lines(root)), offsets="bytes")


def _lines(root: Element) -> Iterator[Line]:
    """Yield the paragraphs of a file that names no articles: its text is read like a page's."""
    for paragraph in paragraphs(root):
        yield Line(paragraph.text, paragraph.place, is_whole=True)


class _Reader:
    def __init__(self, unit: tuple[str, ...], root: Element) -> None:
        self._unit, self._root = unit, root
        self._numbering = Numbering()
        self._language = language([root.text(without=ASIDE)[:200_000]])
        self._outline = Outline([])
        self._divisions = DIVISIONS if unit == ARTICLES else {**DIVISIONS, **dict.fromkeys(ARTICLES, "chapter")}
        self._in_transitory = False

    def law(self) -> Law:
        law = Law("", self._language, "bytes")
        self._fill(self._root, law.children, law.preamble)
        law.title = self._title() or title(law.preamble)
        return law

    def _title(self) -> str:
        for name in TITLES:
            for found in self._root.everywhere(name):
                if not found.has(*self._unit) and (text := found.text(without=ASIDE)):
                    return text[:LONGEST_TITLE]
        return ""

    def _fill(self, element: Element, children: list[Division | Article], between: list[Paragraph]) -> None:
        """Sort what stands in an element: articles, divisions with what they hold, and the text between."""
        loose = Element(element.name, {}, element.start, element.end)
        for piece in element.pieces:
            if isinstance(piece, str) or not self._is_structure(piece):
                loose.pieces.append(piece)
                continue
            between.extend(paragraphs(loose))
            loose.pieces.clear()
            if piece.name in self._unit:
                children.append(self._article(piece))
            elif piece.name in self._divisions:
                children.append(self._division(piece))
            else:
                self._fill(piece, children, between)
        between.extend(paragraphs(loose))

    def _is_structure(self, element: Element) -> bool:
        if element.name in ASIDE:
            return False
        if element.name in (*self._unit, *ANNEXES) or element.has(*self._unit, *ANNEXES):
            return True
        return element.name in self._divisions and element.name not in (*HEADINGS, *NUMBERS) and element.has(*BLOCKS)

    def _division(self, element: Element) -> Division:
        label, heading, rest = _parted(element, self._unit)
        number = _number(label, element)
        if was_outside := element.name in TRANSITORIES and not self._in_transitory:
            number, self._in_transitory = TRANSITORY, True
        kind = self._divisions[element.name]
        made = Division(kind, number, self._full(kind, label, element) or number, place(element), heading)
        self._fill(rest, made.children, made.paragraphs)
        if was_outside:
            self._in_transitory = False
        return made

    def _article(self, element: Element) -> Article:
        label, heading, rest = _parted(element, self._unit)
        body = list(paragraphs(rest))
        if not label and not _attribute(element) and body:
            label, body[0].text = self._said_in(body[0].text)
            body = [paragraph for paragraph in body if paragraph.text]
        number = _number(label, element) or "unnumbered"
        identity, number = self._numbering.named(number, in_transitory=self._in_transitory)
        return Article(identity, number, self._label(label, element), place(element), heading, body)

    def _said_in(self, text: str) -> tuple[str, str]:
        """Part a text that begins with its own label: "Artículo 12 Bis.- Los …" """
        self._outline.language = self._language
        found = self._outline.heading(text, in_transitory=self._in_transitory)
        return (found.label, found.rest) if found and found.kind == "article" else ("", text)

    def _label(self, label: str, element: Element) -> str:
        kind = "section" if self._unit == SECTIONS else "article"
        return self._full(kind, label, element) or _COUNTED["article"][self._language == "en"]

    def _full(self, kind: str, label: str, element: Element) -> str:
        """Return a label that says what it counts: "12." of a section is "Section 12"."""
        said = label.strip(AFTER_LABEL) or _attribute(element)
        first, *more = said.split() or [""]
        if not first or first[0] == "§" or (more and not first[0].isdigit()) or not key(first):
            return said
        return f"{_COUNTED[kind][self._language == 'en']} {said}"


def _parted(element: Element, unit: tuple[str, ...]) -> tuple[str, str, Element]:
    """Return the number and the heading that an element begins with, and the rest of it."""
    said = {NUMBERS: "", HEADINGS: ""}
    rest = Element(element.name, element.attributes, element.start, element.end)
    for piece in element.pieces:
        names = None if isinstance(piece, str) else next((names for names in said if piece.name in names), None)
        if names is None or isinstance(piece, str) or said[names] or piece.has(*unit) or rest.text():
            rest.pieces.append(piece)
        else:
            said[names] = piece.text(without=ASIDE)
    return said[NUMBERS], said[HEADINGS], rest


def _number(label: str, element: Element) -> str:
    """Return a label's number: "Artículo 12 Bis" says "12-bis", "CHAPTER IV" says "iv"."""
    words = label.strip(AFTER_LABEL).removeprefix("§").split()
    if len(words) > 1 and words[0].rstrip(".").lower() in _NOUNS:
        words = words[1:]
    return key(" ".join(words)) or key(_attribute(element))


def _attribute(element: Element) -> str:
    """Return the number that an attribute gives; an id like "art_12" ends with it."""
    for name, value in element.attributes.items():
        if (plain := name.rpartition(":")[2].lower()) in NUMBER_ATTRIBUTES and value.strip():
            return value.rpartition("_")[2].strip() if plain in ("eid", "id") else value.strip()
    return ""
