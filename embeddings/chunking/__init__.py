"""The chunkers: markdown in, cited passages of at most so many tokens out."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from documents.markdown.normalization import page_at
from embeddings import tokenizer as tokens
from embeddings.chunking.splitter import ChunkSizes, Splitter

NAME = "markdown-simple"
VERSION = "1"  # Another configuration, or another cut of the same text, is another version.
DEFAULT_SIZES = ChunkSizes(target=512, overlap=64, small=96, largest_header=256)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One passage: `text` is the document's [start, end), after its table's header when it continues a table.

    `pages` are the first and last page of [start, end), from 1; `headings` the path in force where what is new starts.
    """

    ord: int
    text: str
    start: int
    end: int
    pages: tuple[int, int]
    headings: tuple[str, ...]
    tokens: int
    header: tuple[int, int] | None = None

    @property
    def meta(self) -> dict[str, object]:
        """Return what a citation needs, ready for JSON."""
        meta: dict[str, object] = {
            "start": self.start,
            "end": self.end,
            "pages": list(self.pages),
            "headings": list(self.headings),
            "tokens": self.tokens,
        }
        return meta | {"header": list(self.header)} if self.header else meta


def split_markdown(
    text: str, page_starts: Sequence[int] = (0,), *, last_page: int = 1, sizes: ChunkSizes = DEFAULT_SIZES
) -> list[Chunk]:
    """Cut normalized markdown into chunks that cover every visible character; text without any gives none.

    Without ``page_starts`` nobody knows the pages: each chunk may be on any, from 1 to ``last_page``.
    """
    cutter = Splitter(text, sizes)
    chunks: list[Chunk] = []
    at = cutter.next_start(0)
    while at < cutter.end:
        start, end, count, header = cutter.next_chunk(at)
        body = text[start:end]
        chunks.append(
            Chunk(
                ord=len(chunks),
                text=text[slice(*header)] + body if header else body,
                start=start,
                end=end,
                pages=(page_at(page_starts, start), page_at(page_starts, end - 1)) if page_starts else (1, last_page),
                headings=tuple(heading.title for heading in cutter.path),
                tokens=count,
                header=header,
            )
        )
        at = cutter.next_start(end)
    return chunks


class Chunker(Protocol):
    """A frozen way to cut: the same text gives the same chunks for ever. Another way has another version."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def label(self) -> str: ...

    @property
    def config(self) -> str:
        """Say how it cuts, as JSON: for whoever compares two versions."""
        ...

    def split(self, text: str, page_starts: Sequence[int] = (0,), *, last_page: int = 1) -> Sequence[Chunk]:
        """Cut normalized markdown into chunks that cover every visible character, numbered from 0 in order.

        Without ``page_starts`` nobody knows the pages: each chunk may be on any, from 1 to ``last_page``.
        """
        ...


@dataclass(frozen=True, slots=True)
class MarkdownChunker:
    """Cuts any markdown to sizes, wherever it may be cut well near them."""

    name: str
    version: str
    sizes: ChunkSizes

    @property
    def label(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def config(self) -> str:
        sizes = {f"{name}_tokens": size for name, size in asdict(self.sizes).items()}
        return json.dumps({"encoding": tokens.ENCODING, **sizes}, sort_keys=True, separators=(",", ":"))

    def split(self, text: str, page_starts: Sequence[int] = (0,), *, last_page: int = 1) -> list[Chunk]:
        """Cut as ``chunking.cut`` does, to this chunker's sizes."""
        return split_markdown(text, page_starts, last_page=last_page, sizes=self.sizes)


CHUNKERS = {
    chunker.label: chunker
    for chunker in (
        MarkdownChunker(NAME, VERSION, DEFAULT_SIZES),
        # Half as long: a single fact, a copay or an exclusion, is less diluted by what stands around it, and its
        # citation is narrower. Costs about as many tokens, and twice as many vectors.
        MarkdownChunker(NAME, "2", ChunkSizes(target=256, overlap=32, small=64, largest_header=128)),
    )
}


def all_chunkers() -> dict[str, Chunker]:
    """Return every chunker there is by its label: those of this module, and those that the setting CHUNKERS names."""
    named: Iterable[Chunker] = map(import_string, settings.CHUNKERS)
    return {**CHUNKERS, **{chunker.label: chunker for chunker in named}}


def get_chunker(label: str) -> Chunker:
    """Return the chunker called ``label`` (name@version), or raise ``ImproperlyConfigured``."""
    found = all_chunkers()
    if label not in found:
        raise ImproperlyConfigured(f"There is no chunker {label!r}: use one of {', '.join(sorted(found))}.")
    return found[label]
