"""A page of a document as it is read: its text, its passages, and what of it a citation means."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet
from django.utils.safestring import SafeString, mark_safe

from accounts.rls import as_tenant
from documents.markdown import html
from documents.models import Document
from documents.parsing import parse_store
from embeddings import chunk_store
from embeddings.models import DocumentChunk

SAMPLE = 110  # characters of a passage in the list of a page's passages
MARKUP = frozenset("#|*-:>`")  # what markdown says by words of their own


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
    """``text`` is what stands on the page, safe to show, with ``cited`` marked if any of it is on this page."""

    number: int
    count: int
    text: SafeString
    passages: list[Passage]
    cited: Passage | None
    is_there: bool

    @property
    def earlier(self) -> int | None:
        return self.number - 1 if self.number > 1 else None

    @property
    def later(self) -> int | None:
        return self.number + 1 if self.number < self.count else None


def page(document: Document, wanted: int | None, passage_id: UUID | None) -> Page:
    """Return the wanted page, or the one on which the cited passage begins; beyond the last it is the last.

    ``document`` is the tenant's own: its passages are read as the tenant. Raises ``OSError`` when the store is away.
    """
    cited = passage(document, passage_id) if passage_id else None
    count = document.pages or len(document.page_starts or ()) or 1
    number = min(max(1, wanted or (cited.pages[0] if cited else 1)), count)
    if document.parsed_path is None:
        return Page(number, count, SafeString(), [], None, is_there=False)
    text, begin = parse_store.read_page(document, number) or ("", 0)
    if cited and not cited.pages[0] <= number <= cited.pages[1]:
        cited = None
    shown = _shown(text, (cited.start - begin, cited.end - begin) if cited else None)
    return Page(number, count, shown, passages(document, number), cited, is_there=True)


def cited_text(document: Document, number: int, passage_id: UUID) -> str:
    """Return what of a passage stands on page ``number``, as markdown; empty when none of it does."""
    cited = passage(document, passage_id)
    if cited is None or document.parsed_path is None:
        return ""
    text, begin = parse_store.read_page(document, number) or ("", 0)
    return text[max(0, cited.start - begin) : max(0, cited.end - begin)]


def passage(document: Document, passage_id: UUID) -> Passage | None:
    with as_tenant(document.user_id):
        found = _own(document).filter(pk=passage_id).first()
    return _passage(found) if found else None


def passages(document: Document, number: int) -> list[Passage]:
    """Return the passages that stand on page ``number`` or partly on it."""
    with as_tenant(document.user_id):
        return [_passage(chunk) for chunk in chunk_store.page_chunks(document, number).filter(user_id=document.user_id)]


def _own(document: Document) -> QuerySet[DocumentChunk]:
    return chunk_store.document_chunks(document).filter(user_id=document.user_id).defer("embedding", "search")


def _passage(chunk: DocumentChunk) -> Passage:
    meta = chunk.meta or {}
    pages = meta.get("pages") or [1, 1]
    start, end = int(meta.get("start", 0)), int(meta.get("end", 0))
    own = chunk.text[-(end - start) :] if end > start else chunk.text  # without a repeated table header
    sample = " ".join(word for word in own[: 2 * SAMPLE].split() if not MARKUP.issuperset(word))
    return Passage(
        chunk.pk, chunk.chunk_ord + 1, sample[:SAMPLE] + "…" * (len(sample) > SAMPLE), (pages[0], pages[-1]), start, end
    )


def _shown(text: str, highlight: tuple[int, int] | None) -> SafeString:
    made = html.render_html(text, highlight=highlight)
    # The first mark is where a citation leads.
    return mark_safe(made.replace("<mark>", '<mark id="cited">', 1))  # noqa: S308 - one fixed attribute in safe HTML
