"""The chunkers: what a passage is, on any text."""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import time
from itertools import pairwise

import pytest
from django.core.exceptions import ImproperlyConfigured
from hypothesis import given, settings
from hypothesis import strategies as st

from documents.markdown.normalization import normalize, normalize_pages
from embeddings import chunking, tokenizer
from embeddings.chunking import DEFAULT_SIZES, Chunk, MarkdownChunker, split_markdown

SENTENCE = "The plan pays 80 percent of the allowed amount after the deductible is met. "
PARAGRAPH = SENTENCE * 6
EXAMPLE = (
    "# Benefits\n\nYour plan pays for most care.\n\n## Copays\n\n| Visit | You pay |\n|---|---|\n| Primary | $20 |\n"
)

PIECES = [
    "# Plan\n\n",
    "## Copays\n",
    "###### Deep\n",
    SENTENCE,
    PARAGRAPH + "\n\n",
    "- item\n",
    "  1. two\n",
    "\n\n",
    "word " * 40,
]
PIECES += [
    "| a | b |\n|---|---|\n",
    "| 1 | two words |\n" * 30,
    "```\n",
    "x = 1\n" * 60,
    "~~~\n",
    "漢字。" * 30,
    "|",
    "\n" * 40,
    " " * 40,
]
PIECES += [
    "z" * 900,
    "| h |\n|-|\n" + "| c |\n" * 90,
    "😀" * 80,
    "<|endoftext|>",
    "\ud800",
    "a. " * 200,
    "|x" * 400 + "\n",
]
CONFIGURATIONS = [("markdown-simple@1", 256, 64, 96, 512), ("markdown-simple@2", 128, 32, 64, 256)]
documents = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)


def assert_sound(text: str, chunks: list[Chunk], most: int = DEFAULT_SIZES.target) -> None:
    """Check what every cut of every text must hold."""
    covered, last_start = 0, 0
    for order, chunk in enumerate(chunks):
        header = text[slice(*chunk.header)] if chunk.header else ""
        assert chunk.ord == order
        assert chunk.text == header + text[chunk.start : chunk.end]
        assert chunk.tokens == tokenizer.count_tokens(chunk.text) <= most
        assert last_start <= chunk.start
        assert covered < chunk.end
        assert not text[covered : chunk.start].strip()
        assert text[covered : chunk.end].strip()
        covered, last_start = chunk.end, chunk.start
    assert not text[covered:].strip()


@settings(max_examples=300)
@given(documents, st.booleans(), st.sampled_from(list(chunking.CHUNKERS.values())))
def test_chunks_cover_the_text_within_their_limits(raw: str, is_normal: bool, chunker: MarkdownChunker) -> None:
    text = normalize(raw) if is_normal else raw

    assert_sound(text, chunker.split(text), chunker.sizes.target)


def test_the_published_example() -> None:
    chunks = split_markdown(
        normalize_pages(["# Benefits\n\nYour plan pays for most care.", EXAMPLE[43:]]).text, (0, 43)
    )

    assert [dataclasses.astuple(chunk) for chunk in chunks] == [
        (0, EXAMPLE.rstrip(), 0, len(EXAMPLE) - 1, (1, 2), ("Benefits",), 31, None)
    ]
    assert chunks[0].meta == {"start": 0, "end": 101, "pages": [1, 2], "headings": ["Benefits"], "tokens": 31}


@pytest.mark.parametrize(("label", "largest_header", "overlap", "small", "target"), CONFIGURATIONS)
def test_the_configurations_are_frozen(label: str, largest_header: int, overlap: int, small: int, target: int) -> None:
    config = json.loads(chunking.get_chunker(label).config)

    assert config == {
        "encoding": "cl100k_base",
        "largest_header_tokens": largest_header,
        "overlap_tokens": overlap,
        "small_tokens": small,
        "target_tokens": target,
    }


