"""A changed page changes the passages around it and no others: what stands behind it is cut as it was."""

import random
from collections.abc import Callable, Sequence
from statistics import mean

import pytest

from documents.markdown.normalization import normalize
from embeddings.chunking import chunkers
from embeddings.chunking.chunkers import Chunk

WORDS = ["the", "plan", "pays", "care", "copay", "deductible", "member", "network", "visit", "drug", "limit", "year"]
KINDS = ["headings", "paragraphs", "one paragraph", "table", "list"]
SENTENCES = 900


def sentence(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(5, 22))).capitalize() + f" {rng.randrange(1000)}."


def blocks(kind: str, rng: random.Random) -> list[str]:
    """Return the pieces of a document of this kind; joined, they are its text."""
    pieces = [sentence(rng) for _ in range(SENTENCES)]
    if kind == "headings":
        return [
            f"\n\n## Section {at // 20}\n\n{text}" if at % 20 == 0 else f"\n\n{text}" for at, text in enumerate(pieces)
        ]
    if kind == "table":
        return ["| Service | You pay |\n|---|---|", *(f"\n| {text} | ${at} |" for at, text in enumerate(pieces))]
    joint = {"paragraphs": "\n\n", "one paragraph": " ", "list": "\n- "}[kind]
    return [joint + text for text in pieces]


def insert(pieces: list[str], at: int, rng: random.Random) -> None:
    like = pieces[at].partition(".")[0]
    pieces[at:at] = [f"{like} Also {rng.randrange(10**6)} new."] * rng.randint(1, 4)


def delete(pieces: list[str], at: int, rng: random.Random) -> None:
    del pieces[at : at + rng.randint(1, 4)]


def change(pieces: list[str], at: int, rng: random.Random) -> None:
    pieces[at] = pieces[at].replace(".", f" but not more than {rng.randrange(10**6)} dollars in any year.")


def new(before: Sequence[Chunk], after: Sequence[Chunk]) -> list[Chunk]:
    known = {chunk.text for chunk in before}
    return [chunk for chunk in after if chunk.text not in known]


@pytest.mark.parametrize("label", chunkers.CHUNKERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("edit", [insert, delete, change])
def test_chunks_behind_a_changed_page_stay_the_same(
    edit: Callable[[list[str], int, random.Random], None], kind: str, label: str
) -> None:
    cut, rng = chunkers.get_chunker(label).split, random.Random(f"{kind} {edit.__name__}")
    pieces = blocks(kind, rng)
    before = cut(normalize("".join(pieces)))

    counts = []
    for _ in range(5):
        edited = list(pieces)
        edit(edited, rng.randrange(10, SENTENCES - 10), rng)
        counts.append(len(new(before, cut(normalize("".join(edited))))))

    assert len(before) > 30
    assert mean(counts) <= 3
    assert max(counts) <= 8
