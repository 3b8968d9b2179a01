"""Bounds of figures: whether a text says "up to 40", "at least 40" or 40."""

import re
from collections import defaultdict

from search.answers.facts import FIGURE, normalize_number, spell_figures

EXACT, MOST, LEAST = "", "most", "least"
NEAR_CHARS = 32
_BEFORE = {
    MOST: re.compile(
        r"\b(?:up to|at most|(?:no|not) (?:more|longer|later) than|(?:a )?max(?:imum)?(?: of)?|limited to"
        r"|(?<!no )(?<!not )less than"
        r"|below|under|hasta|no más de|como máximo|máximo de)(?: (?:a|an|the|total|of))*[ $€£¥]*\Z",
        re.IGNORECASE,
    ),
    LEAST: re.compile(
        r"\b(?:at least|(?:no|not) (?:less|fewer|earlier|sooner) than|(?:a )?min(?:imum)?(?: of)?"
        r"|(?<!no )(?<!not )more than|over|above"
        r"|exceed\w*|al menos|no menos de|más de|mínimo de|como mínimo)(?: (?:a|an|the|total|of))*[ $€£¥]*\Z",
        re.IGNORECASE,
    ),
}
_AFTER = {
    MOST: re.compile(r"%?(?: \w+)? (?:or (?:less|fewer|under)|max(?:imum)?|at most)\b", re.IGNORECASE),
    LEAST: re.compile(r"[%+]?(?: \w+)? (?:or (?:more|over|older)|min(?:imum)?|at least)\b|\+", re.IGNORECASE),
}
# In a row or list of limits, a figure without a bound is the most.
_LIMIT = re.compile(r"\b(?:limit|maxim|most\b|up to\b|\bends? after\b|l[ií]mite|m[aá]ximo)", re.IGNORECASE)


def keeps_bounds(text: str, evidence: str) -> bool:
    """Tell whether each figure of a text that the evidence has too has one of its bounds there."""
    stated, is_limit = _read_bounds(evidence), bool(_LIMIT.search(evidence))
    for number, bounds in _read_bounds(text).items():
        known = stated.get(number)
        allowed = known and (known | {MOST} if is_limit and EXACT in known else known)
        if allowed and not bounds <= allowed:
            return False
    return True


def _read_bounds(text: str) -> dict[str, set[str]]:
    """Return the bounds of each number."""
    text = spell_figures(text)
    found: dict[str, set[str]] = defaultdict(set)
    for figure in FIGURE.finditer(text):
        before = text[max(0, figure.start() - NEAR_CHARS) : figure.start()]
        after = text[figure.end() : figure.end() + NEAR_CHARS]
        bounds = {bound for bound in (MOST, LEAST) if _BEFORE[bound].search(before) or _AFTER[bound].match(after)} or {
            EXACT
        }
        found[normalize_number(figure[0])] |= bounds
    return found