def test_all_configurations_are_known_here() -> None:
    assert list(chunking.CHUNKERS) == [label for label, *_ in CONFIGURATIONS]
    assert list(chunking.all_chunkers()) == [*chunking.CHUNKERS, "legal-articles@1"]
    assert chunking.get_chunker("markdown-simple@1").split(EXAMPLE) == split_markdown(EXAMPLE)
    with pytest.raises(ImproperlyConfigured, match="legal-articles@1, markdown-simple@1, markdown-simple@2"):
        chunking.get_chunker("markdown-simple@0")


def long_document() -> str:
    parts = []
    for part in range(12):
        parts.append(f"# Part {part}\n\n{PARAGRAPH}\n\n## Limits {part}\n\n{PARAGRAPH * (part % 5)}\n\n")
        parts.append(
            "| Visit | You pay |\n|---|---|\n"
            + "".join(f"| Kind {row} of visit | ${row} |\n" for row in range(9 * part))
        )
        parts.append("\n```\n" + "total = copay + coinsurance\n" * (part * 4) + "```\n\n")
    return normalize("".join(parts))


CUTS = [
    ("markdown-simple@1", "a3389106e36c7acb73a620d3409dcb779a80aa7f582185739f872caa60a26e5a"),
    ("markdown-simple@2", "68a40a596cf24f41540399feb584c00583f1fd1c25500333748a6cf1b1a7e3c0"),
]


@pytest.mark.parametrize(("label", "sha"), CUTS)
def test_chunks_of_a_version_never_change(label: str, sha: str) -> None:
    """Whoever changes this hash changes the texts behind stored chunk ids: that is another version."""
    chunks = json.dumps([dataclasses.astuple(chunk) for chunk in chunking.get_chunker(label).split(long_document())])

    assert hashlib.sha256(chunks.encode()).hexdigest() == sha


@pytest.mark.parametrize("seed", ["0", "1", "4242"])
def test_chunks_are_the_same_in_every_process(seed: str) -> None:
    code = "from embeddings.tests.test_chunking import *; print(repr(split_markdown(long_document())))"

    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
    )

    assert done.stdout.decode().strip() == repr(split_markdown(long_document()))


@pytest.mark.parametrize("blank", ["", "\n", " \n\t\n", "\x1c\u2003"])
def test_a_text_without_a_visible_character_has_no_chunk(blank: str) -> None:
    assert split_markdown(blank) == []


def test_a_large_section_starts_its_own_chunk() -> None:
    text = normalize(f"# A\n\n{PARAGRAPH * 3}\n\n# B\n\n{PARAGRAPH * 3}\n\n# C\n\n{PARAGRAPH * 3}")

    assert [chunk.headings for chunk in split_markdown(text) if chunk.text.startswith("# ")] == [("A",), ("B",), ("C",)]


def test_small_sections_share_a_chunk() -> None:
    chunks = split_markdown(normalize("".join(f"## Term {n}\n\n{SENTENCE}\n\n" for n in range(100))))

    assert min(chunk.tokens for chunk in chunks) >= 50
    assert all(chunk.text.startswith("## ") for chunk in chunks)


def test_no_chunk_ends_with_a_heading() -> None:
    chunks = split_markdown(long_document())

    assert len(chunks) > 12
    assert not [chunk for chunk in chunks if chunk.text.rsplit("\n", 1)[-1].startswith("#")]


@pytest.mark.parametrize("above", ["# A\n\n## B", "Short.\n\n# A", "- a\n- b\n\n# A\n\n## B"])
def test_a_heading_stays_with_text_that_has_no_good_end(above: str) -> None:
    chunks = split_markdown(normalize(f"{above}\n\n{'word ' * 2000}"))

    assert not [chunk for chunk in chunks if chunk.text.rsplit("\n", 1)[-1].startswith("#")]


@pytest.mark.parametrize("sentences", range(28, 36))
def test_short_last_section_is_no_tiny_chunk(sentences: int) -> None:
    chunks = split_markdown(normalize(f"{SENTENCE * sentences}\n\n# End\n\nThank you."))

    assert min(chunk.tokens for chunk in chunks) >= 50


