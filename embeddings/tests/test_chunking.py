"""The chunkers: what a passage is, on any text."""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise

import pytest
from django.core.exceptions import ImproperlyConfigured
from hypothesis import given, settings
from hypothesis import strategies as st

from documents.markdown.normalization import normalize, normalize_pages
from documents.markdown.table_of_contents import find_contents
from embeddings import tokenizer
from embeddings.chunking import chunkers
from embeddings.chunking.chunkers import DEFAULT_SIZES, Chunk, MarkdownChunker, split_markdown

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
PIECES += ["# Contents\n\n" + "Chapter . . . . . 3\n\n" * 4, "Item ...... 5 " * 30, "A caption\n"]
CONFIGURATIONS: list[tuple[str, int, int, int, int, dict[str, str]]] = [
    ("markdown-simple@1", 256, 64, 96, 512, {}),
    ("markdown-simple@2", 128, 32, 64, 256, {}),
    ("markdown-simple@3", 256, 64, 96, 512, {"contents": "left out", "tables": "with title and header"}),
]
documents = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)


def assert_sound(
    text: str, chunks: list[Chunk], most: int = DEFAULT_SIZES.target, contents: Sequence[tuple[int, int]] = ()
) -> None:
    """Check what every cut of every text must hold, but for its tables of contents."""
    covered, last_start, whole = 0, 0, text
    for start, end in contents:
        text = f"{text[:start]}{' ' * (end - start)}{text[end:]}"
    for order, chunk in enumerate(chunks):
        repeated = (whole[slice(*span)] for span in (chunk.title, chunk.header) if span)
        assert chunk.ord == order
        assert chunk.text == "".join(repeated) + text[chunk.start : chunk.end]
        assert chunk.tokens == tokenizer.count_tokens(chunk.text) <= most
        assert last_start <= chunk.start
        assert covered < chunk.end
        assert not text[covered : chunk.start].strip()
        assert text[covered : chunk.end].strip()
        covered, last_start = chunk.end, chunk.start
    assert not text[covered:].strip()


@settings(max_examples=300)
@given(documents, st.booleans(), st.sampled_from(list(chunkers.CHUNKERS.values())))
def test_chunks_cover_the_text_within_their_limits(raw: str, is_normal: bool, chunker: MarkdownChunker) -> None:
    text = normalize(raw) if is_normal else raw

    contents = find_contents(text, 1) if chunker.reads_tables else ()
    assert_sound(text, chunker.split(text), chunker.sizes.target, contents)


def test_the_published_example() -> None:
    chunks = split_markdown(
        normalize_pages(["# Benefits\n\nYour plan pays for most care.", EXAMPLE[43:]]).text, (0, 43)
    )

    assert [dataclasses.astuple(chunk) for chunk in chunks] == [
        (0, EXAMPLE.rstrip(), 0, len(EXAMPLE) - 1, (1, 2), ("Benefits",), 31, None, None)
    ]
    assert chunks[0].meta == {"start": 0, "end": 101, "pages": [1, 2], "headings": ["Benefits"], "tokens": 31}


@pytest.mark.parametrize(("label", "largest_header", "overlap", "small", "target", "more"), CONFIGURATIONS)
def test_the_configurations_are_frozen(
    label: str, largest_header: int, overlap: int, small: int, target: int, more: dict[str, str]
) -> None:
    config = json.loads(chunkers.get_chunker(label).config)

    assert config == {
        "encoding": "cl100k_base",
        "largest_header_tokens": largest_header,
        "overlap_tokens": overlap,
        "small_tokens": small,
        "target_tokens": target,
        **more,
    }


def test_all_configurations_are_known_here() -> None:
    assert list(chunkers.CHUNKERS) == [label for label, *_ in CONFIGURATIONS]
    assert list(chunkers.all_chunkers()) == [*chunkers.CHUNKERS, "legal-articles@1"]
    assert chunkers.get_chunker("markdown-simple@1").split(EXAMPLE) == split_markdown(EXAMPLE)
    with pytest.raises(
        ImproperlyConfigured, match="legal-articles@1, markdown-simple@1, markdown-simple@2, markdown-simple@3"
    ):
        chunkers.get_chunker("markdown-simple@0")


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
    ("markdown-simple@3", "7d4a8ffbe68d22c66b27b76458f692b5faf9ca596e50fec3e647ef0a6d7e2359"),
    ("markdown-simple@2", "68a40a596cf24f41540399feb584c00583f1fd1c25500333748a6cf1b1a7e3c0"),
]


@pytest.mark.parametrize(("label", "sha"), CUTS)
def test_chunks_of_a_version_never_change(label: str, sha: str) -> None:
    """Whoever changes this hash changes the texts behind stored chunk ids: that is another version."""
    split = chunkers.get_chunker(label).split(long_document())
    chunks = json.dumps([dataclasses.astuple(chunk)[:8] for chunk in split])  # a title is in the text

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


# Version 3: titles of tables, and tables of contents


def split_tables(text: str) -> list[Chunk]:
    return split_markdown(text, reads_tables=True)


ROWS = "".join(f"| Service number {n} | ${n}.00 |\n" for n in range(200))
TABLE = f"| Service | You pay |\n|---|---|\n{ROWS}"


