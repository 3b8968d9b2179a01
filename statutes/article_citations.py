"""Citations of passages of statutes: the article that answers, its label, pages and version."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection

from accounts.system_tenant import SYSTEM_TENANT_ID
from documents.markdown.normalization import page_at
from documents.models import Document
from embeddings.search import hybrid_search as retriever
from embeddings.search import query_parser
from embeddings.search.fusion import ScoreParts
from embeddings.search.lexemes import config_of_chunk, configs_of_tenant, query_lexemes
from embeddings.search.passage_sentences import Sentence
from embeddings.search.results import quote_lexeme
from statutes.article_chunker import MAX_TITLE_CHARS
from statutes.models import Law, LawVersion
from statutes.structure import article_ids
from statutes.structure.markdown import ARTICLE_LEVEL

_HEADING = re.compile(r"^(#{1,6})(?: +([^\n]*))?$", re.MULTILINE)
# Words in the heading weigh more: its number is what most queries name.
RANKS = """
    SELECT ts_rank('{0.2, 0.2, 0.2, 1}', setweight(to_tsvector(c, split_part(t, E'\\n', 1)), 'A')
        || to_tsvector(c, t), %(words)s::tsquery, 1)
    FROM unnest(%(texts)s::text[], %(configurations)s::regconfig[]) WITH ORDINALITY part(t, c, number)
    ORDER BY number"""
PARTIAL = Law.Status.PARTIAL_FAILED.value
# Heading marks of a rendered law, within a line too.
_MARKUP = re.compile(r"(?:(?<=\s)|^)#{1,6}(?: |\n+)| ?\{#[^{}]*\}")
_ANCHOR = re.compile(r" ?\{#[^{}\n]*\}(?=\n|$)")
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)T\d\d:\d\d:\d\d(?:\.\d+)?Z")  # a version made of an S3 event's time


@dataclass(frozen=True, slots=True)
class ArticleSpan:
    """An article, or a piece of one, at [start, end) of its passage's text; ``headings`` is its heading path."""

    id: str
    label: str
    headings: list[str]
    start: int
    end: int
    text: str
    configuration: str


@dataclass(frozen=True, slots=True)
class StatutePassage:
    """A passage of a statute that answers a query."""

    chunk_id: UUID
    chunk_ids: list[UUID]
    law_id: str
    title: str
    version: str
    status: str  # "partial_failed" while passages are missing
    language: str
    article: str | None  # its label; None: in no article, or in several that match alike
    articles: list[ArticleSpan]
    citation: str
    headings: list[str]
    pages: list[int]  # none, where the file has no pages
    start: int
    end: int
    text: str
    snippet_text: str
    snippet_html: str
    answer_span: tuple[int, int] | None
    score: float
    parts: ScoreParts
    sentences: Sequence[Sentence]
    idf: Mapping[str, float]
    page_starts: Sequence[int] = ()

    def cite(self, start: int, end: int) -> str:
        """Return the citation of what stands at [start, end) of the normalized text: the article in which it begins."""
        if not self.start <= start < end <= self.end:
            return self.citation
        pages = [page_at(self.page_starts, start), page_at(self.page_starts, end - 1)] if self.page_starts else []
        article = article_at(self.articles, start - self.start)
        place = article.label if article else _place(self.articles, self.headings)
        return _citation(self.title, self.version, place, pages or self.pages)


def cite_passages(passages: Sequence[retriever.Passage], query: str = "") -> list[StatutePassage]:
    """Return the passages with their citations, in order; those of versions withdrawn meanwhile are left out.

    Without a query, a passage of several articles is cited by all of them.
    """
    rows = _version_rows({passage.document_id for passage in passages})
    passages = [passage for passage in passages if passage.document_id in rows]
    spans = [article_spans(passage) for passage in passages]
    return [
        _cite(passage, rows[passage.document_id], articles, article)
        for passage, articles, article in zip(passages, spans, best_articles(spans, query), strict=True)
    ]


def _version_rows(document_ids: set[UUID]) -> dict[UUID, dict[str, Any]]:
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
    passage: retriever.Passage, row: Mapping[str, Any], articles: list[ArticleSpan], article: ArticleSpan | None
) -> StatutePassage:
    title = passage.filename or row["law_id"]
    place = article.label if article else _place(articles, passage.headings)
    pages = passage.pages if row["format"] == "pdf" else []
    cited, starts = pages, (row.get("page_starts") or ()) if pages else ()
    if article and starts:
        last = passage.start + max(article.start, article.end - 1)
        cited = [page_at(starts, passage.start + article.start), page_at(starts, last)]
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
        citation=_citation(title, row["version"], place, cited),
        headings=article.headings if article else passage.headings,
        pages=pages,
        start=passage.start,
        end=passage.end,
        text=passage.text,
        snippet_text=strip_heading_marks(passage.snippet_text),
        snippet_html=strip_heading_marks(passage.snippet_html),
        answer_span=passage.answer_span,
        score=passage.score,
        parts=passage.parts,
        sentences=passage.sentences,
        idf=passage.idf,
        page_starts=starts,
    )


