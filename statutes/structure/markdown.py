"""Rendering of a law as normalized markdown, the text that is stored as its document's parse and chunked."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from documents.markdown.normalization import normalize
from statutes.structure.article_ids import LABEL_SEPARATOR, ArticleIds, DivisionStack
from statutes.structure.model import Article, CanonicalLaw, Division, Paragraph, Place

ARTICLE_LEVEL = 6  # heading level of articles; those above are divisions
DEEPEST = ARTICLE_LEVEL - 1  # deeper divisions share this level
# A paragraph that begins like this would become a heading or a code block.
_MARKS = ("#", "```", "~~~")


@dataclass(frozen=True, slots=True)
class Rendered:
    """``page_starts`` is as in ``documents.markdown.normalization``, and empty where the format has no pages."""

    text: str
    page_starts: tuple[int, ...]


def render_markdown(law: CanonicalLaw, *, pages: int = 0) -> Rendered:
    """Return the law's markdown. Deterministic; normalizing it changes nothing.

    A division is a heading of its depth, an article one of level 6, a paragraph one line. A heading without words
    closes the divisions below its level. ``pages`` is the file's page count, where the last ones hold no text.
    """
    renderer = _Renderer()
    renderer.write_paragraphs(law.preamble)
    renderer.write_children(law.children, 0)
    text = "\n\n".join(renderer.lines) + "\n" if renderer.lines else ""
    starts = renderer.page_starts
    return Rendered(text, (*starts, *[len(text)] * (pages - len(starts))))


@dataclass(slots=True)
class _Renderer:
    lines: list[str] = field(default_factory=list)
    page_starts: list[int] = field(default_factory=list)
    divisions: DivisionStack = field(default_factory=DivisionStack)
    ids: ArticleIds = field(default_factory=ArticleIds)
    at: int = 0
    depth: int = 0  # of the division whose heading was written last

    def write_children(self, children: Sequence[Division | Article], depth: int) -> None:
        for child in children:
            if isinstance(child, Division):
                self.depth = depth + 1
                self._write_heading(min(depth + 1, DEEPEST), _one_line(child.title), child.place)
                self.write_paragraphs(child.paragraphs)
                self.write_children(child.children, depth + 1)
                continue
            if self.depth > depth < DEEPEST:
                self._write_heading(depth + 1, "", child.place)
            self.depth = depth
            title = _one_line(LABEL_SEPARATOR.join(filter(None, (child.label, child.heading))))
            title = self.ids.heading_with_id(title, self.divisions.innermost, child.id)
            self._write(f"{'#' * ARTICLE_LEVEL} {title}".rstrip(), child.place)
            self.write_paragraphs(child.paragraphs)

    def _write_heading(self, level: int, title: str, place: Place) -> None:
        self.divisions.enter(level, title)
        self._write(f"{'#' * level} {title}".rstrip(), place)

    def write_paragraphs(self, paragraphs: Sequence[Paragraph]) -> None:
        for paragraph in paragraphs:
            if line := _one_line(paragraph.text):
                self._write(line, paragraph.place)

    def _write(self, line: str, place: Place) -> None:
        if place.page is not None:  # the first page that has text begins with the text
            start = self.at if self.page_starts else 0
            self.page_starts += [start] * (place.page - len(self.page_starts))
        self.lines.append(line)
        self.at += len(line) + 2


def _one_line(text: str) -> str:
    plain = normalize(" ".join(text.split())).strip()
    return normalize(f"\\{plain}" if plain.startswith(_MARKS) else plain).strip()
