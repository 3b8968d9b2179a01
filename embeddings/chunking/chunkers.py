"""Chunkers: normalized markdown to chunks with their pages, headings and offsets; the registry of chunkers."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from documents.markdown.normalization import page_at
from documents.markdown.table_of_contents import find_contents
from embeddings import tokenizer
from embeddings.chunking.splitter import ChunkSizes, Splitter

NAME = "markdown-simple"
VERSION = "1"  # Another configuration, or another split of the same text, is another version.
DEFAULT_SIZES = ChunkSizes(target=512, overlap=64, small=96, largest_header=256)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk: `text` is the document's [start, end), after `title` and `header` of a table that it continues.

    `pages` are the first and last page of [start, end), from 1; `headings` the heading path where the new text starts.
    """

    ord: int
    text: str
    start: int
    end: int
    pages: tuple[int, int]
    headings: tuple[str, ...]
    tokens: int
    header: tuple[int, int] | None = None
    title: tuple[int, int] | None = None

    @property
    def meta(self) -> dict[str, object]:
        """The chunk's citation, ready for JSON."""
        meta: dict[str, object] = {"start": self.start, "end": self.end, "pages": list(self.pages)}
        meta |= {"headings": list(self.headings), "tokens": self.tokens}
        repeated = {"title": self.title, "header": self.header}
        return meta | {name: list(span) for name, span in repeated.items() if span}


def split_markdown(
    text: str, page_starts: Sequence[int] = (0,), *, last_page: int = 1, sizes: ChunkSizes = DEFAULT_SIZES,
    reads_tables: bool = False,
) -> list[Chunk]:  # fmt: skip
    """Split normalized markdown into chunks that cover every visible character, numbered from 0 in order.

    Without ``page_starts`` the pages are unknown: each chunk may be on any, from 1 to ``last_page``. With
    ``reads_tables``, a part of a table follows the table's title, and tables of contents are in no chunk.
    """
    skipped = find_contents(text, max(last_page, len(page_starts))) if reads_tables else ()
    splitter = Splitter(text, sizes, skipped=skipped, has_titles=reads_tables)
    chunks: list[Chunk] = []
    at = splitter.next_start(0)
    while at < splitter.end:
        start, end, count, header, title = splitter.next_chunk(at)
        chunks.append(
            Chunk(
                ord=len(chunks),
                text="".join(text[slice(*span)] for span in (title, header, (start, end)) if span),
                start=start,
                end=end,
                pages=(page_at(page_starts, start), page_at(page_starts, end - 1)) if page_starts else (1, last_page),
                headings=tuple(heading.title for heading in splitter.path),
                tokens=count,
                header=header,
                title=title,
            )
        )
        at = splitter.next_start(end)
    return chunks


class Chunker(Protocol):
    """A frozen way to split: the same text gives the same chunks for ever. Another way has another version."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def label(self) -> str: ...

    @property
    def config(self) -> str:
        """The configuration as JSON, to compare two versions."""
        ...

    def split(self, text: str, page_starts: Sequence[int] = (0,), *, last_page: int = 1) -> Sequence[Chunk]:
        """Split as ``split_markdown`` does, to this chunker's sizes."""
        ...


@dataclass(frozen=True, slots=True)
class MarkdownChunker:
    name: str
    version: str
    sizes: ChunkSizes
    reads_tables: bool = False  # a part of a table follows its title, and tables of contents are in no chunk

    @property
    def label(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def config(self) -> str:
        config: dict[str, object] = {f"{name}_tokens": size for name, size in asdict(self.sizes).items()}
        if self.reads_tables:
            config |= {"contents": "left out", "tables": "with title and header"}
        return json.dumps({"encoding": tokenizer.ENCODING, **config}, sort_keys=True, separators=(",", ":"))

    def split(self, text: str, page_starts: Sequence[int] = (0,), *, last_page: int = 1) -> list[Chunk]:
        return split_markdown(text, page_starts, last_page=last_page, sizes=self.sizes, reads_tables=self.reads_tables)


CHUNKERS = {
    chunker.label: chunker
    for chunker in (
        MarkdownChunker(NAME, VERSION, DEFAULT_SIZES),
        # Half as long: a single fact, a copay or an exclusion, is less diluted by the text around it, and its citation
        # is narrower. Costs about as many tokens, and twice as many vectors.
        MarkdownChunker(NAME, "2", ChunkSizes(target=256, overlap=32, small=64, largest_header=128)),
        # Parts of tables with their title, no tables of contents: the default of new documents.
        MarkdownChunker(NAME, "3", DEFAULT_SIZES, reads_tables=True),
    )
}


def all_chunkers() -> dict[str, Chunker]:
    """Return the chunkers of this module and of the setting CHUNKERS by their label."""
    configured: Iterable[Chunker] = map(import_string, settings.CHUNKERS)
    return {**CHUNKERS, **{chunker.label: chunker for chunker in configured}}


def get_chunker(label: str) -> Chunker:
    """Return the chunker called ``label`` (name@version), or raise ``ImproperlyConfigured``."""
    if label in CHUNKERS:
        return CHUNKERS[label]
    chunkers = all_chunkers()
    if label not in chunkers:
        raise ImproperlyConfigured(f"There is no chunker {label!r}: use one of {', '.join(sorted(chunkers))}.")
    return chunkers[label]
