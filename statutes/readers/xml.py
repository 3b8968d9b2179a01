"""Reader of XML: Akoma Ntoso (LegalDocML), and plain XML whose elements are named as divisions and articles."""

import re
from collections.abc import Iterator

from statutes.readers import xml_vocabularies
from statutes.readers.xml_tree import INLINE, Element, parse_xml
from statutes.structure.article_ids import Numbering, number_prefix
from statutes.structure.builder import MAX_TITLE_CHARS, TRANSITORY, build_law, find_title
from statutes.structure.closing_formulas import end_matter_heading
from statutes.structure.headings import Heading, Outline, detect_language, number_key, sections_with_subsections
from statutes.structure.model import RANKS, Article, CanonicalLaw, Division, Line, Paragraph, Place
from statutes.structure.patterns import AFTER_LABEL

BLOCKS = (
    "p", "paragraph", "parrafo", "párrafo", "para", "block", "blocklist", "fraccion", "fracción", "inciso", "li",
    "item", "point", "alinea", "intro", "wrapup", "wrap", "subparagraph", "clause", "subclause", "level", "tr", "list",
    "content", "texto", "text", "contenido", "tblock", "hcontainer", "crossheading", "longtitle", "recital",
    "chapeau", "continuation", "subitem", "subsection", "tocitem", "contentsitem", "row", "blockquote",
    "h1", "h2", "h3",
)  # fmt: skip
NUMBERS = ("num", "number", "numero", "número", "label")
HEADINGS = (
    "heading", "titulo", "título", "encabezado", "rubrica", "rúbrica", "head", "name", "nombre", "subheading",
    "denominacion", "denominación", "epigrafe", "epígrafe", "rubro",
)  # fmt: skip
CONTENTS = ("toc", "tableofcontents", "indice", "índice")
ROWS = {"tr": " | ", "row": " | ", "tocitem": " ", "contentsitem": " "}
# Elements in them that are no blocks belong to their sentence.
_SENTENCES = ("p", "parrafo", "párrafo", "text", "texto", "para", "td", "th", "li")
# Clauses whose number is only an attribute, and the sign that the law prints after it.
_CLAUSES = {"fraccion": ".", "fracción": ".", "inciso": ")", "numeral": ".", "apartado": "."}
MAX_NUMBER_CHARS = 255  # of what is a number: its article's id is repeated in each of its passages
_NUMBER_ATTRIBUTES = ("numero", "número", "num", "number", "n")
# Not the law's text: metadata, editors' footnotes, struck text.
ASIDE = frozenset({"meta", "metadata", "metadatos", "note", "authorialnote", "editorial", "script", "style", "del"})
_LABELS = frozenset((*NUMBERS, *HEADINGS))

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
ID_ATTRIBUTES = ("eid", "id", "xml:id")
# The number at the end of an identifier: "art_12-bis", "tit1-art3", "section-2A", "a5".
_IDENTIFIER = re.compile(
    r"(?:^|[_.-])(?:[a-z]{1,10}[_.-]?)?(\d{1,5}[a-z]{0,3}(?:[.-]\d{1,4}[a-z]?)*(?:-(?:bis|ter|quater))?)$"
    r"|(?:^|[_.-])art(?:iculo|icle)?_([a-z]{5,})$",
    re.I,
)
ANNEXES = tuple(name for name, kind in DIVISIONS.items() if kind == "annex")
TITLES = ("doctitle", "shorttitle", "title", "titulo", "título", "name", "nombre")
_NOUNS = {*DIVISIONS, *ARTICLES, *SECTIONS, "§"}
# The noun of a bare number, in Spanish and in English.
_NOUNS_BY_KIND = {
    "annex": ("Anexo", "Annex"), "book": ("Libro", "Book"), "part": ("Parte", "Part"),
    "subpart": ("Subparte", "Subpart"),
    "title": ("Título", "Title"), "subtitle": ("Subtítulo", "Subtitle"), "chapter": ("Capítulo", "Chapter"),
    "subchapter": ("Subcapítulo", "Subchapter"), "section": ("Sección", "Section"),
    "subsection": ("Subsección", "Subsection"), "article": ("Artículo", "Article"),
}  # fmt: skip


