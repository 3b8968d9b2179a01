"""Unreadable text in pages: fonts without Unicode, wrong encodings, glued, split and mirrored words.

No dictionary and no language: statistics of characters and of pairs of characters, 0.04 to 0.1 ms a page.
"""

import codecs
import re
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product

SAMPLE = 2_000  # characters of a page that are judged: half of them from its end
MIN_CHARACTERS = 40  # below, nothing can be said
MIN_REGION = 400  # characters of a part of a page that is judged by itself
# Pairs of letters
MIN_PAIRS = 50
MIN_LATIN_SHARE = 0.3  # of the pairs: a Chinese page has acronyms, a page of figures has units
MAX_SURPRISE = 5.2  # bits a pair: 400 characters of 40 languages have 3.5 to 4.8, substituted letters 5.0 to 7.0
MIXED_SURPRISE = 4.0  # bits, if symbols stand in words as well
MIXED_SHARE = 0.15
SLACK = 12  # bits: the mean of few pairs varies
MIRRORED_RATIO = 3.0  # of lower before upper case, to upper before lower: words begin with a capital
MIN_MIRRORED = 8
# Spaces
GLUED_LETTERS, SPLIT_LETTERS = 20, 2.0  # a word: German has 5 to 8, Vietnamese 3.3
MIN_GLUED_SPACING, MIN_GLUED_SHARE = 14, 0.25  # characters a space; letters in glued words
MIN_SPACED_LETTERS = 200
# Codes
MIN_ALPHABET = 12  # answer keys and genes have fewer letters
BASE64_CASES, BASE64_DIGITS = 0.35, 0.08  # least of upper and of lower case, and digits: 0.42, 0.42, 0.16
# Characters beyond ASCII
MIRRORED_SAMPLE, FOREIGN_SAMPLE = 1_500, 600  # characters: expressions and Unicode's tables are slower
FOREIGN_SHARE = 0.15  # of a page, below which only its ASCII text is judged
LOST, LOST_SHARE = "LOST", 0.3  # private use, unassigned, U+FFFD
MOJIBAKE_SHARE = 0.4  # of Latin-1 beyond ASCII: Vietnamese has a tenth
JUMBLED_SHARE = 0.15  # of neighbouring letters

# Surprise in bits (a hexadecimal digit) of the second letter after the first, both in the order of ALPHABET: the mean
# of 41 languages that are written in Latin letters, learnt from the translations of Django and its messages.
ALPHABET = " abcdefghijklmnopqrstuvwxyz"
SURPRISE = (
    "f44544555465544547644556a66", "266558766565353769344667976", "436ba3fc536a4873bf3694aaf5d",
    "43b6e3ff23a58aa3bf7445e9f57", "32bc62a953698754af579489f78", "25655676757545376a344778876",
    "33afa37a637a6b92bc4765dbe8c", "336a939653795a63bf567397f5a", "329b829d53876683db784578f6f",
    "357554657865353568544767986", "42ff839bf4797864bf936389e7a", "335893da53866584af654477f69",
    "338a53a6826846749ca55499f6c", "325b92aa637975845f978498f9f", "2396437473677954bca54578f59",
    "26665675866545366b345656987", "4277a397658858735f365558f8c", "77bfb6fff6bf1f98fb9d91fffff",
    "23685377838665749a655468c67", "2396939a5384587459753588e77", "33998389539878648f465488967",
    "35676495856544375a444498986", "41b892c9a3896b64fb68968ff8b", "12e8c3e965acae73af85b6fdf7c",
    "45f8a3af52ff9af76bf839cfeaf", "23776568879647454f664787c48", "235673f6738877549fb78489f87",
)  # fmt: skip

# Classes of characters beside letters
OTHER, SYMBOL = "?#"
SYMBOLS = "!#$%&+;:@]^}~"  # those of Markdown and of HTML are left out
BASES = {"ß": "s", "æ": "a", "ø": "o", "ð": "d", "þ": "t", "Æ": "A", "Ø": "O", "Ð": "D", "Þ": "T"}
BITS = 12  # of a counter, for SAMPLE: five are in one number, which must stay below 64 bits, where Python adds fast

