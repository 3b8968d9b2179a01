"""What is shown of a law's passage that was found: which law, which version of it, and how it is cited."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from accounts.system_tenant import SYSTEM_TENANT_ID
from documents.markdown.normalization import page_at
from documents.models import Document
from embeddings.search import Passage
from embeddings.search.fusion import ScoreParts
from statutes.models import Law, LawVersion
from statutes.search.article_match import ArticleSpan, article_spans, best_articles

PARTIAL = Law.Status.PARTIAL_FAILED.value
# What the headings of a rendered law look like among other words.
_MARKUP = re.compile(r"(?:(?<=\s)|^)#{1,6}(?: |\n+)| ?\{#[^{}]*\}")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)T\d\d:\d\d:\d\d(?:\.\d+)?Z")  # a version that an event's time has made


@dataclass(frozen=True, slots=True)
class StatutePassage:
    """A passage of a law that answers a query. ``snippet`` is HTML in which nothing but <mark> is markup."""

    chunk_id: UUID
    chunk_ids: list[UUID]
    law_id: str
    title: str
    version: str
    status: str  # "partial_failed" while passages are missing
    language: str
    article: str | None  # as it is labelled; None: in no article, or in several of which none stands out
    articles: list[ArticleSpan]
    citation: str
    headings: list[str]
    pages: list[int]  # none, where the file has no pages
    start: int
    end: int
    text: str
    snippet: str
    score: float
    parts: ScoreParts


def cite_passages(found: Sequence[Passage], query: str) -> list[StatutePassage]:
    """Return what was found with what cites it, in that order; what was taken out meanwhile is left out."""
    facts = _facts({passage.document_id for passage in found})
    there = [passage for passage in found if passage.document_id in facts]
    inside = [article_spans(passage) for passage in there]
    chosen = best_articles(inside, query)
    return [
        _law(passage, facts[passage.document_id], of, one)
        for passage, of, one in zip(there, inside, chosen, strict=True)
    ]


def _facts(document_ids: set[UUID]) -> dict[UUID, dict[str, Any]]:
    """Return what is known of versions. One that was replaced a moment ago is told as what it was."""
    rows = LawVersion.objects.filter(pk__in=document_ids).values("document_id", "law_id", "version", "status", "format")
    known: dict[UUID, dict[str, Any]] = {row["document_id"]: {**row} for row in rows}
    for law in Law.objects.filter(pk__in=[row["law_id"] for row in known.values()]):
        if law.document_id in known:
            known[law.document_id] |= {"status": law.status, "version": law.version}
    paged = [document_id for document_id, row in known.items() if row["format"] == "pdf"]
    for document_id, starts in Document.objects.filter(pk__in=paged, user_id=SYSTEM_TENANT_ID).values_list(
        "pk", "page_starts"
    ):
        known[document_id]["page_starts"] = starts
    return known


def _law(
    passage: Passage, fact: Mapping[str, Any], inside: list[ArticleSpan], one: ArticleSpan | None
) -> StatutePassage:
    title = passage.filename or fact["law_id"]
    pages = passage.pages if fact["format"] == "pdf" else []
    place = one.label if one else _range(inside) or (passage.headings[-1] if passage.headings else "")
    cited = _pages(passage, one, fact.get("page_starts")) if pages else []
    return StatutePassage(
        chunk_id=passage.chunk_id,
        chunk_ids=passage.chunk_ids,
        law_id=fact["law_id"],
        title=title,
        version=fact["version"],
        status=PARTIAL if fact["status"] == PARTIAL else Law.Status.EMBEDDED.value,
        language=str(passage.meta.get("language", "")),
        article=one.label if one else None,
        articles=inside,
        citation=", ".join(filter(None, (f"{title} ({_dated(fact['version'])})", place, _paged(cited)))),
        headings=one.headings if one else passage.headings,
        pages=pages,
        start=passage.start,
        end=passage.end,
        text=passage.text,
        snippet=_MARKUP.sub("", passage.snippet),
        score=passage.score,
        parts=passage.parts,
    )


def strip_heading_marks(text: str) -> str:
    """Return a passage's text without the marks of its headings, for people to read."""
    return _MARKUP.sub("", text)


def _dated(version: str) -> str:
    """Return a version as it is cited: of a moment its day."""
    moment = _MOMENT.fullmatch(version)
    return moment[1] if moment else version


def _range(inside: Sequence[ArticleSpan]) -> str:
    return f"{inside[0].label} – {inside[-1].label}" if inside else ""  # noqa: RUF001 - as ranges are written


def _pages(passage: Passage, one: ArticleSpan | None, starts: Sequence[int] | None) -> list[int]:
    """Return the first and last page of the article that is cited; of the passage, where that is all that is known."""
    if one is None or not starts:
        return passage.pages
    return [page_at(starts, passage.start + one.start), page_at(starts, passage.start + max(one.start, one.end - 1))]


def _paged(pages: Sequence[int]) -> str:
    if not pages:
        return ""
    return f"p. {pages[0]}" if pages[0] == pages[-1] else f"pp. {pages[0]}–{pages[-1]}"  # noqa: RUF001
