"""Laws of a few lines, and their contents as text."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from statutes.structure.builder import build_law
from statutes.structure.model import Article, CanonicalLaw, Division, Line, Paragraph, Place


def build_from_text(text: str, *, is_whole: bool = False) -> CanonicalLaw:
    """Return the law of some lines, one character apart, on one page."""
    return build_law(list(text_lines(text, is_whole=is_whole)))


def text_lines(text: str, *, is_whole: bool = False) -> Iterator[Line]:
    at = 0
    for line in text.split("\n"):
        yield Line(line, Place(at, at + len(line), 1), is_whole=is_whole)
        at += len(line) + 1


def law_json(law: CanonicalLaw) -> dict[str, Any]:
    return law.as_json(law_id="law", version="1", source={})


def encode_law(law: CanonicalLaw) -> bytes:
    """Return JSON whose bytes depend on the law alone."""
    return json.dumps(law_json(law), ensure_ascii=False, sort_keys=True).encode()


def reject_scan(path: Path, pages: Sequence[int]) -> Mapping[int, str]:
    """Read no page: for files whose pages all have text."""
    raise AssertionError(f"pages {pages} have no text")


def article_texts(law: CanonicalLaw) -> dict[str, str]:
    """Return each article's text by its id, a line for each paragraph."""
    return {article.id: "\n".join(p.text for p in article.paragraphs) for _, article in law.articles()}


def article_paths(law: CanonicalLaw) -> dict[str, str]:
    """Return where each article stands: "book 1 > chapter 2"."""
    return {article.id: " > ".join(f"{one.kind} {one.number}" for one in path) for path, article in law.articles()}


def all_texts(law: CanonicalLaw) -> Iterator[str]:
    """Yield all text of a law, labels and headings among it."""
    yield from _texts([*law.preamble, *law.contents])
    for child in law.children:
        yield from _shown(child)


def _shown(child: Division | Article) -> Iterator[str]:
    yield from (child.label, child.heading)
    yield from _texts(child.paragraphs)
    if isinstance(child, Division):
        for one in child.children:
            yield from _shown(one)


def _texts(paragraphs: list[Paragraph]) -> Iterator[str]:
    return (paragraph.text for paragraph in paragraphs)