# Writing systems that share words or formulas, by the first word of a character's name in Unicode.
SCRIPTS = dict.fromkeys(("GREEK", "MATHEMATICAL", "DOUBLE-STRUCK", "SCRIPT", "BLACK-LETTER", "MICRO"), "LATIN") | (
    dict.fromkeys(
        (
            "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO", "KANGXI", "IDEOGRAPHIC", "FULLWIDTH",
            "HALFWIDTH", "VERTICAL",
        ),
        "CJK",
    )
)  # fmt: skip
RARE_LATIN = re.compile("[\u0180-\u019f\u01a2-\u01ae\u01b1-\u01cc\u01dd-\u0217\u021c-\u02af]")
# Letters of scripts that separate words by spaces.
_LOWER = r"a-z\xdf-\xf6\xf8-\xff\u0101-\u024f\u03ac-\u03ff\u0430-\u06ff\u1e00-\u1fff"
_UPPER = r"A-Z\xc0-\xd6\xd8-\xde\u0391-\u03ab\u0410-\u042f"
_WORD = re.compile(rf"(?<!\S)[{_LOWER}{_UPPER}]+(?=[.,;:!?)]*(?:\s|$))")
# Digits and capitals that begin no word (codes, addresses, hashes) end a run; German nouns do not.
_RUN = re.compile(rf"[{_LOWER}](?:[{_LOWER}]|[{_UPPER}](?=[{_LOWER}]{{2}}))*|[{_UPPER}]+")
# Hebrew, Arabic and Greek letters that stand only at the end of a word, and capitals at its beginning.
_FINAL = "[\u05da\u05dd\u05df\u05e3\u05e5\u0629\u0649\u03c2]"
_CAPITAL, _SMALL = "[\u0391-\u03ab\u0400-\u042f]", "[\u03ac-\u03ce\u0430-\u045f]"
_FORWARD = re.compile(rf"\w{_FINAL}\b|\b{_CAPITAL}{_SMALL}")
_BACKWARD = re.compile(rf"\b{_FINAL}\w|{_SMALL}{_CAPITAL}\b")


_REGION = re.compile(rf".{{{MIN_REGION},{2 * MIN_REGION}}}?(?:\n+|\Z)|.{{{MIN_REGION}}}\S*\s*|.+", re.DOTALL)

codecs.lookup("cp1252")  # Python loads codecs from files, and the child may open none


def _fold(code: int) -> str:
    """Return a Latin-1 character's class, one of CLASSES: its letter without an accent, OTHER, SYMBOL or a space."""
    character = chr(code)
    letter = BASES.get(character) or unicodedata.normalize("NFD", character)[0]
    if letter.isascii() and letter.isalpha():
        return letter
    if character.isdigit() or character == "?" or code >= 0x7F:
        return OTHER
    return SYMBOL if character in SYMBOLS else " "


def _weigh(one: str, two: str) -> int:
    """Return the counters of a pair: pairs, symbol before letter, upper before lower case, lower before upper, bits."""
    order = one == SYMBOL and two.isalpha(), one.isupper() and two.islower(), one.islower() and two.isupper()
    places = [ALPHABET.find(" " if each == SYMBOL else each.lower()) for each in (one, two)]  # -1 of OTHER
    is_judged = min(places) >= 0 and max(places) > 0  # not two spaces
    bits = int(SURPRISE[places[0]][places[1]], 16) if is_judged else 0
    return sum(int(value) << BITS * place for place, value in enumerate((is_judged, *order, bits)))


CLASSES = OTHER + SYMBOL + ALPHABET + ALPHABET[1:].upper()
_CLASS_NUMBERS = bytes(CLASSES.index(_fold(code)) for code in range(256))
_WEIGHTS = [0] * (len(CLASSES) << 8)
for (_one, _first), (_two, _second) in product(enumerate(CLASSES), repeat=2):
    _WEIGHTS[int.from_bytes(bytes((_one, _two)), sys.byteorder)] = _weigh(_first, _second)
# Bytes of Windows-1252 that prove nothing: ASCII, quotation marks, dashes, bullets, and what leaders and rules repeat.
_NO_MOJIBAKE = bytes(range(0x80)) + bytes.fromhex("80 85 91 92 93 94 95 96 97 99 a0 a8 ad af b0 b7")


@dataclass(frozen=True, slots=True)
class ReadableText:
    """Pages without their garbage: ``unreadable`` are the numbers, from 1, of those left "", ``partial`` of others."""

    pages: list[str]
    unreadable: list[int]
    partial: list[int]


def remove_unreadable(pages: Sequence[str]) -> ReadableText:
    """Remove garbage: regions of a page, or the whole page where these have half of its characters."""
    kept = [_readable_part(page) for page in pages]
    changed = [number for number, (text, page) in enumerate(zip(kept, pages, strict=True), 1) if text != page]
    unreadable = [number for number in changed if not kept[number - 1]]
    return ReadableText(kept, unreadable, [number for number in changed if number not in unreadable])


def _readable_part(page: str) -> str:
    kept = [region for region in _regions(page) if len(region) < MIN_REGION or is_readable(region)]
    text = "".join(kept)
    return text if len(text) > len(page) / 2 and is_readable(text) else ""


