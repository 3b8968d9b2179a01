"""Word documents: each paragraph and each table's row is a line, and so is each note, below what it is a note to."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping

from statutes.errors import Unreadable
from statutes.readers.docx_numbering import ListNumbering, attribute
from statutes.readers.xml_tree import Element, parse_xml
from statutes.structure.builder import build_law
from statutes.structure.model import Law, Line, Place

BODY, RELATIONS = "word/document.xml", "_rels/.rels"
NUMBERING, STYLES = "numbering.xml", "styles.xml"
NOTES = {"footnotereference": ("footnotes.xml", "footnote"), "endnotereference": ("endnotes.xml", "endnote")}
LARGEST = 64 * 1024 * 1024  # unpacked
MOST_MEMBERS = 5_000
BROKEN = (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError, ValueError, OverflowError)
# Properties (tab stops are called tabs too), struck and moved text, and what old versions show instead of the new.
UNSEEN = frozenset({"ppr", "rpr", "tblpr", "trpr", "tcpr", "del", "movefrom", "fallback", "instrtext", "deltext"})
SPACES = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "nobreakhyphen": "-"}
OFF = ("0", "false", "off")


def read_docx(content: bytes) -> Law:
    """Return the law of a DOCX, its places in characters of its text. Raises ``Unreadable``."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            lines = list(_lines(_Parts(archive)))
    except BROKEN:
        raise Unreadable("DOCX_TRUNCATED") from None
    return build_law(lines)


class _Parts:
    """The members of the archive that are read, up to a size: what it says of itself is not believed."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        if len(archive.infolist()) > MOST_MEMBERS:
            raise Unreadable("DOCX_TOO_LARGE")
        self._archive = archive
        self._left = LARGEST

    def body(self) -> tuple[str, Element]:
        """Return the folder of the document's parts, and its text."""
        name = self._main()
        found = self.part(name)
        if found is None or found.name != "document":
            raise Unreadable("NOT_DOCX")
        return name.rpartition("/")[0], found

    def part(self, name: str) -> Element | None:
        try:
            member = self._archive.open(name)
        except KeyError:
            return None
        except RuntimeError:  # what zipfile raises for a member with a password
            raise Unreadable("DOCX_ENCRYPTED") from None
        with member:
            content = member.read(self._left + 1)
        self._left -= len(content)
        if self._left < 0:
            raise Unreadable("DOCX_TOO_LARGE")
        return _parsed(content)

    def _main(self) -> str:
        relations = self.part(RELATIONS)
        for relation in relations.children() if relations else ():
            if relation.attributes.get("Type", "").endswith("/officeDocument"):
                return relation.attributes.get("Target", BODY).lstrip("/")
        return BODY


def _parsed(content: bytes) -> Element:
    try:
        return parse_xml(content)
    except Unreadable as refused:
        raise Unreadable("DOCX_TRUNCATED") if refused.code == "NOT_XML" else refused from None


def _lines(parts: _Parts) -> Iterator[Line]:
    at = 0
    for text in _paragraphs(parts):
        for number, line in enumerate(text.split("\n")):
            if line.strip():
                yield Line(line, Place(at, at + len(line)), is_whole=not number)
            at += len(line) + 1


def _paragraphs(parts: _Parts) -> Iterator[str]:
    folder, root = parts.body()
    numbers = ListNumbering(parts.part(f"{folder}/{NUMBERING}"), parts.part(f"{folder}/{STYLES}"))
    notes = {kind: _notes(parts.part(f"{folder}/{name}"), note) for kind, (name, note) in NOTES.items()}
    body = root.child("body")
    for element in body.descendants("p", "tr") if body else ():
        if element.name == "tr":
            yield from _row(element, numbers)
        else:
            yield f"{numbers.label(element)}{_text(element)}"
        yield from _told(element, notes)


def _row(row: Element, numbers: ListNumbering) -> Iterator[str]:
    """Yield a row's cells as one text; a table that only frames its text has one, whose paragraphs are the law's."""
    cells = [
        [f"{numbers.label(p)}{_text(p)}" for p in cell.descendants("p")]
        for cell in row.descendants("tc")
        if _text(cell).strip()
    ]
    if len(cells) == 1:
        yield from cells[0]
    elif cells:
        yield " | ".join(" ".join(" ".join(cell).split()) for cell in cells)


def _notes(part: Element | None, name: str) -> dict[str, str]:
    """Return the texts of a document's notes by their ids."""
    notes = part.children(name) if part else ()
    return {attribute(note, "id"): " ".join(" ".join(map(_text, note.descendants("p"))).split()) for note in notes}


def _told(element: Element, notes: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    for reference in element.descendants(*NOTES, *UNSEEN):
        if text := notes.get(reference.name, {}).get(attribute(reference, "id")):
            yield f"[{text}]"


def _text(element: Element) -> str:
    return "".join(_runs(element))


def _runs(element: Element) -> Iterator[str]:
    for child in element.children():
        if child.name in SPACES:
            yield SPACES[child.name]
        elif child.name == "t":
            yield child.raw()
        elif child.name == "p":  # of a box that floats beside the text
            yield f" {_text(child)} "
        elif child.name not in UNSEEN and not _is_hidden(child):
            yield from _runs(child)


def _is_hidden(run: Element) -> bool:
    properties = run.child("rpr") if run.name == "r" else None
    hidden = properties.child("vanish") if properties else None
    return hidden is not None and attribute(hidden, "val") not in OFF
