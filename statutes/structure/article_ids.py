"""Labels, numbers and ids of articles, and the stack of open divisions, from a rendered law's headings."""

import re
from collections import Counter
from dataclasses import dataclass, field

from statutes.structure.headings import number_key
from statutes.structure.patterns import GENERAL, PROVISIONS

LABEL_SEPARATOR = " — "  # between an article's label and its own heading
_ANCHOR = re.compile(r" ?\{#([^{}\s]++)\}$")
_NOUN = re.compile(r"^(?:art[ií]culos?|articles?|art\.?|secci[oó]n|section|sec\.?|§{1,2})(?![a-z])\s*", re.I)
_TRANSITORY = re.compile(
    r"(?:(?:ART[IÍ]CULOS?|DISPOSICI[OÓ]N(?:ES)?|R[EÉ]GIMEN) )?"
    r"(?:TRANSITORI[OA]S?\b|T R A N S I T O R I [OA](?: S)?$|TRANSITIONAL PROVISIONS\b)",
    re.IGNORECASE,
)


def number_prefix(title: str) -> str:
    """Return the prefix of article numbers in a division of this title: "transitorio", "disposicion-final", or ""."""
    if _TRANSITORY.match(title):
        return "transitorio"
    match = PROVISIONS.match(title) or GENERAL.match(title)
    words = number_key(match[1]).split("-") if match else []
    return "-".join(word.removesuffix("es" if word.endswith(("ales", "ones")) else "s") for word in words)


def prefixed_number(number: str, prefix: str) -> str:
    """Return an article's number with its division's prefix; "Disposición final primera" needs none."""
    if not prefix or number.startswith("disposicion-") or (prefix != "transitorio" and number[:1].isdigit()):
        return number
    return f"{prefix}-{number}"


class Numbering:
    """Assigns unique ids to a law's articles: transitory ones are numbered apart, repeated numbers get a suffix."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def assign(self, number: str, prefix: str = "") -> tuple[str, str]:
        number = prefixed_number(number, prefix)
        self._seen[number] += 1
        count = self._seen[number]
        return (number if count == 1 else f"{number}~{count}"), number


def strip_anchor(title: str) -> str:
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
        """Open the division of a heading; one without words only closes the divisions at or below its level."""
        while self.levels and self.levels[-1] >= level:
            self.levels.pop()
            self.titles.pop()
        if title:
            self.levels.append(level)
            self.titles.append(title)


class ArticleIds:
    """Derives the ids of a law's articles from their headings, in order: from the label, or a final ``{#id}``."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def next_id(self, title: str, division: str) -> str:
        """Return the id of the article under this heading; ``division`` is the title of the division around it."""
        article_id = self._derive(title, division)
        self._seen[article_id.partition("~")[0]] += 1
        return article_id

    def heading_with_id(self, title: str, division: str, article_id: str) -> str:
        """Return the heading from which ``next_id`` derives this id: ``title``, with the id where it is not derived."""
        if self._derive(title, division) != article_id:
            title = f"{title} {{#{article_id}}}".lstrip()
        self.next_id(title, division)
        return title

    def _derive(self, title: str, division: str) -> str:
        if anchor := _ANCHOR.search(title):
            return anchor[1]
        label = _NOUN.sub("", title.partition(LABEL_SEPARATOR)[0])
        number = prefixed_number(number_key(label), number_prefix(division))
        count = self._seen[number] + 1
        return f"{number}~{count}" if count > 1 else number
