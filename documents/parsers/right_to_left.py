"""Right-to-left scripts: words whose letters PDFium returns from left to right, put in order by their places."""

import re
import unicodedata
from typing import Any

SHARE = 0.3  # of the letters: a line of Arabic at the foot of an English page must not cost the page its headings
SAME_PLACE = 0.5  # points: the letters of a ligature, in order already
LETTER = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\U00010800-\U00010fff\U0001e800-\U0001efff]")
_WORD = re.compile(r"\S+")
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


def _order_letters(text_page: Any, word: re.Match[str]) -> str:
    is_reversed, is_latin = LETTER.search(word[0]), _LATIN.search(word[0])
    if bool(is_reversed) == bool(is_latin) or (is_reversed and _DIGIT.search(word[0])):
        return word[0]  # both, or figures, which keep their order
    places: list[tuple[float, str]] = []  # of letters with their marks
    for index, character in enumerate(word[0], word.start()):
        left, _, right, _ = text_page.get_charbox(index)
        x = (left + right) / 2
        is_joined = places and (unicodedata.combining(character) or abs(places[-1][0] - x) < SAME_PLACE)
        if is_joined:
            places[-1] = places[-1][0], places[-1][1] + character
        else:
            places.append((x, character))
    return "".join(letters for _, letters in sorted(places, key=lambda place: place[0], reverse=is_latin is None))
