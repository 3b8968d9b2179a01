"""Speed of the chunker over real markdown, against packing paragraphs by characters."""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from django.conf import settings

from benchmarks import stored_pdfs
from benchmarks.report import Result, print_progress
from documents.markdown.normalization import NormalizedPages, normalize_pages
from documents.parsers import pdf_parser
from embeddings.chunking import chunkers
from jobs.outcomes import StageFailure

SUMMARY = __doc__
GOAL, STUBS_GOAL = 10.0, 0.03
STUB_TOKENS = 50
PACKED_CHARS = 2000
MEGABYTES = 8.0  # each contestant, each round


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5)


def measure(options: Namespace) -> Result:
    texts = _texts(2 if options.quick else None)
    size = sum(len(text.text.encode()) for text in texts) / 1e6
    times = max(1, round((0.1 if options.quick else MEGABYTES) / size))
    split = chunkers.get_chunker(settings.CHUNKER).split
    ours, packer = [], []
    for _ in range(options.rounds):
        ours.append(size * times / _cpu(lambda: [split(text.text, text.page_starts) for text in texts], times))
        packer.append(size * times / _cpu(lambda: [pack(text.text) for text in texts], times))
    chunks = [chunk for text in texts for chunk in split(text.text, text.page_starts)]
    stubs = sum(chunk.tokens < STUB_TOKENS for chunk in chunks) / len(chunks)
    return Result(
        name="chunking",
        value=median(ours),
        unit="MB per CPU-second",
        against=f"packing paragraphs up to {PACKED_CHARS} characters",
        ratio=median(ours) / median(packer),
        goal=GOAL,
        ok=median(ours) >= GOAL and stubs < STUBS_GOAL,
        details={
            "packer": median(packer),
            "documents": len(texts),
            "megabytes": size,
            "chunks": len(chunks),
            "stubs_share": stubs,
            "goal_stubs_share": STUBS_GOAL,
            "most_tokens": max(chunk.tokens for chunk in chunks),
            "documents_of_one_stub": sum(len(split(text.text, text.page_starts)) == 1 for text in texts),
        },
    )


def _texts(most: int | None) -> list[NormalizedPages]:
    pages: list[NormalizedPages] = []
    for path in stored_pdfs.readable_pdfs()[:most]:
        try:
            text = normalize_pages(pdf_parser.parse_pdf(path, pages=200).markdown)
        except StageFailure as failure:
            print_progress(path.name, failure.code)
            continue
        if text.text.strip():
            pages.append(text)
    return pages


def _cpu(work: Callable[[], Any], times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        work()
    return time.process_time() - began


def pack(text: str) -> Sequence[str]:
    """Paragraphs joined as long as they fit, whatever they say and however many tokens they are."""
    packed: list[str] = []
    paragraphs: list[str] = []
    length = 0
    for paragraph in text.split("\n\n"):
        if paragraphs and length + len(paragraph) > PACKED_CHARS:
            packed.append("\n\n".join(paragraphs))
            paragraphs, length = [], 0
        paragraphs.append(paragraph)
        length += len(paragraph) + 2
    return [*packed, "\n\n".join(paragraphs)] if paragraphs else packed
