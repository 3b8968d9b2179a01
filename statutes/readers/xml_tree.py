"""XML parser: a small element tree with byte offsets. Entities are refused before they are expanded or fetched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn
from xml.parsers import expat

MAX_DEPTH, MAX_ELEMENTS = 100, 1_000_000  # elements; a law of 1,000 pages has 300,000, and a million take 300 MB
SOFT_HYPHEN = "\xad"  # invisible, and no search finds a word that contains it
OUT_OF_MEMORY = expat.errors.codes[expat.errors.XML_ERROR_NO_MEMORY]
# Inside a word or a sentence: no space separates their text.
INLINE = frozenset((
    "a", "abbr", "abbreviation", "acronym", "addition", "b", "big", "citation", "date", "def", "docdate", "docnumber",
    "doctitle", "doctype", "em", "emphasis", "entity", "externallink", "font", "i", "inline", "ins", "internallink",
    "italic", "location", "mod", "mref", "noteref", "organization", "person", "quantity", "quotedtext", "ref", "role",
    "rref", "s", "sc", "shorttitle", "small", "smallcaps", "span", "strike", "strong", "sub", "substitution", "sup",
    "superscript", "term", "tt", "u", "underline",
))  # fmt: skip


class Unreadable(Exception):
    """A file that no later attempt can read. ``code`` is in ``statutes.error_codes``, which a child cannot import."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(slots=True)
class Element:
    """Lower-case name without namespace, texts and elements in order, bytes of the opening and the closing tag."""

    name: str
    attributes: dict[str, str]
    start: int
    end: int = 0
    pieces: list[str | Element] = field(default_factory=list)

    def children(self, *names: str) -> Iterator[Element]:
        for piece in self.pieces:
            if isinstance(piece, Element) and (not names or piece.name in names):
                yield piece

    def child(self, *names: str) -> Element | None:
        return next(self.children(*names), None)

    def descendants(self, *names: str) -> Iterator[Element]:
        """Yield the descendants of these names, but none within another."""
        for child in self.children():
            if child.name in names:
                yield child
            else:
                yield from child.descendants(*names)

    def has(self, *names: str) -> bool:
        return any(True for _ in self.descendants(*names))

    def length_within(self, most: int) -> bool:
        """Tell whether the text has at most so many characters, without reading more of it."""
        for text in self._texts(frozenset()):
            most -= len(text)
            if most < 0:
                return False
        return True

    def text(self, *, without: frozenset[str] = frozenset()) -> str:
        """Return the text of all descendants but those of ``without``, one space between words."""
        return " ".join(self.raw(without=without).split())

    def raw(self, *, without: frozenset[str] = frozenset()) -> str:
        return "".join(self._texts(without))

    def _texts(self, without: frozenset[str]) -> Iterator[str]:
        for piece in self.pieces:
            if isinstance(piece, str):
                yield piece
            elif piece.name in INLINE:
                yield from piece._texts(without)
            else:
                yield " "
                if piece.name not in without:
                    yield from piece._texts(without)
                yield " "


def parse_xml(content: bytes) -> Element:
    """Return the root. Raises ``Unreadable``: NOT_XML, XML_ENTITY_REFUSED, XML_TOO_DEEP, XML_TOO_LARGE."""
    return _Reader().read(content)


class _Reader:
    def __init__(self) -> None:
        self._root = Element("", {}, 0)
        self._open = [self._root]
        self._count = 0
        self._parser: Any = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._begin
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.StartDoctypeDeclHandler = _doctype
        self._parser.EntityDeclHandler = _refuse
        self._parser.UnparsedEntityDeclHandler = _refuse
        self._parser.ExternalEntityRefHandler = _refuse
        self._parser.SkippedEntityHandler = _refuse  # of an external DTD: its text would be missing
        self._parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)

    def read(self, content: bytes) -> Element:
        try:
            self._parser.Parse(content, True)
        except expat.ExpatError as error:
            if error.code == OUT_OF_MEMORY:
                raise MemoryError from None
            raise Unreadable("NOT_XML") from None
        except (LookupError, ValueError, OSError):  # an unknown encoding, or one that was not loaded in time
            raise Unreadable("NOT_XML") from None
        finally:
            self._parser = None  # breaks the reference cycle that holds the tree
        root = self._root.child()
        if root is None:
            raise Unreadable("NOT_XML")
        return root

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if len(self._open) > MAX_DEPTH:
            raise Unreadable("XML_TOO_DEEP")
        if self._count > MAX_ELEMENTS:
            raise Unreadable("XML_TOO_LARGE")
        element = Element(name.rpartition(":")[2].lower(), attributes, self._parser.CurrentByteIndex)
        self._open[-1].pieces.append(element)
        self._open.append(element)

    def _end(self, name: str) -> None:
        self._open.pop().end = self._parser.CurrentByteIndex

    def _text(self, text: str) -> None:
        self._open[-1].pieces.append(text.replace(SOFT_HYPHEN, ""))


def _doctype(name: str, system_id: str | None, public_id: str | None, has_internal_subset: int) -> None:
    if has_internal_subset:
        raise Unreadable("XML_ENTITY_REFUSED")


def _refuse(*_: Any) -> NoReturn:
    raise Unreadable("XML_ENTITY_REFUSED")
