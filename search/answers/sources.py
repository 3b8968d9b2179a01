"""Sources of an answer: passages of documents and statutes with what their citations say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from accounts.rls import as_tenant
from documents.markdown.normalization import page_at
from documents.models import Document
from embeddings.search.lexemes import CONFIGURATIONS, ENGLISH
from embeddings.search.passage_sentences import Sentence
from embeddings.search.sentence_scores import RankedText
from search.answers.question_types import part_lists
from search.services import SearchResults
from statutes.article_citations import StatutePassage


@dataclass(frozen=True, slots=True)
class Source:
    """A passage that was found. ``title`` is the file name, or the statute with its article."""

    chunk_id: UUID
    document_id: UUID | None
    law_id: str | None
    title: str
    dated_at: datetime | None  # upload of the document; None: a statute, whose title has its version
    text: str
    headings: list[str]
    pages: list[int]
    page_starts: Sequence[int]
    start: int
    end: int
    language: str
    sentences: Sequence[Sentence]
    idf: Mapping[str, float]
    similarities: Sequence[float] = ()
    replaced: Mapping[str, str] = field(default_factory=dict)
    is_relevant: bool = True
    law: StatutePassage | None = None

    @property
    def ranked_text(self) -> RankedText:
        return RankedText(self.sentences, self.headings, CONFIGURATIONS.get(self.language, ENGLISH))

    @property
    def key(self) -> UUID | str | None:
        """The document or statute."""
        return self.document_id or self.law_id

    @property
    def repeated(self) -> int:
        """Characters of a table's title and header before the passage's own text."""
        return max(0, len(self.text) - (self.end - self.start))

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return offsets in the parsed markdown of what stands at these of ``text``."""
        shift = self.start - self.repeated
        return start + shift, end + shift

    def title_of(self, span: tuple[int, int]) -> str:
        """Return the file name, or the statute with the article in which the span begins."""
        return self.law.cite(*span) if self.law else self.title

    def page(self, offset: int) -> int | None:
        if self.page_starts:
            return page_at(self.page_starts, offset)
        return self.pages[0] if self.pages else None


def collect_sources(user_id: UUID, results: SearchResults) -> list[Source]:
    """Return the passages by rank, documents before statutes, without those of documents deleted meanwhile.

    Those that only come nearest are among them: where nothing answers, they are cited as that.
    """
    passages = [*results.passages, *results.nearest]
    with as_tenant(user_id):
        documents = Document.objects.filter(
            user_id=user_id, pk__in={passage.document_id for passage in passages}
        ).values_list("document_id", "created_at", "page_starts")
        known = {document_id: (created_at, starts or ()) for document_id, created_at, starts in documents}
    sources = [
        Source(
            chunk_id=passage.chunk_id,
            document_id=passage.document_id,
            law_id=None,
            title=passage.filename,
            dated_at=known[passage.document_id][0],
            text=passage.text,
            headings=passage.headings,
            pages=passage.pages,
            page_starts=known[passage.document_id][1],
            start=passage.start,
            end=passage.end,
            language=str(passage.meta.get("language", "")),
            sentences=[part for each in passage.sentences for part in part_lists(each)],
            idf=passage.idf,
            similarities=[
                similarity
                for each, similarity in zip(passage.sentences, passage.similarities, strict=False)
                for _ in part_lists(each)
            ],
            replaced=passage.replaced,
            is_relevant=passage.is_relevant,
        )
        for passage in passages
        if passage.document_id in known  # not deleted meanwhile
    ]
    return [*sources, *map(_from_law, results.laws)]


def _from_law(law: StatutePassage) -> Source:
    return Source(
        chunk_id=law.chunk_id,
        document_id=None,
        law_id=law.law_id,
        title=law.citation,
        dated_at=None,
        text=law.text,
        headings=law.headings,
        pages=law.pages,
        page_starts=law.page_starts,
        start=law.start,
        end=law.end,
        language=law.language,
        sentences=law.sentences,
        idf=law.idf,
        law=law,
    )
