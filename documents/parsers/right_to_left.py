"""Right-to-left scripts: words whose letters PDFium returns from left to right, put in order by their places; tables.

Boxes are mirrored, so that the first column of a table is the one on the right.
"""

import re
import unicodedata
from typing import Any

from documents.parsers import liteparse_pages
from documents.parsers.liteparse_pages import PageLayout
from documents.parsers.reading_order import Region
from documents.parsers.table_grids import Box, Word, bounds

SHARE = 0.3  # of the letters: a line of Arabic at the foot of an English page must not cost the page its headings
NEAR = 0.7  # of a word's height, to the next word
SAME_PLACE = 0.5  # points: the letters of a ligature, in order already
LETTER = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\U00010800-\U00010fff\U0001e800-\U0001efff]")
_WORD = re.compile(r"\S+")
_EMPTY_LINES = re.compile(r"\n{3,}")
_PIECE = re.compile(r"\S+|\n")
_LATIN = re.compile(r"[A-Za-z]")
_DIGIT = re.compile(r"\d")  # Arabic ones, too, are written from the left


def is_right_to_left(text: str) -> bool:
    """Tell whether a page is written from right to left."""
    if not LETTER.search(text):
        return False
    letters = [character for character in text if character.isalpha()]
    reversed_ = sum(unicodedata.bidirectional(character) in ("R", "AL") for character in letters)
    return bool(letters) and reversed_ >= SHARE * len(letters)


def read_words(text_page: Any) -> str:
    """Return the text of a page, each right-to-left word from its rightmost letter on, Latin ones from the leftmost."""
    text = text_page.get_text_range()
    if len(text) != text_page.count_chars():  # letters that are no single character: their places are not known
        return str(text)
    return _WORD.sub(lambda word: _order_letters(text_page, word), text)


def render_page(text_page: Any, height: float, layout: PageLayout) -> str | None:
    """Return the page with its tables and headings; None where the places of its letters are not known."""
    lines = _place_words(text_page, height)
    if lines is None:
        return None
    headings = [(_mirror(heading), max(heading.level, 1)) for heading in layout.headings()]
    tables = liteparse_pages.find_tables(
        [word for line in lines for word in line],
        [_mirror(rule) for rule in layout.rules()],
        [box for box, _ in headings],
    )
    parts: list[str] = []
    seen: set[int] = set()
    for line in lines:
        rest: list[Word] = []
        for word in line:
            table = next((n for n, table in enumerate(tables) if table.box.contains(word.box.center)), None)
            if table is None:
                rest.append(word)
            elif table not in seen:
                seen.add(table)
                parts.append(f"\n{liteparse_pages.render_table(tables[table].rows)}\n")
        if rest or not line:
            level = next((level for box, level in headings if all(box.contains(w.box.center) for w in rest)), 0)
            text = " ".join(word.text for word in rest)
            parts.append(f"\n{'#' * level} {text}\n" if rest and level else text)
    return _EMPTY_LINES.sub("\n\n", "\n".join(parts)).strip("\n")


def _place_words(text_page: Any, height: float) -> list[list[Word]] | None:
    """Return the words of each line in PDFium's order."""
    text = text_page.get_text_range()
    if len(text) != text_page.count_chars():
        return None
    lines: list[list[Word]] = [[]]
    for piece in _PIECE.finditer(text):
        if piece[0] == "\n":
            lines.append([])
            continue
        places = [text_page.get_charbox(index) for index in range(*piece.span())]
        box = bounds([Box(-right, height - top, -left, height - bottom) for left, bottom, right, top in places])
        lines[-1].append(Word(_order_letters(text_page, piece), box))
    return [_order_latin(line) for line in lines]


def _order_latin(line: list[Word]) -> list[Word]:
    """Return the words, Latin ones that stand side by side from the leftmost on, and their places turned round."""
    runs: list[list[Word]] = []
    for word in line:
        if runs and _are_latin_neighbors(runs[-1][-1], word):
            runs[-1].append(word)
        else:
            runs.append([word])
    return [word for run in runs for word in _turn(run)]


def _are_latin_neighbors(one: Word, two: Word) -> bool:
    height = max(one.box.height, two.box.height)
    gap = max(one.box.x0, two.box.x0) - min(one.box.x1, two.box.x1)
    is_beside = abs(one.box.center[1] - two.box.center[1]) < NEAR * height
    return bool(_LATIN.match(one.text) and _LATIN.match(two.text)) and is_beside and gap < NEAR * height


def _turn(words: list[Word]) -> list[Word]:
    around = bounds([word.box for word in words])
    ends = around.x0 + around.x1
    ordered = sorted(words, key=lambda word: -word.box.x1)
    return [Word(text, Box(ends - x1, y0, ends - x0, y1)) for text, (x0, y0, x1, y1) in ordered]


def _mirror(box: Box | Region) -> Box:
    return Box(-box.x1, box.y0, -box.x0, box.y1)


def _order_letters(text_page: Any, word: re.Match[str]) -> str:
    is_reversed, is_latin = LETTER.search(word[0]), _LATIN.search(word[0])
    if bool(is_reversed) == bool(is_latin) or (is_reversed and _DIGIT.search(word[0])):
        return word[0]  # both, or figures, which keep their order
    places: list[tuple[float, str]] = []  # of letters with their marks
    boxes = [text_page.get_charbox(index) for index in range(*word.span())]
    if is_latin and _is_rotated(boxes):
        return word[0]
    for character, (left, _, right, _) in zip(word[0], boxes, strict=True):
        x = (left + right) / 2
        is_joined = places and (unicodedata.combining(character) or abs(places[-1][0] - x) < SAME_PLACE)
        if is_joined:
            places[-1] = places[-1][0], places[-1][1] + character
        else:
            places.append((x, character))
    return "".join(letters for _, letters in sorted(places, key=lambda place: place[0], reverse=is_latin is None))


def _is_rotated(boxes: list[tuple[float, float, float, float]]) -> bool:
    """Tell whether the letters stand above each other."""
    lefts, bottoms, _, _ = zip(*boxes, strict=True)
    return bool(max(lefts) - min(lefts) < 0.5 * (max(bottoms) - min(bottoms)))