def read_xml(content: bytes) -> CanonicalLaw:
    """Return the law of an XML file, its places in bytes. Raises ``Unreadable``."""
    root = xml_vocabularies.normalize_vocabulary(parse_xml(content))
    articles = list(root.descendants(*ARTICLES))
    if articles and not any(article.has(*SECTIONS) for article in articles):
        return _Reader(ARTICLES, root).law()
    if root.has(*SECTIONS):
        return _Reader(SECTIONS, root).law()  # English acts: sections are cited, articles contain them
    law = build_law(list(_lines(root)), offsets="bytes")
    law.title = _title(root, ()) or law.title
    return law


def _lines(root: Element) -> Iterator[Line]:
    elements = list(root.descendants("texto")) if root.name == "norma" else []
    for element in elements:  # the Biblioteca del Congreso of Chile keeps the lines of the page
        for line in element.raw(without=ASIDE).split("\n"):
            yield Line(line, place_of(element))
    for paragraph in () if elements else paragraphs(root):
        yield Line(paragraph.text, paragraph.place, is_whole=True)


def _title(root: Element, unit: tuple[str, ...]) -> str:
    for name in TITLES:
        for element in root.descendants(name):
            text = "" if unit and element.has(*unit) else element.text(without=ASIDE)
            if " " in text and text != "An Act":
                return text[:MAX_TITLE_CHARS]
    return ""


def paragraphs(element: Element, lead: str = "") -> Iterator[Paragraph]:
    """Yield the blocks below in order; ``lead`` is text before the first, such as a list's number."""
    if element.name in ROWS:
        cells = [child.text(without=ASIDE) for child in element.children()]
        row = ROWS[element.name].join(filter(None, cells)) or element.text(without=ASIDE)
        if text := f"{lead} {row}".strip():
            yield Paragraph(text, place_of(element))
        return
    run, is_lead = [f"{lead} {_number_of_clause(element)} "], True
    is_mixed = element.name in _SENTENCES or any(isinstance(piece, str) and piece.strip() for piece in element.pieces)
    for piece in element.pieces:
        if isinstance(piece, str):
            run.append(piece)
            is_lead = is_lead and not piece.strip()
        elif piece.name in ASIDE:
            run.append(" ")
        elif piece.name in _LABELS and not piece.has(*BLOCKS):
            run.append(f" {piece.text(without=ASIDE)} ")
        elif (is_mixed or piece.name in INLINE) and piece.name not in BLOCKS and not piece.has(*BLOCKS):
            run.append(piece.raw(without=ASIDE))
            is_lead = is_lead and not run[-1].strip()
        else:
            text = " ".join("".join(run).split())
            if text and not is_lead:
                yield Paragraph(text, place_of(element))
            yield from paragraphs(piece, text if is_lead else "")
            run, is_lead = [], True
    if text := " ".join("".join(run).split()):
        yield Paragraph(text, place_of(element))


def _number_of_clause(element: Element) -> str:
    if element.name not in _CLAUSES or element.child(*NUMBERS) is not None:
        return ""
    attributes = element.attributes
    number = next((attributes[name].strip() for name in _NUMBER_ATTRIBUTES if attributes.get(name)), "")
    if not number or element.text().startswith((f"{number}.", f"{number})", f"{number} ")):
        return ""
    return number + (_CLAUSES[element.name] if number[-1].isalnum() else "")


def place_of(element: Element) -> Place:
    return Place(element.start, element.end)


class DivisionBuilder:
    """Collects an element's articles in it, or in the division that a bare heading among them has opened."""

    def __init__(self, children: list[Division | Article], before: list[Paragraph], label: str = "") -> None:
        self._own, self._before, self._label = children, before, label
        self._open: list[Division] = []

    @property
    def children(self) -> list[Division | Article]:
        return self._open[-1].children if self._open else self._own

    def number_prefix(self) -> str:
        return number_prefix(self._open[-1].label if self._open else self._label)

    def add_text(self, paragraph: Paragraph, label: str = "") -> None:
        """Add text to the division before its first article, later to a text of its own, or only a ``label``."""
        if not self.children:
            (self._open[-1].paragraphs if self._open else self._before).append(paragraph)
            return
        last = self.children[-1]
        if label or not (isinstance(last, Division) and last.kind == "text"):
            last = Division("text", "", label, paragraph.place)
            self.children.append(last)
        if not label:
            last.paragraphs.append(paragraph)
        last.place = last.place.upto(paragraph.place)
        self._stretch(paragraph.place)

    def open_division(self, division: Division) -> None:
        self.close_divisions(division)
        self.children.append(division)
        self._open.append(division)

    def close_divisions(self, other: Division) -> None:
        while self._open and RANKS[self._open[-1].kind] >= RANKS[other.kind]:
            self._open.pop()

    def add_article(self, article: Article) -> None:
        self.children.append(article)
        self._stretch(article.place)

    def _stretch(self, end: Place) -> None:
        for division in self._open:
            division.place = division.place.upto(end)


