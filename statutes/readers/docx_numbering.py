"""Numbers that Word prints and does not write: "Artículo 1." and "I." may be in no text of the file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from statutes.readers.xml_tree import Element

DEEPEST = 9  # levels of a list
LONGEST = 255  # characters of a number: Word writes no longer one
_ROMAN = ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"),
          (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Level:
    pattern: str  # "Artículo %1."
    written: Callable[[int], str]
    start: int
    style: str  # whose paragraphs are of this level


class ListNumbering:
    """Counts the numbered paragraphs of one document, in their order. Lists that are made alike go on counting."""

    def __init__(self, numbering: Element | None, styles: Element | None) -> None:
        lists = {attribute(one, "abstractNumId"): _levels(one) for one in _children(numbering, "abstractnum")}
        self._made = {
            attribute(one, "numId"): _value(one.child("abstractnumid")) for one in _children(numbering, "num")
        }
        self._lists = {number: lists.get(made, {}) for number, made in self._made.items()}
        self._begins = {attribute(one, "numId"): _overrides(one) for one in _children(numbering, "num")}
        self._styles = {attribute(style, "styleId"): style for style in _children(styles, "style")}
        self._counts: dict[str, list[int]] = {}

    def label(self, paragraph: Element) -> str:
        """Return what stands before a paragraph, with a space, or nothing."""
        style = _value(_property(paragraph, "pstyle"))
        number, level = _numbered(paragraph) or self._of_style(style)
        levels = self._lists.get(number, {})
        if level not in levels:
            return ""
        counts = self._counts.setdefault(self._made[number], [0] * DEEPEST)
        for at, start in self._begins.pop(number, {}).items():
            counts[at:] = [start - 1, *[0] * (DEEPEST - at - 1)]
        counts[level] = counts[level] + 1 if counts[level] else levels[level].start
        counts[level + 1 :] = [0] * (DEEPEST - level - 1)
        text = levels[level].pattern
        for place, one in levels.items():
            text = text.replace(f"%{place + 1}", one.written(counts[place] or one.start))[:LONGEST]
        return f"{text} " if text.strip() else ""

    def _of_style(self, name: str) -> tuple[str, int]:
        """Return the list and the level that a style gives, or one that it is based on."""
        first = name
        for _ in range(DEEPEST):
            style = self._styles.get(name)
            if style is None:
                break
            if found := _numbered(style):
                levels = self._lists.get(found[0], {})
                return found[0], next((at for at, level in levels.items() if level.style in (first, name)), found[1])
            name = _value(style.child("basedon"))
        return "", 0


def _levels(one: Element) -> dict[int, _Level]:
    found = {}
    for level in one.children("lvl"):
        number, form = _whole(attribute(level, "ilvl")), _value(level.child("numfmt"))
        if number < DEEPEST and form not in ("bullet", "none"):
            pattern, start = _value(level.child("lvltext"))[:LONGEST], _whole(_value(level.child("start")) or "1")
            found[number] = _Level(pattern, _WRITTEN.get(form, str), start, _value(level.child("pstyle")) or "-")
    return found


def _overrides(one: Element) -> dict[int, int]:
    """Return where a list begins anew, by level."""
    starts = ((_whole(attribute(at, "ilvl")), at.child("startoverride")) for at in one.children("lvloverride"))
    return {level: _whole(_value(start)) for level, start in starts if start is not None and level < DEEPEST}


def _numbered(element: Element) -> tuple[str, int] | None:
    found = _property(element, "numpr")
    if found is None:
        return None
    return _value(found.child("numid")), _whole(_value(found.child("ilvl")))


def _property(element: Element, name: str) -> Element | None:
    properties = element.child("ppr")
    return properties.child(name) if properties else None


def _children(element: Element | None, name: str) -> list[Element]:
    return list(element.children(name)) if element else []


def _value(element: Element | None) -> str:
    return attribute(element, "val") if element else ""


def attribute(element: Element, name: str) -> str:
    return next((said for key, said in element.attributes.items() if key.rpartition(":")[2] == name), "")


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def _roman(number: int) -> str:
    made = ""
    for worth, letters in _ROMAN:
        made += letters * (number // worth)
        number %= worth
    return made


def _letter(number: int) -> str:
    """a to z, then aa to zz, as Word counts."""
    return chr(ord("a") + (number - 1) % 26) * min((number - 1) // 26 + 1, 9) if number else ""


_WRITTEN: dict[str, Callable[[int], str]] = {
    "upperRoman": _roman,
    "lowerRoman": lambda number: _roman(number).lower(),
    "upperLetter": lambda number: _letter(number).upper(),
    "lowerLetter": _letter,
    "ordinal": lambda number: f"{number}o",
    "decimalZero": lambda number: f"{number:02}",
}