def test_heading_path_is_that_of_the_new_text() -> None:
    text = normalize(f"# A\n\n## B\n\n{PARAGRAPH * 8}\n\n## C #\n\n{PARAGRAPH * 8}\n\n# D\n\n{PARAGRAPH * 8}")

    paths = [chunk.headings for chunk in split_markdown(text)]

    assert list(dict.fromkeys(paths)) == [("A",), ("A", "B"), ("A", "C"), ("D",)]


def test_neighbours_overlap_by_whole_sentences_of_one_section() -> None:
    chunks = split_markdown(normalize(f"# A\n\n{SENTENCE * 80}\n\n# B\n\n{SENTENCE * 80}"))

    for before, after in pairwise(chunks):
        shared = before.text[after.start - before.start :] if after.start < before.end else ""
        if after.text.startswith("# B"):
            assert shared == ""
        else:
            assert shared.startswith("The plan pays")
            assert 32 <= tokenizer.count_tokens(shared) <= 80


def test_a_split_table_repeats_its_header_over_whole_rows() -> None:
    head = "| Service | You pay |\n|---|---|\n"
    text = normalize(head + "".join(f"| Service number {n} | ${n}.00 |\n" for n in range(200)))

    first, *rest = split_markdown(text)

    assert first.header is None
    assert len(rest) > 3
    for chunk in rest:
        assert chunk.header == (0, len(head))
        assert chunk.meta["header"] == [0, len(head)]
        rows = chunk.text.removeprefix(head).split("\n")
        assert all(row.startswith("| Service number") and row.endswith("|") for row in rows)


def test_row_over_the_limit_is_split_between_cells() -> None:
    text = "| a | b |\n|---|---|\n" + "| cell of words " * 400 + "|\n"

    chunks = split_markdown(text)

    assert len(chunks) > 2
    assert all(
        chunk.text.endswith("words") and chunk.start in (0, text.find("| cell", chunk.start)) for chunk in chunks[:-1]
    )


def test_a_header_over_its_limit_is_not_repeated() -> None:
    text = "| " + "column name " * 150 + "|\n|---|\n" + "| 1 |\n" * 400

    assert not [chunk for chunk in split_markdown(text) if chunk.header]


def test_code_that_fits_is_kept_whole() -> None:
    code = "```py\n" + "total = copay + coinsurance\n" * 55 + "```"
    text = normalize(f"# A\n\n{PARAGRAPH * 3}\n\n{code}\n\n{PARAGRAPH * 3}")

    assert sum(code in chunk.text for chunk in split_markdown(text)) == 1


def test_a_hash_in_code_is_no_heading() -> None:
    text = normalize("```\n# not one\n" + "x = 1\n" * 300 + "```\n")

    assert {chunk.headings for chunk in split_markdown(text)} == {()}


def test_pages_are_those_of_the_chunk() -> None:
    pages = normalize_pages([PARAGRAPH * 2, "", PARAGRAPH * 8, PARAGRAPH])

    chunks = split_markdown(pages.text, pages.page_starts)

    assert chunks[0].pages[0] == 1
    assert chunks[-1].pages[1] == 4
    assert all(first <= last and 2 not in (first, last) for first, last in (chunk.pages for chunk in chunks))


HOSTILE = {
    "one line": "a" * 500_000,
    "newlines": "x" + "\n" * 500_000 + "x",
    "spaces": "x" + " " * 500_000 + "x",
    "pipes": "|" * 500_000,
    "rows": "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 50_000,
    "headings": "".join(f"# h{n}\n" for n in range(30_000)),
    "long heading": "# " + "a b " * 100_000,
    "fences": "```\n" * 100_000,
    "tables": "|a|\n|-|\n|b|\n\n" * 30_000,
    "four tokens each": "\U00012000" * 50_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_split_in_linear_time(name: str) -> None:
    started = time.process_time()

    chunks = split_markdown(HOSTILE[name])

    assert time.process_time() - started < 3, "measured below 0.5 s; a quadratic step takes minutes"
    assert_sound(HOSTILE[name], chunks)
