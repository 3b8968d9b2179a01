"""XML vocabularies of official gazettes, renamed to the element names that ``statutes.readers.xml`` reads."""

import re
from collections.abc import Callable, Iterator, Mapping

from statutes.readers.xml_tree import Element

# legislation.gov.uk: https://www.legislation.gov.uk/schema/legislation.xsd
CROWN = {
    "metadata": "meta", "contents": "toc", "number": "num", "pnumber": "num", "title": "heading", "p1": "section",
    "pblock": "subchapter", "psubblock": "subsection", "schedule": "annex", "schedules": "body", "p2": "paragraph",
    "p3": "paragraph", "p4": "paragraph", "p5": "paragraph", "p6": "paragraph", "p7": "paragraph",
    "listitem": "item", "orderedlist": "list", "unorderedlist": "list", "commentaries": "editorial",
    "versions": "editorial", "resources": "editorial", "footnotes": "editorial", "explanatorynotes": "editorial",
    "commentaryref": "noteref",
}  # fmt: skip
# The Publications Office of the European Union: https://op.europa.eu/en/web/eu-vocabularies/formex
FORMEX = {
    "bib.instance": "meta", "bib.doc": "meta", "bib.data": "meta", "title": "heading", "ti.art": "num",
    "sti.art": "heading", "no.parag": "num", "no.p": "num", "parag": "paragraph", "np": "point", "txt": "text",
    "consid": "recital", "visa": "p", "ht": "i", "row": "tr", "cell": "td", "gr.annot": "editorial", "toc": "toc",
}  # fmt: skip
CANADA = {
    "label": "num", "marginalnote": "heading", "titletext": "heading", "historicalnote": "editorial",
    "scheduleformheading": "heading", "chapter": "p", "definition": "point", "xrefexternal": "ref",
    "xrefinternal": "ref", "definedtermen": "term", "definedtermfr": "term", "definitionref": "term",
}  # fmt: skip
# The Boletín Oficial del Estado: https://www.boe.es/datosabiertos/
BOE = {"metadatos": "meta", "metadata-eli": "meta", "analisis": "meta", "status": "meta"}
CHILE = {"metadatos": "meta", "identificador": "meta", "titulonorma": "doctitle"}
CFR = {"header": "meta", "head": "heading", "subjgrp": "subchapter", "subchap": "subchapter", "appendix": "annex"}

# Generic elements, whose kind is an attribute.
_NAMELESS = re.compile(r"div\d*|hcontainer|container|tblock")
_KINDS = ("name", "TYPE", "type")
_RENAMED = {
    "crossheading": "subchapter", "schedule": "annex", "regulation": "article", "rule": "article",
    "subjgrp": "subchapter", "subchap": "subchapter", "appendix": "annex",
    "disposicionestransitorias": "transitorios", "schedules": "body",
}  # fmt: skip
_NUMBER = re.compile(r"(?:num|numero|número|nro)[_.-]\w+|\w+[_.-](?:num|numero|número|nro)")
_CLAUSE = re.compile(r"p[2-7]")
_LAW = re.compile(r"(?:nombre|titulo|título|title)[_.-]?(?:de[_.-]?)?(?:la[_.-]?)?(?:ley|norma|law|act)")
_HEADING = re.compile(r"(?:nombre|denominacion|titulo|título|heading)[_.-]\w+|\w+[_.-](?:nombre|titulo|título|heading)")


def normalize_vocabulary(root: Element) -> Element:
    dialect = _dialect(root)  # by the original names
    known: dict[str, str] = {}
    for element in _all(root):
        if _NAMELESS.fullmatch(element.name):
            kind = next((element.attributes[kind] for kind in _KINDS if kind in element.attributes), "").lower()
            element.name = _RENAMED.get(kind, kind) or element.name
        elif not any(True for _ in element.children()):
            name = element.name
            if name not in known:
                kinds = (("doctitle", _LAW), ("num", _NUMBER), ("heading", _HEADING))
                known[name] = next((kind for kind, pattern in kinds if pattern.fullmatch(name)), name)
            element.name = known[name]
    if dialect:
        names, rearrange = dialect
        if rearrange:
            rearrange(root)
        for element in _all(root):
            element.name = names.get(element.name, element.name)
    return root


def _dialect(root: Element) -> tuple[Mapping[str, str], Callable[[Element], None] | None] | None:
    if root.name == "legislation":
        return CROWN, _rearrange_crown
    if root.has("enacting.terms", "bib.instance"):
        return FORMEX, _rearrange_formex
    if root.name in ("statute", "regulation") and root.has("marginalnote", "label"):
        return CANADA, None
    if root.name in ("documento", "response") and root.has("metadatos"):
        return BOE, _drop_old_versions
    if root.name == "norma":
        return CHILE, None
    return (CFR, None) if root.name in ("dlpstextclass", "ecfr") else None


def _all(root: Element) -> Iterator[Element]:
    todo = [root]
    while todo:
        element = todo.pop()
        yield element
        todo.extend(element.children())


def _rearrange_crown(root: Element) -> None:
    for element in _all(root):
        if element.name == "p1group":
            heading, section = element.child("title"), element.child("p1")
            if heading is not None and section is not None:
                element.pieces.remove(heading)
                after = section.child("pnumber")
                section.pieces.insert(section.pieces.index(after) + 1 if after else 0, heading)
        elif _CLAUSE.fullmatch(element.name) and (number := element.child("pnumber")) is not None:
            number.pieces = [f"({number.text()})"]
        elif element.name in ("primaryprelims", "secondaryprelims", "euprelims"):
            for title in element.children("title"):
                title.name = "doctitle"
        elif element.name == "schedule":
            # The reference stands below the heading, and a schedule's paragraphs are no sections of the act.
            reference = element.child("reference")
            _unwrap(element, "titleblock")
            _unwrap(element, "schedulebody")
            heading = element.child("title")
            if reference is not None and heading is not None:
                element.pieces.remove(reference)
                element.pieces.insert(element.pieces.index(heading) + 1, reference)
            for paragraph in element.descendants("p1"):
                paragraph.name = "paragraph"


def _unwrap(element: Element, name: str) -> None:
    pieces: list[str | Element] = []
    for piece in element.pieces:
        pieces += piece.pieces if isinstance(piece, Element) and piece.name == name else [piece]
    element.pieces = pieces


def _rearrange_formex(root: Element) -> None:
    for title in root.children("title"):
        title.name = "doctitle"
    for element in _all(root):
        if element.name in ("division", "annex"):
            _unwrap(element, "title")
            for title in element.children("ti", "sti"):
                title.name = "num" if title.name == "ti" else "heading"
        if element.name in ("quot.start", "quot.end"):
            code = element.attributes.get("CODE", "")
            element.name, element.pieces = "i", [chr(int(code, 16)) if re.fullmatch(r"20[0-9A-F]{2}", code) else '"']


def _drop_old_versions(root: Element) -> None:
    """Keep only the last version of each consolidated block: that is the law."""
    for block in root.descendants("bloque"):
        for old in list(block.children("version"))[:-1]:
            block.pieces.remove(old)
