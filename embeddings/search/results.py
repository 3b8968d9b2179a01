"""Search results: ranked chunks, merged neighbours, passages with their citation, and snippets as HTML."""

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Any
from uuid import UUID

from django.db import connection

from accounts.prepared_statements import prepared_cursor
from embeddings.search.fusion import RankedChunk, ScoreParts
from embeddings.search.lexemes import ENGLISH, config_of_chunk
from embeddings.search.passage_sentences import Sentence, passage_sentences
from embeddings.search.sentence_scores import RankedText, best_sentence, rank_sentences
from embeddings.search.snippets import NO_SNIPPET, Snippet, render_snippet

# LIMIT keeps the planner from joining all documents of the tenant, whom the policies do not name to it.
SELECT_CHUNKS = """
    SELECT c.chunk_id, c.document_id, d.filename, c.chunker_name, c.chunker_version, c.chunk_ord, c.text,
           c.meta::text,
           (SELECT v.vectors FROM sentence_vectors v
            WHERE v.chunk_id = c.chunk_id AND v.chunk_sha = c.chunk_sha AND v.model = %(sentence_model)s)
    FROM document_chunks c,
         LATERAL (SELECT filename FROM documents WHERE document_id = c.document_id LIMIT 1) d
    WHERE c.user_id = %(user)s AND c.chunk_id = ANY(%(chunks)s)"""


@dataclass(frozen=True, slots=True)
class Passage:
    """A search result with its citation.

    ``text`` is the parsed markdown's [start, end), after its table's header where it continues a table. ``chunk_ids``
    are more than one where neighbours were merged; ``chunk_id`` is the best of them, and ``score`` and ``parts`` are
    its own. ``answer_span`` is where the sentence or row that has most of the query's words stands in the parsed
    markdown; the snippets are that sentence, in ``<mark>`` of the HTML, and its neighbours.
    """

    chunk_id: UUID
    chunk_ids: list[UUID]
    document_id: UUID
    filename: str
    text: str
    snippet_text: str
    snippet_html: str
    answer_span: tuple[int, int] | None
    score: float
    parts: ScoreParts
    pages: list[int]
    headings: list[str]
    start: int
    end: int
    meta: Mapping[str, Any]  # of the best chunk, as the chunker wrote it
    sentences: Sequence[Sentence]  # of the best chunk
    similarities: Sequence[float]  # of these, to the query, by the sentence model; none where it has not read them
    idf: Mapping[str, float]  # of the query's lexemes, among all passages
    replaced: Mapping[str, str]  # lexemes of the query that no passage has, and those that were searched instead
    is_relevant: bool = True  # False in all passages of a query that none of them answers


@dataclass(frozen=True, slots=True)
class RetrievedChunk:
    ranked: RankedChunk
    document_id: UUID
    filename: str
    chunker: tuple[str, str]
    ord: int
    text: str
    meta: Mapping[str, Any]
    start: int
    end: int
    headings: list[str]
    sentences: Sequence[Sentence]
    sentence_vectors: bytes | None = None
    similarities: Sequence[float] = ()  # of each sentence to the query, after the second stage


def fetch_chunks(user_id: UUID, ranking: Sequence[RankedChunk], sentence_model: str = "") -> list[RetrievedChunk]:
    """Fetch ranked chunks in their order, without those deleted meanwhile. Call inside ``as_tenant``.

    ``sentence_model`` is the one whose sentence vectors they bring along.
    """
    params: dict[str, Any] = {
        "user": user_id,
        "chunks": [ranked.chunk_id for ranked in ranking],
        "sentence_model": sentence_model,
    }
    with prepared_cursor() as cursor:
        cursor.execute(SELECT_CHUNKS, params)
        rows = {chunk_id: row for chunk_id, *row in cursor.fetchall()}
    chunks = []
    for ranked in ranking:
        if row := rows.get(ranked.chunk_id):
            document_id, filename, name, version, ordinal, text, meta, vectors = row
            meta = json.loads(meta) if meta else {}
            place = int(meta.get("start", 0)), int(meta.get("end", 0)), meta.get("headings", [])
            chunk = ranked, document_id, filename, (name, version), ordinal, text, meta, *place
            chunks.append(RetrievedChunk(*chunk, passage_sentences(text), vectors and bytes(vectors)))
    return chunks


