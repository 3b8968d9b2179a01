"""Reader of Word documents, whose numbered lists are labelled as Word prints them: "Artículo 1.", "I."."""

import io
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from statutes.readers.xml_tree import Element, Unreadable, parse_xml
from statutes.structure.builder import build_law
from statutes.structure.model import CanonicalLaw, Line, Place

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
MAX_LEVELS = 9
MAX_LABEL_CHARS = 255  # Word's limit
_ROMAN = ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"),
          (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))  # fmt: skip


def read_docx(content: bytes) -> CanonicalLaw:
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


@dataclass(frozen=True, slots=True)
class _Level:
    pattern: str  # "Artículo %1."
    render: Callable[[int], str]
    start: int
    style: str  # whose paragraphs have this level


class ListNumbering:
    """Counts the numbered paragraphs of one document, in order. Lists of one definition share their counts."""

    def __init__(self, numbering: Element | None, styles: Element | None) -> None:
        definitions = {attribute(one, "abstractNumId"): _levels(one) for one in _children(numbering, "abstractnum")}
        lists = {attribute(one, "numId"): one for one in _children(numbering, "num")}
        self._definition_ids = {number: _val(one.child("abstractnumid")) for number, one in lists.items()}
        self._levels = {number: definitions.get(pk, {}) for number, pk in self._definition_ids.items()}
        self._restarts = {number: _restarts(one) for number, one in lists.items()}
        self._styles = {attribute(style, "styleId"): style for style in _children(styles, "style")}
        self._counts: dict[str, list[int]] = {}

    def label(self, paragraph: Element) -> str:
        """Return the label of the next paragraph with a space, or "" for one without a number."""
        number, level = _list_and_level(paragraph) or self._list_of_style(_val(_property(paragraph, "pstyle")))
        levels = self._levels.get(number, {})
        if level not in levels:
            return ""
        counts = self._counts.setdefault(self._definition_ids[number], [0] * MAX_LEVELS)
        for restarted, start in self._restarts.pop(number, {}).items():
            counts[restarted:] = [start - 1, *[0] * (MAX_LEVELS - restarted - 1)]
        counts[level] = counts[level] + 1 if counts[level] else levels[level].start
        counts[level + 1 :] = [0] * (MAX_LEVELS - level - 1)
        text = levels[level].pattern
        for place, one in levels.items():
            text = text.replace(f"%{place + 1}", one.render(counts[place] or one.start))[:MAX_LABEL_CHARS]
        return f"{text} " if text.strip() else ""

    def _list_of_style(self, name: str) -> tuple[str, int]:
        first = name
        for _ in range(MAX_LEVELS):
            style = self._styles.get(name)
            if style is None:
                break
            if numbered := _list_and_level(style):
                number, level = numbered
                levels = self._levels.get(number, {})
                return number, next((at for at, one in levels.items() if one.style in (first, name)), level)
            name = _val(style.child("basedon"))
        return "", 0


def _levels(definition: Element) -> dict[int, _Level]:
    levels = {}
    for level in definition.children("lvl"):
        number, form = _integer(attribute(level, "ilvl")), _val(level.child("numfmt"))
        if number < MAX_LEVELS and form not in ("bullet", "none"):
            pattern, start = _val(level.child("lvltext"))[:MAX_LABEL_CHARS], _integer(_val(level.child("start")) or "1")
            levels[number] = _Level(pattern, _RENDERERS.get(form, str), start, _val(level.child("pstyle")) or "-")
    return levels


def _restarts(one: Element) -> dict[int, int]:
    starts = ((_integer(attribute(at, "ilvl")), at.child("startoverride")) for at in one.children("lvloverride"))
    return {level: _integer(_val(start)) for level, start in starts if start is not None and level < MAX_LEVELS}


def _list_and_level(element: Element) -> tuple[str, int] | None:
    numbering = _property(element, "numpr")
    if numbering is None:
        return None
    return _val(numbering.child("numid")), _integer(_val(numbering.child("ilvl")))


def _property(element: Element, name: str) -> Element | None:
    properties = element.child("ppr")
    return properties.child(name) if properties else None


def _children(element: Element | None, name: str) -> list[Element]:
    return list(element.children(name)) if element else []


def _val(element: Element | None) -> str:
    return attribute(element, "val") if element else ""


def attribute(element: Element, name: str) -> str:
    return next((text for key, text in element.attributes.items() if key.rpartition(":")[2] == name), "")


def _integer(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def _roman(number: int) -> str:
    numeral = ""
    for worth, letters in _ROMAN:
        numeral += letters * (number // worth)
        number %= worth
    return numeral


def _letter(number: int) -> str:
    """Return a to z, then aa to zz, as Word counts."""
    return chr(ord("a") + (number - 1) % 26) * min((number - 1) // 26 + 1, 9) if number else ""


_RENDERERS: dict[str, Callable[[int], str]] = {
    "upperRoman": _roman,
    "lowerRoman": lambda number: _roman(number).lower(),
    "upperLetter": lambda number: _letter(number).upper(),
    "lowerLetter": _letter,
    "ordinal": lambda number: f"{number}o",
    "decimalZero": lambda number: f"{number:02}",
}


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
