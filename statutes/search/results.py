"""Search results of statutes: passages with their article and citation."""

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
# Heading marks of a rendered law, within a line too.
_MARKUP = re.compile(r"(?:(?<=\s)|^)#{1,6}(?: |\n+)| ?\{#[^{}]*\}")
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)T\d\d:\d\d:\d\d(?:\.\d+)?Z")  # a version made of an S3 event's time


@dataclass(frozen=True, slots=True)
class StatutePassage:
    """A passage of a statute that answers a query. ``snippet`` is HTML in which nothing but <mark> is markup."""

    chunk_id: UUID
    chunk_ids: list[UUID]
    law_id: str
    title: str
    version: str
    status: str  # "partial_failed" while passages are missing
    language: str
    article: str | None  # its label; None: in no article, or in several of which none stands out
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


def cite_passages(passages: Sequence[Passage], query: str) -> list[StatutePassage]:
    """Return the passages with their citations, in order; those of versions withdrawn meanwhile are left out."""
    rows = _version_rows({passage.document_id for passage in passages})
    passages = [passage for passage in passages if passage.document_id in rows]
    spans = [article_spans(passage) for passage in passages]
    return [
        _cite(passage, rows[passage.document_id], articles, article)
        for passage, articles, article in zip(passages, spans, best_articles(spans, query), strict=True)
    ]


def _version_rows(document_ids: set[UUID]) -> dict[UUID, dict[str, Any]]:
    """Return the columns of versions. A version that was replaced a moment ago keeps its own."""
    columns = ("document_id", "law_id", "version", "status", "format")
    rows: dict[UUID, dict[str, Any]] = {
        row["document_id"]: {**row} for row in LawVersion.objects.filter(pk__in=document_ids).values(*columns)
    }
    for law in Law.objects.filter(pk__in=[row["law_id"] for row in rows.values()]):
        if law.document_id in rows:
            rows[law.document_id] |= {"status": law.status, "version": law.version}
    pdfs = [document_id for document_id, row in rows.items() if row["format"] == "pdf"]
    documents = Document.objects.filter(pk__in=pdfs, user_id=SYSTEM_TENANT_ID)
    for document_id, starts in documents.values_list("pk", "page_starts"):
        rows[document_id]["page_starts"] = starts
    return rows


def _cite(
    passage: Passage, row: Mapping[str, Any], articles: list[ArticleSpan], article: ArticleSpan | None
) -> StatutePassage:
    title = passage.filename or row["law_id"]
    timestamp = _TIMESTAMP.fullmatch(row["version"])
    version = timestamp[1] if timestamp else row["version"]
    if article:
        place = article.label
    elif articles:
        place = f"{articles[0].label} – {articles[-1].label}"  # noqa: RUF001 - as ranges are written
    else:
        place = passage.headings[-1] if passage.headings else ""
    pages = passage.pages if row["format"] == "pdf" else []
    cited = pages
    if pages and article and (starts := row.get("page_starts")):
        last = passage.start + max(article.start, article.end - 1)
        cited = [page_at(starts, passage.start + article.start), page_at(starts, last)]
    page = ""
    if cited:
        page = f"p. {cited[0]}" if cited[0] == cited[-1] else f"pp. {cited[0]}–{cited[-1]}"  # noqa: RUF001
    return StatutePassage(
        chunk_id=passage.chunk_id,
        chunk_ids=passage.chunk_ids,
        law_id=row["law_id"],
        title=title,
        version=row["version"],
        status=PARTIAL if row["status"] == PARTIAL else Law.Status.EMBEDDED.value,
        language=str(passage.meta.get("language", "")),
        article=article.label if article else None,
        articles=articles,
        citation=", ".join(filter(None, (f"{title} ({version})", place, page))),
        headings=article.headings if article else passage.headings,
        pages=pages,
        start=passage.start,
        end=passage.end,
        text=passage.text,
        snippet=strip_heading_marks(passage.snippet),
        score=passage.score,
        parts=passage.parts,
    )


def strip_heading_marks(text: str) -> str:
    """Return a passage's text without the markup of its headings."""
    return _MARKUP.sub("", text)