def make_passages(
    chunks: Sequence[RetrievedChunk],
    idf: Mapping[str, float],
    question: str,
    *,
    merge: bool,
    is_relevant: bool = True,
    replaced: Mapping[str, str] = MappingProxyType({}),
) -> list[Passage]:
    """Return the chunks as passages with snippets; ``merge`` joins neighbours of one section.

    ``idf`` are the question's lexemes with their idf. Of chunks that only come nearest, no sentence is marked.
    """
    if not chunks:
        return []
    groups = group_neighbours(chunks) if merge else [[chunk] for chunk in chunks]
    best_chunks = [min(group, key=lambda chunk: (-chunk.ranked.score, chunk.ranked.chunk_id)) for group in groups]
    passages = []
    for group, best, (snippet, span) in zip(
        groups, best_chunks, make_snippets(best_chunks, idf, question, is_relevant=is_relevant), strict=True
    ):
        pages = [chunk.meta.get("pages", []) for chunk in group]
        passage = Passage(
            chunk_id=best.ranked.chunk_id,
            chunk_ids=[chunk.ranked.chunk_id for chunk in group],
            document_id=best.document_id,
            filename=best.filename,
            text=join_text(group),
            snippet_text=snippet.text,
            snippet_html=snippet.html,
            answer_span=span,
            score=best.ranked.score,
            parts=best.ranked.parts,
            pages=[min(each[0] for each in pages), max(each[-1] for each in pages)] if best.meta.get("pages") else [],
            headings=best.headings,
            start=min(chunk.start for chunk in group),
            end=max(chunk.end for chunk in group),
            meta=best.meta,
            sentences=best.sentences,
            similarities=best.similarities,
            idf=idf,
            replaced=replaced,
            is_relevant=is_relevant,
        )
        passages.append(passage)
    return passages


def make_snippets(
    chunks: Sequence[RetrievedChunk], idf: Mapping[str, float], question: str, *, is_relevant: bool
) -> Iterator[tuple[Snippet, tuple[int, int] | None]]:
    """Yield each chunk's snippet, and where the sentence that answers stands in the parsed markdown."""
    texts = [RankedText(chunk.sentences, chunk.headings, config_of_chunk(chunk.meta)) for chunk in chunks]
    for chunk, sentences in zip(chunks, rank_sentences(texts, idf, question), strict=True):
        repeated = len(chunk.text) - (chunk.end - chunk.start) if chunk.end > chunk.start else 0
        own = [each for each in sentences if each.sentence.start >= repeated]
        if best := best_sentence(own):
            sentence, shift = best.sentence, chunk.start - repeated
            snippet = render_snippet([each.sentence for each in own], sentence, is_marked=is_relevant)
            yield snippet, (sentence.start + shift, sentence.end + shift) if is_relevant else None
        else:
            yield NO_SNIPPET, None


def group_neighbours(chunks: Sequence[RetrievedChunk]) -> list[list[RetrievedChunk]]:
    """Group consecutive chunks of one section, in reading order; the group with the best-ranked chunk comes first."""
    rank = {chunk.ranked.chunk_id: at for at, chunk in enumerate(chunks)}
    in_order = sorted(chunks, key=lambda chunk: (chunk.document_id, chunk.chunker, chunk.ord))
    # Within a run of consecutive ordinals, the ordinal less the place in the order is constant.
    runs = groupby(
        enumerate(in_order),
        key=lambda pair: (pair[1].document_id, pair[1].chunker, pair[1].headings, pair[1].ord - pair[0]),
    )
    groups = [[chunk for _, chunk in run] for _, run in runs]
    return sorted(groups, key=lambda group: min(rank[chunk.ranked.chunk_id] for chunk in group))


def join_text(group: Sequence[RetrievedChunk]) -> str:
    text, end = group[0].text, group[0].end
    for chunk in group[1:]:
        # A repeated table header is left out.
        body = chunk.text[-(chunk.end - chunk.start) :] if chunk.end > chunk.start else chunk.text
        # Between two chunks stands only white space, of which one line's end or an empty line is kept.
        text += body[end - chunk.start :] if chunk.start < end else "\n" * min(chunk.start - end, 2) + body
        end = chunk.end
    return text


# Control characters mark the words until everything else is escaped: no text of a document has them.
MARK_START, MARK_STOP = "\x02", "\x03"
HEADLINE_OPTIONS = f"StartSel={MARK_START}, StopSel={MARK_STOP}, MaxWords=40, MinWords=25, ShortWord=0"
HEADLINES = """
    SELECT ts_headline(t.configuration, translate(t.text, %(marks)s, ''), %(words)s::tsquery, %(options)s)
    FROM unnest(%(texts)s::text[], %(configurations)s::regconfig[])
        WITH ORDINALITY t(text, configuration, number) ORDER BY t.number"""


def render_snippets(texts: Sequence[str], words: Sequence[str], configurations: Sequence[str] = ()) -> list[str]:
    """Return about 40 words of each text, ``words`` (lexemes) between <mark> and </mark>, all else escaped.

    ``configurations`` are the texts' text search configurations, English by default.
    """
    params: dict[str, Any] = {
        "marks": MARK_START + MARK_STOP,
        "words": " | ".join(map(quote_lexeme, words)),
        "options": HEADLINE_OPTIONS,
        "texts": list(texts),
        "configurations": list(configurations) or [ENGLISH] * len(texts),
    }
    with connection.cursor() as cursor:
        cursor.execute(HEADLINES, params)
        headlines = [html.escape(" ".join(headline.split())) for (headline,) in cursor.fetchall()]
    return [text.replace(MARK_START, "<mark>").replace(MARK_STOP, "</mark>") for text in headlines]


def strip_marks(snippet: str) -> str:
    return html.unescape(snippet.replace("<mark>", "").replace("</mark>", ""))


def quote_lexeme(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"
