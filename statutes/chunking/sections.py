"""What a rendered law is made of, read from its headings: articles, and the text that stands in none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from embeddings import tokenizer
from statutes.structure.labels import ArticleIds, DivisionStack, strip_anchor
from statutes.structure.markdown import ARTICLE_LEVEL

MAX_TITLE_CHARS = 200  # characters of a heading in a path; a path is repeated in every chunk of a division
_HEADING = re.compile(r"^(#{1,6})(?: +([^\n]*))?$", re.MULTILINE)
_VISIBLE = re.compile(r"\S")


@dataclass(slots=True)
class Unit:
    """Text at [start, end), no white space at either end, of [start, stop), which counts ``cost`` tokens.

    It begins with the headings that stand above it. ``article`` is the id, "" of text that stands in none; ``path`` the
    titles of the divisions around it, ``headings`` with the article's own. What stands ``alone`` is under a heading
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
    """Return the tokens of text[start:end], when text[start:stop] has ``cost`` and only white space is between."""
    found = tokenizer.recount_tokens(text, start, stop, end, cost)
    return found if found >= 0 else tokenizer.count_tokens(text[start:end])


def iter_units(text: str) -> Iterator[Unit]:
    """Yield the units of a text in order; they hold every visible character of it."""
    last = len(text.rstrip())
    found = _VISIBLE.search(text)
    if found is None:
        return
    reader, pending = _Reader(), found.start()
    heading = _HEADING.search(text)
    if heading is None or heading.start() > pending:
        stop = heading.start() if heading else len(text)
        yield reader.unit(text, pending, stop)
        pending = stop
    while heading is not None:
        body = heading.end()
        following = _HEADING.search(text, body)
        stop = following.start() if following else len(text)
        is_article = reader.enter(len(heading[1]), (heading[2] or "").rstrip())
        # A heading without text belongs to what follows it.
        if is_article or stop > last or _VISIBLE.search(text, body, stop):
            yield reader.unit(text, pending, stop)
            pending = stop
        heading = following


@dataclass(slots=True)
class _Reader:
    divisions: DivisionStack = field(default_factory=DivisionStack)
    ids: ArticleIds = field(default_factory=ArticleIds)
    article: str = ""
    title: str = ""
    alone: bool = False

    def enter(self, level: int, title: str) -> bool:
        """Open what a heading begins; tell whether that is an article."""
        is_article = level == ARTICLE_LEVEL
        self.alone = not (is_article or title)
        if is_article:
            self.article, self.title = self.ids.next_id(title, self.divisions.innermost), strip_anchor(title)
        else:
            self.article = self.title = ""
            self.divisions.enter(level, title)
        return is_article

    def unit(self, text: str, start: int, stop: int) -> Unit:
        end = start + len(text[start:stop].rstrip())
        path = tuple(title[:MAX_TITLE_CHARS] for title in self.divisions.titles)
        headings = (*path, self.title[:MAX_TITLE_CHARS]) if self.title else path
        return Unit(
            start, end, stop, tokenizer.count_tokens(text[start:stop]), path, headings, self.article, self.alone
        )
