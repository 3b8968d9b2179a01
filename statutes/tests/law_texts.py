"""Laws of a few lines, and their contents as text."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from statutes.readers import sandbox_client
from statutes.readers.file_type import Format
from statutes.readers.sandbox_client import Scanner
from statutes.structure.builder import build_law
from statutes.structure.model import Article, CanonicalLaw, Division, Line, Paragraph, Place

HEADER: dict[str, Any] = {"law_id": "law", "version": "1", "source": {}}


def build_from_text(text: str, *, is_whole: bool = False) -> CanonicalLaw:
    """Return the law of some lines, one character apart, on one page."""
    return build_law(list(text_lines(text, is_whole=is_whole)))


def text_lines(text: str, *, is_whole: bool = False) -> Iterator[Line]:
    at = 0
    for line in text.split("\n"):
        yield Line(line, Place(at, at + len(line), 1), is_whole=is_whole)
        at += len(line) + 1


def law_json(law: CanonicalLaw) -> dict[str, Any]:
    return law.as_json(**HEADER)


def encode_law(law: CanonicalLaw) -> bytes:
    """Return JSON whose bytes depend on the law alone."""
    return json.dumps(law_json(law), ensure_ascii=False, sort_keys=True).encode()


def read_law(path: Path, *, format: Format, scan: Scanner | None = None) -> CanonicalLaw:
    """Return the law of a file, read in the sandbox."""
    statute = sandbox_client.read_statute(path, format=format, scan=scan or reject_scan, header=HEADER)
    return law_from_json(json.loads(statute.canonical))


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


def law_from_json(body: dict[str, Any]) -> CanonicalLaw:
    return CanonicalLaw(
        body["title"],
        body["language"],
        body["source"]["offsets"],
        _paragraphs_from_json(body["preamble"]),
        _paragraphs_from_json(body["contents"]),
        [_child_from_json(child) for child in body["children"]],
    )


def _child_from_json(body: dict[str, Any]) -> Division | Article:
    place, paragraphs = _place_from_json(body), _paragraphs_from_json(body["paragraphs"])
    if body["type"] == "article":
        return Article(body["id"], body["number"], body["label"], place, body["heading"], paragraphs)
    children = [_child_from_json(child) for child in body["children"]]
    return Division(body["type"], body["number"], body["label"], place, body["heading"], paragraphs, children)


def _paragraphs_from_json(bodies: list[dict[str, Any]]) -> list[Paragraph]:
    return [Paragraph(body["text"], _place_from_json(body)) for body in bodies]


def _place_from_json(body: dict[str, Any]) -> Place:
    return Place(body["start"], body["end"], body["page"])