def _place(articles: Sequence[ArticleSpan], headings: Sequence[str]) -> str:
    if len(articles) == 1:
        return articles[0].label
    if articles:
        return f"{articles[0].label} – {articles[-1].label}"  # noqa: RUF001 - as ranges are written
    return headings[-1] if headings else ""


def _citation(title: str, version: str, place: str, pages: Sequence[int]) -> str:
    timestamp = _TIMESTAMP.fullmatch(version)
    page = ""
    if pages:
        page = f"p. {pages[0]}" if pages[0] == pages[-1] else f"pp. {pages[0]}–{pages[-1]}"  # noqa: RUF001
    return ", ".join(filter(None, (f"{title} ({timestamp[1] if timestamp else version})", place, page)))


def article_at(articles: Sequence[ArticleSpan], offset: int) -> ArticleSpan | None:
    """Return the one article that an offset of the passage's text is in; None: of several, or in none."""
    containing = [article for article in articles if article.start <= offset < article.end]
    return containing[0] if len(containing) == 1 else None


def strip_heading_marks(text: str) -> str:
    return _MARKUP.sub("", text)


def strip_anchors(text: str) -> str:
    """Remove the anchors of headings, and keep their marks."""
    return _ANCHOR.sub("", text)


def article_spans(passage: retriever.Passage) -> list[ArticleSpan]:
    """Return the articles of a passage in order; none for text outside of articles."""
    ids = list(dict.fromkeys(map(str, passage.meta.get("articles") or ())))
    places = list(_article_places(passage))
    if places:
        # A later piece of a long article may precede the first article that begins here.
        headings, (start, _) = places[0]
        is_other_article = headings[-1] != "" and passage.headings[-1:] != [headings[-1][:MAX_TITLE_CHARS]]
        if len(ids) - len(places) == 1 or is_other_article:
            places.insert(0, (passage.headings, (0, start)))
    if len(places) != len(ids):  # a later piece of a long article does not repeat its heading
        path = passage.headings if len(ids) == 1 else []
        places = [(path, (0, len(passage.text)))] * len(ids)
    spans = []
    for article_id, (headings, (start, end)) in zip(ids, places, strict=True):
        label = headings[-1].partition(article_ids.LABEL_SEPARATOR)[0].strip() if headings else ""
        configuration = config_of_chunk(passage.meta)
        text, path = passage.text[start:end], list(filter(None, headings))
        spans.append(ArticleSpan(article_id, label or article_id, path, start, end, text, configuration))
    return spans


def _article_places(passage: retriever.Passage) -> Iterator[tuple[list[str], tuple[int, int]]]:
    path = passage.headings[:-1]
    divisions = article_ids.DivisionStack(list(range(1, len(path) + 1)), path)
    headings = list(_HEADING.finditer(passage.text))
    ends = [following.start() for following in headings[1:]] + [len(passage.text)]
    for heading, end in zip(headings, ends, strict=False):
        title = article_ids.strip_anchor(heading[2] or "")
        if len(heading[1]) == ARTICLE_LEVEL:
            yield [*divisions.titles, title], (heading.start(), end)
        else:
            divisions.enter(len(heading[1]), title)


def best_articles(passages: Sequence[Sequence[ArticleSpan]], query: str) -> list[ArticleSpan | None]:
    """Return for each passage the article that the query names, or else the one that matches its words best."""
    spans = [span for spans in passages if len(spans) > 1 for span in spans]
    ranks = dict(zip(map(id, spans), _rank(spans, query), strict=True))
    return [_best_article(spans, [ranks.get(id(span), 0.0) for span in spans], query) for spans in passages]


def _best_article(spans: Sequence[ArticleSpan], ranks: Sequence[float], query: str) -> ArticleSpan | None:
    # The words alone would take "4(a)" for "4(b)".
    words = _fold(query)
    matches = [span for span in spans if re.search(rf"(?<!\w){re.escape(_fold(span.label))}(?![\w(])", words)]
    if len(matches) == 1 or len(spans) == 1:
        return (matches or spans)[0]
    best = max(ranks, default=0.0)
    return spans[ranks.index(best)] if best > 0 and ranks.count(best) == 1 else None


def _fold(text: str) -> str:
    return " ".join(text.casefold().split())


def _rank(spans: Sequence[ArticleSpan], query: str) -> list[float]:
    if not spans or not query:
        return [0.0] * len(spans)
    configurations = configs_of_tenant(SYSTEM_TENANT_ID)
    lexemes = query_lexemes(query_parser.parse_query(query).text, configurations)
    if not lexemes:
        return [0.0] * len(spans)
    params: dict[str, Any] = {
        "words": " | ".join(map(quote_lexeme, lexemes)),
        "texts": [span.text for span in spans],
        "configurations": [span.configuration for span in spans],
    }
    with connection.cursor() as cursor:
        cursor.execute(RANKS, params)
        return [rank for (rank,) in cursor.fetchall()]
