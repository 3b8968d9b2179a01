"""Paragraphs of XML elements, each with its number in front."""

from collections.abc import Iterator

from statutes.readers.xml_tree import INLINE, Element
from statutes.structure.model import Paragraph, Place

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
_NUMBER_ATTRIBUTES = ("numero", "número", "num", "number", "n")
# Not the law's text: metadata, editors' footnotes, struck text.
ASIDE = frozenset({"meta", "metadata", "metadatos", "note", "authorialnote", "editorial", "script", "style", "del"})
_LABELS = frozenset((*NUMBERS, *HEADINGS))


def paragraphs(element: Element, lead: str = "") -> Iterator[Paragraph]:
    """Yield the blocks below in order; ``lead`` is text before the first, such as a list's number.

    Inline elements are text of the paragraph around them.
    """
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