class _Reader:
    def __init__(self, unit: tuple[str, ...], root: Element) -> None:
        self._unit, self._root = unit, root
        self._numbering = Numbering()
        self._language = detect_language([root.text(without=ASIDE)[:200_000]])
        self._outline = Outline([])
        self._outline.is_by_section = unit == SECTIONS
        self._divisions = DIVISIONS if unit == ARTICLES else {**DIVISIONS, **dict.fromkeys(ARTICLES, "chapter")}
        self._law = CanonicalLaw("", self._language, "bytes")
        self._in_transitory = False

    def law(self) -> CanonicalLaw:
        law = self._law
        self._read_children(self._root, DivisionBuilder(law.children, law.preamble))
        law.title = _title(self._root, self._unit) or find_title(law.preamble)
        return law

    def _read_children(self, element: Element, builder: DivisionBuilder) -> None:
        loose = Element(element.name, {}, element.start, element.end)
        is_mixed = element.has(*self._unit, *ANNEXES)
        for piece in element.pieces:
            is_structure = not isinstance(piece, str) and self._is_structure(piece)
            opened = self._division_of_heading(piece) if is_mixed and not is_structure else None
            if isinstance(piece, str) or not (opened or is_structure):
                loose.pieces.append(piece)
                continue
            self._add_loose_text(loose, builder)
            loose.pieces.clear()
            if opened:
                builder.open_division(opened)
            elif piece.name in CONTENTS:
                self._law.contents.extend(paragraphs(piece))
            elif piece.name in self._unit:
                builder.add_article(self._read_article(piece, self._prefix(builder)))
            elif piece.name in self._divisions:
                division = self._read_division(piece)
                builder.close_divisions(division)
                builder.children.append(division)
            else:
                self._read_children(piece, builder)
        self._add_loose_text(loose, builder)

    def _add_loose_text(self, loose: Element, builder: DivisionBuilder) -> None:
        """Add text in its place; among transitory, additional or final provisions an ordinal begins an article."""
        prefix, article = self._prefix(builder), None
        for paragraph in paragraphs(loose):
            heading = self._outline.heading(paragraph.text, in_transitory=True) if prefix else None
            if heading is not None and heading.kind == "article":
                article_id, number = self._numbering.assign(heading.number, prefix)
                article = Article(article_id, number, heading.label, paragraph.place)
                if heading.rest:
                    article.paragraphs.append(Paragraph(heading.rest, paragraph.place))
                builder.add_article(article)
                continue
            end = end_matter_heading(paragraph.text, "", is_behind=True, in_transitory=bool(prefix))
            if article is not None and end is None:
                article.paragraphs.append(paragraph)
                article.place = article.place.upto(paragraph.place)
            else:
                article = None
                builder.add_text(paragraph, end.label if end else "")

    def _prefix(self, builder: DivisionBuilder) -> str:
        return "transitorio" if self._in_transitory else builder.number_prefix()

    def _division_of_heading(self, element: str | Element) -> Division | None:
        """Return the division that a bare heading opens, where the articles are beside it and not in it."""
        if isinstance(element, str) or element.name in ASIDE or element.name in NUMBERS:
            return None
        text = element.text(without=ASIDE) if element.length_within(MAX_TITLE_CHARS) else ""
        heading = self._heading(text)
        if heading is None or heading.kind == "article":
            return None
        return Division(heading.kind, heading.number, heading.label, place_of(element), heading.rest)

    def _is_structure(self, element: Element) -> bool:
        if element.name in ASIDE:
            return False
        if element.name in (*self._unit, *ANNEXES, *CONTENTS) or element.has(*self._unit, *ANNEXES):
            return True
        if element.name == "title" and element.child() is None:
            return False  # a name; "TITLE II" alone is recognized by its words
        return element.name in self._divisions and element.name not in (*HEADINGS, *NUMBERS, "p")

    def _heading(self, text: str) -> Heading | None:
        self._outline.language = self._language
        return self._outline.heading(text, in_transitory=self._in_transitory)

    def _read_division(self, element: Element) -> Division:
        label, title, rest = _split_label(element, self._unit)
        kind = self._divisions[element.name]
        if element.name == "division":  # of any kind, which its label names
            kind = DIVISIONS.get(label.partition(" ")[0].lower(), kind)
        if not label and (heading := self._heading(title)) is not None and heading.kind != "article":
            kind, label, title = heading.kind, heading.label, heading.rest
        number = _number(label, element)
        if enters_transitory := element.name in TRANSITORIES and not self._in_transitory:
            number, self._in_transitory = TRANSITORY, True
        unnumbered = ""
        if element.name.startswith("disposiciones"):
            unnumbered = f"Disposiciones {element.name.removeprefix('disposiciones')}"
        elif kind == "annex":
            unnumbered = _NOUNS_BY_KIND["annex"][self._language == "en"]
        label = self._full_label(kind, label, element) or number or ("" if title else unnumbered)
        division = Division(kind, number, label, place_of(element), title)
        self._read_children(rest, DivisionBuilder(division.children, division.paragraphs, label))
        if enters_transitory:
            self._in_transitory = False
        return division

    def _read_article(self, element: Element, prefix: str) -> Article:
        label, title, rest = _split_label(element, self._unit)
        if not label:
            label, title = self._label_within(title)
        body = list(paragraphs(rest))
        if not label and not _number_attribute(element) and body:
            self._outline.whole = sections_with_subsections([paragraph.text for paragraph in body])
            label, body[0].text = self._label_within(body[0].text)
            body = [paragraph for paragraph in body if paragraph.text]
        article_id, number = self._numbering.assign(_number(label, element) or "unnumbered", prefix)
        label = self._full_label("section" if self._unit == SECTIONS else "article", label, element)
        label = label or _NOUNS_BY_KIND["article"][self._language == "en"]
        return Article(article_id, number, label, place_of(element), title, body)

    def _label_within(self, text: str) -> tuple[str, str]:
        # "Artículo 12 Bis.- Los …"
        heading = self._heading(text)
        return (heading.label, heading.rest) if heading and heading.kind == "article" else ("", text)

    def _full_label(self, kind: str, label: str, element: Element) -> str:
        """Return a label with its noun: "12." of a section is "Section 12"."""
        label = label.strip(AFTER_LABEL) or _number_attribute(element)
        first, *more = label.split() or [""]
        if not first or first[0] == "§" or number_prefix(label) or (more and not first[0].isdigit()):
            return label
        return f"{_NOUNS_BY_KIND[kind][self._language == 'en']} {label}" if number_key(first) else label