def _regions(page: str) -> list[str]:
    """Return pieces of a page, cut after a line or else after a word, a short rest with the one before."""
    regions: list[str] = _REGION.findall(page)
    if len(regions) > 1 and len(regions[-1]) < MIN_REGION:
        last = regions.pop()
        regions[-1] += last
    return regions


def is_readable(page: str) -> bool:
    text = page if len(page) <= SAMPLE else page[: SAMPLE // 2] + page[-SAMPLE // 2 :]
    if len(text) < MIN_CHARACTERS:
        return True
    latin = text.encode("latin-1", "replace")
    return not (_is_misprinted(latin) or _is_badly_spaced(text) or _is_misencoded(text)) or _is_code(text)


def _count_pairs(latin: bytes) -> list[int]:
    """Return the five counters of ``_weigh``, summed over every second pair of neighbours."""
    pairs = memoryview(latin.translate(_CLASS_NUMBERS))[: len(latin) & ~1].cast("H")
    total = sum(map(_WEIGHTS.__getitem__, pairs))
    return [*(total >> BITS * place & (1 << BITS) - 1 for place in range(4)), total >> BITS * 4]


def _is_misprinted(latin: bytes) -> bool:
    """Tell substituted letters and mirrored text by the pairs of characters at even places."""
    letters, mixed, forward, backward, bits = _count_pairs(latin)
    if letters < max(MIN_PAIRS, MIN_LATIN_SHARE * len(latin) / 2):
        return False
    if backward >= max(MIN_MIRRORED, MIRRORED_RATIO * forward):
        return True
    is_mixed = mixed >= MIXED_SHARE * (letters + mixed)
    return bits > (MIXED_SURPRISE if is_mixed else MAX_SURPRISE) * letters + SLACK


def _is_badly_spaced(text: str) -> bool:
    """Tell glued words ("Theplanpays") and split ones ("T h e p l a n"), in alphabets that separate words."""
    spaces = text.count(" ") + text.count("\n") + 1
    if SPLIT_LETTERS + 1.5 < len(text) / spaces < MIN_GLUED_SPACING:
        return False
    letters = sum(map(str.isalnum, text))
    if letters < MIN_SPACED_LETTERS:
        return False
    if len(text) >= MIN_GLUED_SPACING * spaces:
        glued = sum(len(run) for run in _RUN.findall(text) if len(run) >= GLUED_LETTERS)
        return glued >= MIN_GLUED_SHARE * letters
    words = _WORD.findall(text)
    return letters / 2 <= sum(map(len, words)) <= SPLIT_LETTERS * len(words)


def _is_code(text: str) -> bool:
    letters = sum(map(str.isalpha, text))
    if not letters or not text.isascii():
        return False
    if len(set(filter(str.isalpha, text.lower()))) < MIN_ALPHABET:
        return True
    cases, digits = (sum(map(str.isupper, text)), sum(map(str.islower, text))), sum(map(str.isdigit, text))
    return min(cases) >= BASE64_CASES * (letters + digits) and digits >= BASE64_DIGITS * (letters + digits)


def _is_misencoded(text: str) -> bool:
    """Tell a Chinese encoding taken for Latin-1, lost characters, glyph numbers taken for characters, mirrored text."""
    foreign = len(text) - len(text.encode("ascii", "ignore"))
    characters = len(text) - text.count(" ") - text.count("\n")
    if foreign < FOREIGN_SHARE * characters:
        return False
    if len(text.encode("cp1252", "replace").translate(None, _NO_MOJIBAKE)) >= MOJIBAKE_SHARE * characters:
        return True
    forward, backward = (len(ends.findall(text[:MIRRORED_SAMPLE])) for ends in (_FORWARD, _BACKWARD))
    if backward >= max(MIN_MIRRORED, MIRRORED_RATIO * forward):
        return True
    sample = text[:FOREIGN_SAMPLE]
    scripts = [_script(character) for character in sample]
    if scripts.count(LOST) >= LOST_SHARE * len(sample.replace(" ", "")):
        return True
    borders = [one == two for one, two in pairwise(scripts) if one and two]
    return len(borders) >= MIN_PAIRS and borders.count(False) >= JUMBLED_SHARE * len(borders)


@lru_cache(4_096)
def _script(character: str) -> str:
    """Return the writing system of a character, LOST for one without a meaning, "" for ASCII and what is no letter."""
    category = unicodedata.category(character)
    if category in ("Co", "Cn") or character == "\ufffd":
        return LOST
    if character.isascii() or category[0] not in "LM":
        return ""
    script = unicodedata.name(character, "").partition(" ")[0]
    if script in ("COMBINING", "MODIFIER"):
        return ""
    return "RARE" if RARE_LATIN.match(character) else SCRIPTS.get(script, script)
