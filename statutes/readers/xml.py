"""Akoma Ntoso (LegalDocML), and plain XML with books, titles, chapters, sections and articles by name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from statutes.readers import xml_vocabularies
from statutes.readers.xml_builder import LawBuilder
from statutes.readers.xml_text import ASIDE, CONTENTS, HEADINGS, NUMBERS, paragraphs, place_of
from statutes.readers.xml_tree import Element, parse_xml
from statutes.structure.builder import TRANSITORY, build_law
from statutes.structure.end_matter import end_matter_heading
from statutes.structure.headings import Heading, Outline, detect_language, number_key
from statutes.structure.labels import Numbering, number_prefix
from statutes.structure.model import Article, Division, Law, Line, Paragraph
from statutes.structure.patterns import AFTER_LABEL
from statutes.structure.section_numbering import sections_with_subsections
from statutes.structure.titles import MAX_TITLE_CHARS, find_title

DIVISIONS = {
    "annex": "annex", "anexo": "annex", "attachment": "annex", "component": "annex", "schedule": "annex",
    "book": "book", "libro": "book",
    "part": "part", "parte": "part", "subpart": "subpart",
    "title": "title", "titulo": "title", "título": "title", "subtitle": "subtitle",
    "transitorios": "title", "transitorio": "title", "transitional": "title", "disposicionestransitorias": "title",
    "disposicionesfinales": "title", "disposicionesadicionales": "title", "disposicionesderogatorias": "title",
    "disposicionescomplementarias": "title",
    "chapter": "chapter", "capitulo": "chapter", "capítulo": "chapter", "subchapter": "subchapter",
    "section": "section", "seccion": "section", "sección": "section", "division": "section",
    "subsection": "subsection", "subseccion": "subsection", "subsección": "subsection",
}  # fmt: skip
ARTICLES = ("article", "articulo", "artículo", "art")
SECTIONS = ("section", "sec")
TRANSITORIES = ("transitorios", "transitorio", "transitional", "disposicionestransitorias")
NUMBER_ATTRIBUTES = ("num", "number", "numero", "número", "n")
IDS = ("eid", "id", "xml:id")
# The number that an identifier ends with: "art_12-bis", "tit1-art3", "section-2A", "a5".
_IDENTIFIER = re.compile(
    r"(?:^|[_.-])(?:[a-z]{1,10}[_.-]?)?(\d{1,5}[a-z]{0,3}(?:[.-]\d{1,4}[a-z]?)*(?:-(?:bis|ter|quater))?)$"
    r"|(?:^|[_.-])art(?:iculo|icle)?_([a-z]{5,})$",
    re.I,
)
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


def read_xml(content: bytes) -> Law:
    """Return the law of an XML file, its places in bytes. Raises ``Unreadable``."""
    root = xml_vocabularies.normalize_vocabulary(parse_xml(content))
    articles = list(root.descendants(*ARTICLES))
    if articles and not any(article.has(*SECTIONS) for article in articles):
        return _Reader(ARTICLES, root).law()
    if root.has(*SECTIONS):
        return _Reader(SECTIONS, root).law()  # English acts: sections are what is cited, articles hold them
    law = build_law(list(_lines(root)), offsets="bytes")
    law.title = _title(root, ()) or law.title
    return law


def _lines(root: Element) -> Iterator[Line]:
    """Yield the paragraphs of a file that names no articles: its text is read like a page's."""
    written = list(root.descendants("texto")) if root.name == "norma" else []
    for element in written:  # the Biblioteca del Congreso of Chile keeps the lines of the page
        for line in element.raw(without=ASIDE).split("\n"):
            yield Line(line, place_of(element))
    for paragraph in () if written else paragraphs(root):
        yield Line(paragraph.text, paragraph.place, is_whole=True)


def _title(root: Element, unit: tuple[str, ...]) -> str:
    """Return what the file calls itself; "An Act" alone is no name."""
    for name in TITLES:
        for found in root.descendants(name):
            text = "" if unit and found.has(*unit) else found.text(without=ASIDE)
            if " " in text and text != "An Act":
                return text[:MAX_TITLE_CHARS]
    return ""