def _split_label(element: Element, unit: tuple[str, ...]) -> tuple[str, str, Element]:
    labels = {NUMBERS: "", HEADINGS: ""}
    rest = Element(element.name, element.attributes, element.start, element.end)
    for piece in element.pieces:
        names = None if isinstance(piece, str) else next((names for names in labels if piece.name in names), None)
        if names is NUMBERS and not piece.length_within(MAX_NUMBER_CHARS):  # type: ignore[union-attr]
            names = None
        if names is None or isinstance(piece, str) or labels[names] or piece.has(*unit) or rest.text():
            rest.pieces.append(piece)
        else:
            labels[names] = piece.text(without=ASIDE)
    return labels[NUMBERS], labels[HEADINGS], rest


def _number(label: str, element: Element) -> str:
    """Return a label's number: "12-bis" of "Artículo 12 Bis", "iv" of "CHAPTER IV"."""
    words = label.strip(AFTER_LABEL).removeprefix("§").split()
    if len(words) > 1 and words[0].rstrip(".").lower() in _NOUNS:
        words = words[1:]
    return number_key(" ".join(words)) or number_key(_number_attribute(element))


def _number_attribute(element: Element) -> str:
    attributes = {name.lower(): text.strip() for name, text in element.attributes.items()}
    for name in NUMBER_ATTRIBUTES:
        if 0 < len(attributes.get(name, "")) <= MAX_NUMBER_CHARS:
            return attributes[name]
    matches = (_IDENTIFIER.search(attributes.get(name, "")[-40:]) for name in ID_ATTRIBUTES)
    match = next(filter(None, matches), None)
    return match[1] or match[2] if match else ""
