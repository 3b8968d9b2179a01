"""Reader of Word documents: each paragraph, table row and note is a line, a note below its reference."""

import io
import zipfile
import zlib
from collections.abc import Iterator

from statutes.errors import Unreadable
from statutes.readers.docx_numbering import ListNumbering, attribute
from statutes.readers.xml_tree import Element, parse_xml
from statutes.structure.builder import build_law
from statutes.structure.model import Law, Line, Place

BODY, RELATIONS = "word/document.xml", "_rels/.rels"
NUMBERING, STYLES = "numbering.xml", "styles.xml"
NOTES = {"footnotereference": ("footnotes.xml", "footnote"), "endnotereference": ("endnotes.xml", "endnote")}
LARGEST = 64 * 1024 * 1024  # unpacked
MAX_MEMBERS = 5_000
ARCHIVE_ERRORS = (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError, ValueError, OverflowError)
# Properties (whose tab stops are also called tabs), deleted and moved text, and fallbacks for old versions of Word.
INVISIBLE = frozenset({"ppr", "rpr", "tblpr", "trpr", "tcpr", "del", "movefrom", "fallback", "instrtext", "deltext"})
SPACES = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "nobreakhyphen": "-"}
FALSE = ("0", "false", "off")


def read_docx(content: bytes) -> Law:
    """Return the law of a DOCX, its places in characters of its text. Raises ``Unreadable``."""
    lines: list[Line] = []
    offset = 0
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for text in _paragraphs(_Archive(archive)):
                for number, line in enumerate(text.split("\n")):
                    if line.strip():
                        lines.append(Line(line, Place(offset, offset + len(line)), is_whole=not number))
                    offset += len(line) + 1
    except ARCHIVE_ERRORS:
        raise Unreadable("DOCX_TRUNCATED") from None
    return build_law(lines)


class _Archive:
    """The XML members of the archive, up to a total size: its own headers are not trusted."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        if len(archive.infolist()) > MAX_MEMBERS:
            raise Unreadable("DOCX_TOO_LARGE")
        self._archive = archive
        self._left = LARGEST

    def body(self) -> tuple[str, Element]:
        """Return the folder of the document's members, and its main element."""
        relations = self.member(RELATIONS)
        names = (
            relation.attributes.get("Target", BODY).lstrip("/")
            for relation in (relations.children() if relations else ())
            if relation.attributes.get("Type", "").endswith("/officeDocument")
        )
        name = next(names, BODY)
        root = self.member(name)
        if root is None or root.name != "document":
            raise Unreadable("NOT_DOCX")
        return name.rpartition("/")[0], root

    def member(self, name: str) -> Element | None:
        try:
            file = self._archive.open(name)
        except KeyError:
            return None
        except RuntimeError:  # zipfile's error for a member with a password
            raise Unreadable("DOCX_ENCRYPTED") from None
        with file:
            content = file.read(self._left + 1)
        self._left -= len(content)
        if self._left < 0:
            raise Unreadable("DOCX_TOO_LARGE")
        try:
            return parse_xml(content)
        except Unreadable as refused:
            raise Unreadable("DOCX_TRUNCATED") if refused.code == "NOT_XML" else refused from None


def _paragraphs(archive: _Archive) -> Iterator[str]:
    folder, root = archive.body()
    numbering = ListNumbering(archive.member(f"{folder}/{NUMBERING}"), archive.member(f"{folder}/{STYLES}"))
    notes: dict[tuple[str, str], str] = {}
    for reference, (name, note_name) in NOTES.items():
        part = archive.member(f"{folder}/{name}")
        for note in part.children(note_name) if part else ():
            words = " ".join(map(_text, note.descendants("p"))).split()
            notes[reference, attribute(note, "id")] = " ".join(words)
    body = root.child("body")
    for element in body.descendants("p", "tr") if body else ():
        if element.name == "tr":
            yield from _row(element, numbering)
        else:
            yield f"{numbering.label(element)}{_text(element)}"
        for reference_element in element.descendants(*NOTES, *INVISIBLE):
            if text := notes.get((reference_element.name, attribute(reference_element, "id"))):
                yield f"[{text}]"


def _row(row: Element, numbering: ListNumbering) -> Iterator[str]:
    """Yield a row's cells as one text; a row of one cell only frames the law's paragraphs."""
    cells = [
        [f"{numbering.label(paragraph)}{_text(paragraph)}" for paragraph in cell.descendants("p")]
        for cell in row.descendants("tc")
        if _text(cell).strip()
    ]
    if len(cells) == 1:
        yield from cells[0]
    elif cells:
        yield " | ".join(" ".join(" ".join(cell).split()) for cell in cells)


def _text(element: Element) -> str:
    return "".join(_runs(element))


def _runs(element: Element) -> Iterator[str]:
    for child in element.children():
        if child.name in SPACES:
            yield SPACES[child.name]
        elif child.name == "t":
            yield child.raw()
        elif child.name == "p":  # of a floating text box
            yield f" {_text(child)} "
        elif child.name not in INVISIBLE:
            properties = child.child("rpr") if child.name == "r" else None
            vanish = properties.child("vanish") if properties else None
            if vanish is None or attribute(vanish, "val") in FALSE:
                yield from _runs(child)