class _Reader:
    def __init__(self, unit: tuple[str, ...], root: Element) -> None:
        self._unit, self._root = unit, root
        self._numbering = Numbering()
        self._language = detect_language([root.text(without=ASIDE)[:200_000]])
        self._outline = Outline([])
        self._outline.is_by_section = unit == SECTIONS
        self._divisions = DIVISIONS if unit == ARTICLES else {**DIVISIONS, **dict.fromkeys(ARTICLES, "chapter")}
        self._law = Law("", self._language, "bytes")
        self._in_transitory = False

    def law(self) -> Law:
        law = self._law
        self._fill(self._root, LawBuilder(law.children, law.preamble))
        law.title = _title(self._root, self._unit) or find_title(law.preamble)
        return law

    def _fill(self, element: Element, holder: LawBuilder) -> None:
        """Sort what stands in an element: articles, divisions with what they hold, and the text between."""
        loose = Element(element.name, {}, element.start, element.end)
        is_mixed = element.has(*self._unit, *ANNEXES)
        for piece in element.pieces:
            is_structure = not isinstance(piece, str) and self._is_structure(piece)
            opened = self._opened(piece) if is_mixed and not is_structure else None
            if isinstance(piece, str) or not (opened or is_structure):
                loose.pieces.append(piece)
                continue
            self._say(loose, holder)
            loose.pieces.clear()
            if opened:
                holder.open_division(opened)
            elif piece.name in CONTENTS:
                self._law.contents.extend(paragraphs(piece))
            elif piece.name in self._unit:
                holder.add_article(self._article(piece, self._prefix(holder)))
            elif piece.name in self._divisions:
                made = self._division(piece)
                holder.close_divisions(made)
                holder.children.append(made)
            else:
                self._fill(piece, holder)
        self._say(loose, holder)

    def _say(self, loose: Element, holder: LawBuilder) -> None:
        """Put text where it stands; among what is transitory, additional or final, an ordinal begins an article."""
        prefix, article = self._prefix(holder), None
        for paragraph in paragraphs(loose):
            found = self._outline.heading(paragraph.text, in_transitory=True) if prefix else None
            if found is not None and found.kind == "article":
                identity, number = self._numbering.assign(found.number, prefix)
                article = Article(identity, number, found.label, paragraph.place)
                if found.rest:
                    article.paragraphs.append(Paragraph(found.rest, paragraph.place))
                holder.add_article(article)
                continue
            ends = end_matter_heading(paragraph.text, "", is_behind=True, in_transitory=bool(prefix))
            if article is not None and ends is None:
                article.paragraphs.append(paragraph)
                article.place = article.place.upto(paragraph.place)
            else:
                article = None
                holder.add_text(paragraph, ends.label if ends else "")

    def _prefix(self, holder: LawBuilder) -> str:
        return "transitorio" if self._in_transitory else number_prefix(holder.label)

    def _opened(self, element: str | Element) -> Division | None:
        """Return the division that a mere heading begins, where the articles stand beside it and not in it."""
        if isinstance(element, str) or element.name in ASIDE or element.name in NUMBERS:
            return None
        text = element.text(without=ASIDE) if element.length_within(MAX_TITLE_CHARS) else ""
        found = self._said(text)
        if found is None or found.kind == "article":
            return None
        return Division(found.kind, found.number, found.label, place_of(element), found.rest)

    def _is_structure(self, element: Element) -> bool:
        if element.name in ASIDE:
            return False
        if element.name in (*self._unit, *ANNEXES, *CONTENTS) or element.has(*self._unit, *ANNEXES):
            return True
        if element.name == "title" and element.child() is None:
            return False  # what something is called; "TITLE II" alone is told by its words
        return element.name in self._divisions and element.name not in (*HEADINGS, *NUMBERS, "p")

    def _said(self, text: str) -> Heading | None:
        """Return what a text begins with, if it is a label: "CAPÍTULO I De las aguas"."""
        self._outline.language = self._language
        return self._outline.heading(text, in_transitory=self._in_transitory)

    def _division(self, element: Element) -> Division:
        label, heading, rest = _parted(element, self._unit)
        kind = self._divisions[element.name]
        if element.name == "division":  # any: its label says of which kind
            kind = DIVISIONS.get(label.partition(" ")[0].lower(), kind)
        if not label and (found := self._said(heading)) is not None and found.kind != "article":
            kind, label, heading = found.kind, found.label, found.rest
        number = _number(label, element)
        if was_outside := element.name in TRANSITORIES and not self._in_transitory:
            number, self._in_transitory = TRANSITORY, True
        said = self._full(kind, label, element) or number or ("" if heading else self._unnumbered(kind, element))
        made = Division(kind, number, said, place_of(element), heading)
        self._fill(rest, LawBuilder(made.children, made.paragraphs, made.label))
        if was_outside:
            self._in_transitory = False
        return made

    def _unnumbered(self, kind: str, element: Element) -> str:
        """Return what to call a division that says nothing of itself."""
        if element.name.startswith("disposiciones"):
            return f"Disposiciones {element.name.removeprefix('disposiciones')}"
        return _COUNTED["annex"][self._language == "en"] if kind == "annex" else ""

    def _article(self, element: Element, prefix: str) -> Article:
        label, heading, rest = _parted(element, self._unit)
        if not label:
            label, heading = self._said_in(heading)
        body = list(paragraphs(rest))
        if not label and not _attribute(element) and body:
            self._outline.whole = sections_with_subsections([paragraph.text for paragraph in body])
            label, body[0].text = self._said_in(body[0].text)
            body = [paragraph for paragraph in body if paragraph.text]
        number = _number(label, element) or "unnumbered"
        identity, number = self._numbering.assign(number, prefix)
        return Article(identity, number, self._label(label, element), place_of(element), heading, body)

    def _said_in(self, text: str) -> tuple[str, str]:
        """Part a text that begins with its own label: "Artículo 12 Bis.- Los …" """
        found = self._said(text)
        return (found.label, found.rest) if found and found.kind == "article" else ("", text)

    def _label(self, label: str, element: Element) -> str:
        kind = "section" if self._unit == SECTIONS else "article"
        return self._full(kind, label, element) or _COUNTED["article"][self._language == "en"]

    def _full(self, kind: str, label: str, element: Element) -> str:
        """Return a label that says what it counts: "12." of a section is "Section 12"."""
        said = label.strip(AFTER_LABEL) or _attribute(element)
        first, *more = said.split() or [""]
        if (
            not first
            or first[0] == "§"
            or number_prefix(said)
            or (more and not first[0].isdigit())
            or not number_key(first)
        ):
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
    return number_key(" ".join(words)) or number_key(_attribute(element))


def _attribute(element: Element) -> str:
    """Return the number that an attribute gives; an id like "art_12" ends with it."""
    given = {name.lower(): value.strip() for name, value in element.attributes.items()}
    for name in NUMBER_ATTRIBUTES:
        if given.get(name):
            return given[name]
    found = next((match for name in IDS if (match := _IDENTIFIER.search(given.get(name, "")[-40:]))), None)
    return found[1] or found[2] if found else ""
