"""What the headings of a rendered law say: the divisions that are open, and an article's id."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from statutes.structure.headings import number_key
from statutes.structure.patterns import GENERAL, PROVISIONS

LABEL_SEPARATOR = " — "  # an article's label and its own heading
_ANCHOR = re.compile(r" ?\{#([^{}\s]++)\}$")
_NOUN = re.compile(r"^(?:art[ií]culos?|articles?|art\.?|secci[oó]n|section|sec\.?|§{1,2})(?![a-z])\s*", re.I)
_TRANSITORY = re.compile(
    r"(?:(?:ART[IÍ]CULOS?|DISPOSICI[OÓ]N(?:ES)?|R[EÉ]GIMEN) )?"
    r"(?:TRANSITORI[OA]S?\b|T R A N S I T O R I [OA](?: S)?$|TRANSITIONAL PROVISIONS\b)",
    re.IGNORECASE,
)


def number_prefix(title: str) -> str:
    """Return what the numbers of articles in such a division begin with: "transitorio", "disposicion-final"."""
    if _TRANSITORY.match(title):
        return "transitorio"
    found = PROVISIONS.match(title) or GENERAL.match(title)
    return "-".join(map(_singular, number_key(found[1]).split("-"))) if found else ""


def prefixed_number(number: str, prefix: str) -> str:
    """Return an article's number within such a division; "Disposición final primera" says it all by itself."""
    if not prefix or number.startswith("disposicion-") or (prefix != "transitorio" and number[:1].isdigit()):
        return number
    return f"{prefix}-{number}"


def _singular(word: str) -> str:
    return word.removesuffix("es" if word.endswith(("ales", "ones")) else "s")


class Numbering:
    """The ids of a law's articles: what is transitory has numbers of its own, what repeats one is told apart."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def assign(self, number: str, prefix: str = "") -> tuple[str, str]:
        """Return an article's id and number; ``prefix`` is what ``within`` says of its division."""
        number = prefixed_number(number, prefix)
        self._seen[number] += 1
        again = self._seen[number]
        return (number if again == 1 else f"{number}~{again}"), number


def strip_anchor(title: str) -> str:
    """Return a heading as a citation shows it: without the id that it may carry."""
    return _ANCHOR.sub("", title)


@dataclass(slots=True)
class DivisionStack:
    """The divisions that the headings so far have opened, from the outside in."""

    levels: list[int] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)

    @property
    def innermost(self) -> str:
        return self.titles[-1] if self.titles else ""

    def enter(self, level: int, title: str) -> None:
        """Open what a heading begins; one without words only closes what is not above it."""
        while self.levels and self.levels[-1] >= level:
            self.levels.pop()
            self.titles.pop()
        if title:
            self.levels.append(level)
            self.titles.append(title)


class ArticleIds:
    """Tells the ids of one law's articles from their headings. Ask for all of them, in order: a number may return.

    The label says the number, as ``structure.building`` reads it; where it does not, the heading ends in ``{#id}``.
    """

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def next_id(self, title: str, division: str) -> str:
        """Return the id of the article under this heading; ``division`` is the title of what it stands in."""
        found, again = self._found(title, division)
        self._seen[found.partition("~")[0]] += 1
        return f"{found}~{again}" if again > 1 else found

    def heading_with_id(self, title: str, division: str, article_id: str) -> str:
        """Return the heading that ``read`` reads as this id: ``title``, with the id where it does not say it."""
        found, again = self._found(title, division)
        if (f"{found}~{again}" if again > 1 else found) != article_id:
            title = f"{title} {{#{article_id}}}".lstrip()
        self.next_id(title, division)
        return title

    def _found(self, title: str, division: str) -> tuple[str, int]:
        if anchor := _ANCHOR.search(title):
            return anchor[1], 1
        number = prefixed_number(
            number_key(_NOUN.sub("", title.partition(LABEL_SEPARATOR)[0])), number_prefix(division)
        )
        return number, self._seen[number] + 1
