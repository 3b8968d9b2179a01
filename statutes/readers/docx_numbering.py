"""List numbering of Word documents: labels such as "Artículo 1." and "I." that Word prints and does not store."""

from collections.abc import Callable
from dataclasses import dataclass

from statutes.readers.xml_tree import Element

MAX_LEVELS = 9
MAX_LABEL_CHARS = 255  # Word's limit
_ROMAN = ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"),
          (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))  # fmt: skip


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
