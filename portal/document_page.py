"""Page of a document: its text, its passages, and the passage that a citation refers to."""

from dataclasses import dataclass, replace
from uuid import UUID

from django.utils.safestring import SafeString, mark_safe

from accounts.rls import as_tenant
from documents.markdown import html_renderer
from documents.markdown.normalization import page_at
from documents.models import Document
from documents.storage import file_cache
from embeddings import chunk_store
from embeddings.models import DocumentChunk

SAMPLE_CHARS = 110  # of a passage in the list of a page's passages
MARKUP = frozenset("#|*-:>`")  # words of markup characters only are left out of a sample


@dataclass(frozen=True, slots=True)
class Passage:
    """``start`` and ``end`` are characters of the parsed markdown."""

    id: UUID
    ord: int
    sample: str
    pages: tuple[int, int]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Page:
    """``text`` is safe HTML; ``cited`` is highlighted in it, None if it is on another page."""

    number: int
    count: int
    text: SafeString
    passages: list[Passage]
    cited: Passage | None
    is_parsed: bool

    @property
    def earlier(self) -> int | None:
        return self.number - 1 if self.number > 1 else None

    @property
    def later(self) -> int | None:
        return self.number + 1 if self.number < self.count else None


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage, or what stands at ``span`` of the parsed markdown within it."""

    passage_id: UUID
    span: tuple[int, int] | None = None


def get_page(document: Document, requested: int | None, citation: Citation | None) -> Page:
    """Return the requested page, else the first page of what is cited; at most the last page.

    ``document`` must belong to the tenant, whose passages are read. Raises ``OSError`` of the store.
    """
    cited = get_passage(document, citation) if citation else None
    count = document.pages or len(document.page_starts or ()) or 1
    number = min(max(1, requested or (cited.pages[0] if cited else 1)), count)
    if document.parsed_path is None:
        return Page(number, count, SafeString(), [], None, is_parsed=False)
    text, start = file_cache.read_page(document, number) or ("", 0)
    if cited and not cited.pages[0] <= number <= cited.pages[1]:
        cited = None
    markup = html_renderer.render_html(text, highlight=(cited.start - start, cited.end - start) if cited else None)
    # The first highlight is the target of a citation's link.
    markup = mark_safe(markup.replace("<mark>", '<mark id="cited">', 1))  # noqa: S308 - one fixed attribute in safe HTML
    return Page(number, count, markup, page_passages(document, number), cited, is_parsed=True)


def cited_text(document: Document, number: int, citation: Citation) -> str:
    """Return the part of what is cited that is on page ``number``, as markdown; empty if there is none."""
    cited = get_passage(document, citation)
    if cited is None or document.parsed_path is None:
        return ""
    text, start = file_cache.read_page(document, number) or ("", 0)
    return text[max(0, cited.start - start) : max(0, cited.end - start)]


def get_passage(document: Document, citation: Citation) -> Passage | None:
    """Return the passage, narrowed to the citation's span if that is within it."""
    with as_tenant(document.user_id):
        own = chunk_store.document_chunks(document).filter(user_id=document.user_id).defer("embedding", "search")
        chunk = own.filter(pk=citation.passage_id).first()
    if chunk is None:
        return None
    passage = _passage(chunk)
    start, end = citation.span or (0, 0)
    if not passage.start <= start < end <= passage.end:
        return passage
    starts = document.page_starts
    pages = (page_at(starts, start), page_at(starts, end - 1)) if starts else passage.pages
    return replace(passage, start=start, end=end, pages=pages)


def page_passages(document: Document, number: int) -> list[Passage]:
    """Return the passages on page ``number``, also those that are only partly on it."""
    with as_tenant(document.user_id):
        return [_passage(chunk) for chunk in chunk_store.page_chunks(document, number).filter(user_id=document.user_id)]


def _passage(chunk: DocumentChunk) -> Passage:
    meta = chunk.meta or {}
    pages = meta.get("pages") or [1, 1]
    start, end = int(meta.get("start", 0)), int(meta.get("end", 0))
    text = chunk.text[-(end - start) :] if end > start else chunk.text  # without a repeated table header
    sample = " ".join(word for word in text[: 2 * SAMPLE_CHARS].split() if not MARKUP.issuperset(word))
    sample = sample[:SAMPLE_CHARS] + "…" * (len(sample) > SAMPLE_CHARS)
    return Passage(chunk.pk, chunk.chunk_ord + 1, sample, (pages[0], pages[-1]), start, end)