@pytest.mark.parametrize(
    ("above", "title"),
    [
        ("# Plan\n\n## Copays\n\n", "## Copays\n\n"),
        ("## Copays\n\nWhat you pay for a visit.\n\n", "## Copays\n\n"),
        ("## Copays\n\nTable 4: copays by service\n\n", "Table 4: copays by service\n\n"),
        ("## Copays\n\nTable 4: copays by service\n", "Table 4: copays by service\n"),
        ("Some sentence.\n\n", ""),
        ("", ""),
        (f"# {'very long title ' * 20}\n\n", ""),
    ],
)
def test_each_part_of_a_table_follows_its_title_and_header(above: str, title: str) -> None:
    _, *rest = split_tables(f"{above}{TABLE}")

    assert len(rest) > 3
    assert all(chunk.text.startswith(f"{title}| Service | You pay |\n|---|---|\n| Service number") for chunk in rest)


def test_each_part_of_a_table_follows_both_lines_of_its_head() -> None:
    head = "| Service | You pay | You pay |\n|---|---|---|\n| Service | Near | Far |\n"
    text = normalize(head + "".join(f"| Service number {n} | ${n}.00 | {n}% |\n" for n in range(200)))

    _, *rest = split_tables(text)

    assert len(rest) > 3
    assert all(chunk.text.startswith(f"{head}| Service number") for chunk in rest)
    assert_sound(text, split_tables(text))


def test_a_table_in_a_passage_that_begins_below_its_heading_follows_the_heading() -> None:
    text = f"## Copays\n\n{PARAGRAPH * 5}\n\n{PARAGRAPH}\n\n| Visit | You pay |\n|---|---|\n| Primary | $20 |\n"

    *_, last = split_tables(text)

    assert "| Primary | $20 |" in last.text
    assert last.title == (0, len("## Copays\n\n"))
    assert last.text.startswith("## Copays\n\nThe plan pays")
    assert_sound(text, split_tables(text))


CONTENTS = "".join(f"Chapter {n}: all about it . . . . . . . . . . {3 * n}\n\n" for n in range(1, 12))


@pytest.mark.parametrize(
    "contents",
    [
        f"# Contents\n\n{CONTENTS}",
        "Table of contents\n\nOne .......... 3\nTwo .......... 4\nThree .......... 4\n\n",
        f"## Contents\n\n{CONTENTS.replace(chr(10), ' ')}\n\n",
        "# Contents\n\n| What | Page |\n|---|---|\n| One ...... | 3 |\n| Two ...... | 4 |\n| Three ...... | 5 |\n\n",
        "| Part 1: Terms | 2 |\n|---|---|\n" + "".join(f"| Chapter {n} | . {n} |\n" for n in range(2, 12)) + "\n",
        "# Contents\n\nForeword ...... iii\n\nCopays\n\n**2**\n\nVisits …… 2\n\nStays …… 7\n\n",
        CONTENTS,
    ],
)
def test_a_table_of_contents_is_in_no_chunk(contents: str) -> None:
    before, after = "The plan of this year.", f"# Copays\n\n{PARAGRAPH}"

    chunks = split_markdown(f"{before}\n\n{contents}{after}", (0,) * 40, reads_tables=True)

    assert [chunk.text.strip() for chunk in chunks] == [before, after.strip()]


@pytest.mark.parametrize(
    "text",
    [
        "Office visit ........ 20\nSpecialist ........ 40\nEmergency ........ 250\n",
        "Office visit ........ $20\n" * 20,
        "Office visit ........ 20 %\n" * 20,
        "One .... 9\nTwo .... 8\nThree .... 7\n" * 9,
        CONTENTS,  # on 33 pages, of a document of one
        f"# Contents\n\n{CONTENTS}",  # all that the document has
        "Name ............................\n" * 20,
        "Wait... 5 days... 6 more\n",
        "| Share | Rate |\n|---|---|\n" + "".join(f"| Kind {n} | .{n} |\n" for n in range(1, 12)),
    ],
)
def test_prices_forms_and_what_is_all_the_document_has_are_kept(text: str) -> None:
    whole = "".join(chunk.text for chunk in split_tables(text))

    assert whole.split() == text.split()


@pytest.mark.parametrize(
    "text",
    [
        "." * 400_000,
        ". " * 200_000,
        "x.... 5 " * 60_000,
        "Contents\n" + "x .... 5\n" * 40_000,
        ("x .... 5\n" * 3 + "word " * 80 + "\n") * 3_000,
        "a .... 1\n" * 9 + "b\n" * 100_000,
        ("# Contents\n" + "x .... 5\n" * 3 + "words in between " * 30 + "\n") * 800,
    ],
)
def test_hostile_contents_are_found_in_linear_time(text: str) -> None:
    began = time.process_time()
    find_contents(text, 10)

    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "table",
    [
        "# T\n\n| a | b |\n|---|---|\n" + "| one | two |\n" * 10_000,
        "# T\n\n" + "| h " * 300 + "|\n" + "|---" * 300 + "|\n" + ("| x " * 300 + "|\n") * 100,
        "# T\n\n| a |\n|---|\n" + ("| " + "word " * 20_000 + "|\n") * 4,
        f"# {'😀' * 190}\n\n| a |\n|---|\n" + "| 😀 |\n" * 2_000,
        "# T\n\n| a | b |\n|---|---|\n" + r"| \| | x |" * 20_000,
        "cap\n| a |\n|---|\n| 1 |\n\n" * 5_000,
    ],
)
def test_hostile_tables_keep_the_limits_in_linear_time(table: str) -> None:
    began = time.process_time()
    chunks = split_tables(table)

    assert time.process_time() - began < 5
    assert_sound(table, chunks)
