"""Token counts as the vendor bills them."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embeddings import tokenizer

PIECES = [
    "coinsurance",
    "al",
    "a",
    " ",
    "   ",
    "\n",
    " \n",
    ".",
    "'s",
    "1",
    "2345",
    "|",
    "-",
    "\t",
    "é",
    "漢",
    "😀",
    "\u2003",
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("hello world", 2),
        ("Deductible: $1,250.00 per member", 12),
        ("漢字", 3),
        ("a\n\n\nb", 3),
        (" " * 128, 1),
    ],
)
def test_counts_are_those_of_cl100k(text: str, expected: int) -> None:
    assert tokenizer.count_tokens(text) == expected


@pytest.mark.parametrize("special", ["<|endoftext|>", "<|fim_prefix|>", "<|endofprompt|>"])
def test_special_tokens_in_a_text_are_ordinary_text(special: str) -> None:
    assert tokenizer.count_tokens(special) > 3


def test_a_lone_surrogate_counts_as_the_replacement_character() -> None:
    assert tokenizer.count_tokens("a\ud800b") == tokenizer.count_tokens("a\ufffdb")
    assert tokenizer.fits_in_tokens("a\ud800b", 100)


def test_many_are_counted_in_order() -> None:
    assert tokenizer.count_many(["a b", "", "a"]) == [2, 0, 1]


def test_fits_is_exact() -> None:
    assert tokenizer.fits_in_tokens("a b c", 3)
    assert not tokenizer.fits_in_tokens("a b c", 2)


@settings(max_examples=500)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join), st.data())
def test_recounting_near_the_ends_equals_counting_all(text: str, draws: st.DataObject) -> None:
    start, old, new = sorted(draws.draw(st.tuples(*[st.integers(0, len(text))] * 3)))
    for first, second in ((old, new), (new, old)):
        count = tokenizer.recount_tokens(text, start, first, second, tokenizer.count_tokens(text[start:first]))

        assert count in (-1, tokenizer.count_tokens(text[start:second]))


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [("an alarm bell", 6, 8), ("a    bc    d", 7, 12), ("x    y", 5, 4), ("  a", 2, 3), ("\n \n", 3, 2)],
)
def test_recounting_adds_up_at_its_seam(text: str, old: int, new: int) -> None:
    count = tokenizer.recount_tokens(text, 0, old, new, tokenizer.count_tokens(text[:old]))

    assert count in (-1, tokenizer.count_tokens(text[:new]))


def test_the_vocabulary_is_loaded_at_the_first_count_only() -> None:
    loaded = "assert tokenizer._tokenizer.cache_info().currsize == 0"
    code = f"from embeddings import tokenizer; {loaded}; tokenizer.count_tokens('a')"

    subprocess.run([sys.executable, "-c", code], check=True)
