"""Units of a rendered law, read from its headings: articles, and the text outside of articles."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from embeddings import tokenizer
from statutes.structure.article_ids import ArticleIds, DivisionStack, strip_anchor
from statutes.structure.markdown import ARTICLE_LEVEL

MAX_TITLE_CHARS = 200  # of a heading in a path, which is repeated in every chunk of a division
_HEADING = re.compile(r"^(#{1,6})(?: +([^\n]*))?$", re.MULTILINE)
_VISIBLE = re.compile(r"\S")


@dataclass(slots=True)
class Unit:
    """Text at [start, end), without white space at either end, of [start, stop), which has ``cost`` tokens.

    It begins with the headings above it. ``article`` is the id, "" for text outside of articles; ``path`` the titles of
    the divisions around it, ``headings`` with the article's own. A unit that stands ``alone`` is under a heading
    without words: signatures are no part of the annex that follows them.
    """

    start: int
    end: int
    stop: int
    cost: int
    path: tuple[str, ...]
    headings: tuple[str, ...]
    article: str
    alone: bool = False


def count_tokens(text: str, start: int, end: int, stop: int, cost: int) -> int:
    """Return the tokens of text[start:end], where text[start:stop] has ``cost`` and only white space is between."""
    count = tokenizer.recount_tokens(text, start, stop, end, cost)
    return count if count >= 0 else tokenizer.count_tokens(text[start:end])


def iter_units(text: str) -> Iterator[Unit]:
    """Yield the units of a text in order; they contain every visible character of it."""
    last = len(text.rstrip())
    visible = _VISIBLE.search(text)
    if visible is None:
        return
    divisions, ids = DivisionStack(), ArticleIds()
    article = title = ""
    alone = False

    def unit(start: int, stop: int) -> Unit:
        end = start + len(text[start:stop].rstrip())
        path = tuple(division[:MAX_TITLE_CHARS] for division in divisions.titles)
        headings = (*path, title[:MAX_TITLE_CHARS]) if title else path
        return Unit(start, end, stop, tokenizer.count_tokens(text[start:stop]), path, headings, article, alone)

    pending = visible.start()
    heading = _HEADING.search(text)
    if heading is None or heading.start() > pending:
        stop = heading.start() if heading else len(text)
        yield unit(pending, stop)
        pending = stop
    while heading is not None:
        level, words = len(heading[1]), (heading[2] or "").rstrip()
        is_article = level == ARTICLE_LEVEL
        alone = not (is_article or words)
        if is_article:
            article, title = ids.next_id(words, divisions.innermost), strip_anchor(words)
        else:
            article = title = ""
            divisions.enter(level, words)
        body = heading.end()
        heading = _HEADING.search(text, body)
        stop = heading.start() if heading else len(text)
        # A heading without text belongs to what follows it.
        if is_article or stop > last or _VISIBLE.search(text, body, stop):
            yield unit(pending, stop)
            pending = stop
