"""Article chunker: which articles share a chunk, where a long one is split, and which invariants hold."""

import dataclasses
import hashlib
import json
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from documents.markdown.normalization import normalize
from embeddings import tokenizer
from embeddings.chunking import chunkers
from embeddings.chunking.chunkers import Chunk
from embeddings.tests.test_chunking import assert_sound, documents
from statutes.article_chunker import CHUNKER, ArticleChunk, iter_units
from statutes.structure.markdown import Rendered, render_markdown
from statutes.structure.model import CanonicalLaw
from statutes.tests.law_builders import SENTENCE, article, chapter, law, law_from_plan, plans

LEAST, MOST = CHUNKER.limits.smallest, CHUNKER.limits.largest


def split(given_law: CanonicalLaw) -> list[Chunk]:
    rendered = render_markdown(given_law)
    return CHUNKER.split(rendered.text, rendered.page_starts)


def articles(chunks: list[Chunk]) -> list[tuple[str, ...]]:
    return [chunk.articles for chunk in chunks if isinstance(chunk, ArticleChunk)]


def text_of(many: int) -> str:
    """Return a text of about so many tokens."""
    return SENTENCE * (many // tokenizer.count_tokens(SENTENCE))


def test_the_chunker_is_found_by_its_label() -> None:
    assert chunkers.get_chunker("legal-articles@1") is CHUNKER
    assert json.loads(CHUNKER.config) == {
        "aim_tokens": 900, "encoding": "cl100k_base", "largest_tokens": 1200, "smallest_tokens": 200
    }  # fmt: skip


@pytest.mark.slow
@settings(max_examples=20)
@given(plans)
def test_every_visible_character_of_every_article_is_in_exactly_one_chunk(plan: Any) -> None:
    given_law = law_from_plan(plan)
    rendered = render_markdown(given_law)

    chunks = CHUNKER.split(rendered.text, rendered.page_starts)

    assert_sound(rendered.text, chunks, MOST)
    assert all(one.end <= two.start for one, two in pairwise(chunks))
    assert chunks == CHUNKER.split(rendered.text, rendered.page_starts)
    assert_complete(rendered, chunks)
    pieces = [chunk for chunk in chunks if isinstance(chunk, ArticleChunk) and chunk.piece]
    assert all(chunk.tokens >= LEAST for chunk in pieces if chunk.piece and chunk.piece[0] < chunk.piece[1])


def assert_complete(rendered: Rendered, chunks: list[Chunk]) -> None:
    """Check that a chunk names the articles that it holds text of, and no others."""
    units = list(iter_units(rendered.text))
    for chunk in chunks:
        inside = [one.article for one in units if one.article and one.start < chunk.end and chunk.start < one.end]
        assert chunk.meta["articles"] == inside
        assert chunk.meta["article"] == (inside[0] if inside else None)


@settings(max_examples=40)
@given(documents)
def test_any_text_is_split_completely(raw: str) -> None:
    text = normalize(raw)

    assert_sound(text, CHUNKER.split(text), MOST)


@pytest.mark.parametrize("many", [220, 700, 1150])
def test_an_article_of_200_to_1200_tokens_is_one_chunk(many: int) -> None:
    chunks = split(law(*(article(number, text_of(many)) for number in range(1, 5))))

    assert articles(chunks) == [("1",), ("2",), ("3",), ("4",)]
    assert chunks[1].headings == ("Artículo 2",)


def test_short_neighbours_of_a_division_are_joined_in_order_until_they_have_200() -> None:
    chunks = split(law(chapter("I", *(article(number, text_of(80)) for number in range(1, 8)))))

    assert articles(chunks) == [("1", "2", "3"), ("4", "5", "6", "7")]
    assert chunks[1].headings == ("CAPÍTULO I", "Artículo 4")


def test_a_short_remainder_stays_in_its_chapter() -> None:
    first = chapter("I", article(1, text_of(400)), article(2, text_of(60)))

    chunks = split(law(first, chapter("II", article(3, text_of(60)), article(4, text_of(400)))))

    assert articles(chunks) == [("1", "2"), ("3", "4")]


def test_a_short_chapter_joins_the_next_first() -> None:
    short, last = chapter("II", article(2, text_of(60))), chapter("III", article(3, text_of(400)))

    assert articles(split(law(chapter("I", article(1, text_of(400))), short, last))) == [("1",), ("2", "3")]


def test_a_short_chapter_joins_the_next_and_the_last_joins_the_previous() -> None:
    first, last = chapter("I", article(1, text_of(40))), chapter("III", article(3, text_of(40)))

    chunks = split(law(first, chapter("II", article(2, text_of(400))), last))

    assert articles(chunks) == [("1", "2", "3")]
    assert chunks[0].headings == ("CAPÍTULO I", "Artículo 1")


def test_a_short_article_joins_the_adjacent_piece_of_a_split_one() -> None:
    chunks = split(
        law(
            article(1, text_of(40)),
            article(2, text_of(2000)),
            article(3, text_of(40)),
            article(4, text_of(2000)),
        )
    )

    assert articles(chunks) == [("1", "2"), ("2",), ("2", "3"), ("4",), ("4",), ("4",)]
    assert [chunk.meta.get("piece") for chunk in chunks] == [[at, 3] for at in (1, 2, 3)] * 2
    assert [chunk.headings for chunk in chunks[:3]] == [("Artículo 1",), ("Artículo 2",), ("Artículo 2",)]
    assert chunks[2].text.count("###### Artículo 3\n") == 1


def test_a_short_article_joins_whole_neighbours_of_its_division_first() -> None:
    first = chapter("I", article(1, text_of(300)), article(2, text_of(40)), article(3, text_of(2000)))

    chunks = split(law(first, chapter("II", article(4, text_of(40)), article(5, text_of(2000)))))

    assert articles(chunks) == [("1", "2"), ("3",), ("3",), ("3",), ("4", "5"), ("5",), ("5",)]


def test_introductory_text_begins_the_passage_of_the_next_article() -> None:
    first = chapter("I", article(1, text_of(300)), text="Se aplica.")

    chunks = split(law(first, article(2, text_of(300)), preamble="Ley de prueba"))

    assert chunks[0].text.startswith("Ley de prueba\n\n# CAPÍTULO I\n\nSe aplica.\n\n###### Artículo 1\n\n")
    assert [chunk.meta["article"] for chunk in chunks] == ["1", "2"]
    assert [chunk.headings for chunk in chunks] == [("CAPÍTULO I", "Artículo 1"), ("Artículo 2",)]
    assert [chunk.meta["position"] for chunk in chunks] == [0, 1]


def test_a_preamble_begins_the_first_piece_of_a_long_article() -> None:
    chunks = split(law(article(1, text_of(2000)), preamble="Ley de prueba"))

    assert articles(chunks) == [("1",)] * 3
    assert chunks[0].text.startswith("Ley de prueba\n\n###### Artículo 1\n\n")


def test_long_or_trailing_text_outside_articles_is_its_own_passage() -> None:
    annex = chapter("II", text="Cuotas de agua.")

    chunks = split(law(article(1, text_of(300)), annex, preamble=text_of(260)))

    assert [chunk.meta["article"] for chunk in chunks] == [None, "1", None]
    assert chunks[2].headings == ("CAPÍTULO II",)


SIZES = st.sampled_from([1, 40, 90, 190, 210, 500, 900, 1100, 1150, 1190, 1300, 2000, 2500])
CHAPTERS = st.lists(st.lists(SIZES, min_size=1, max_size=6), min_size=1, max_size=4)


@pytest.mark.slow
@settings(max_examples=40, derandomize=True)
@given(CHAPTERS, st.sampled_from([0, 20, 150]))
def test_passages_have_200_to_1200_tokens_where_possible(sizes: Any, preamble: int) -> None:
    numbers = count(1)
    made_of = [
        chapter(str(at), *(article(next(numbers), "Uno. " + text_of(size)) for size in each))
        for at, each in enumerate(sizes)
    ]
    rendered = render_markdown(law(*made_of, preamble=text_of(preamble)))

    chunks = CHUNKER.split(rendered.text, rendered.page_starts)

    assert_sound(rendered.text, chunks, MOST)
    assert_complete(rendered, chunks)
    for one, two in pairwise(chunks):
        is_short = min(one.tokens, two.tokens) < LEAST
        assert not is_short or tokenizer.count_tokens(rendered.text[one.start : two.end]) > MOST


def test_empty_headings_begin_the_next_passage() -> None:
    chunks = split(law(chapter("I", chapter("II", article(1, text_of(300)))), chapter("III")))

    assert chunks[0].text.startswith("# CAPÍTULO I\n\n## CAPÍTULO II\n\n###### Artículo 1\n\n")
    assert chunks[1].text == "# CAPÍTULO III"


def test_a_long_article_is_split_between_fractions() -> None:
    fractions = [f"{number}. {text_of(250)}" for number in ("I", "II", "III", "IV", "V", "VI", "VII", "VIII")]

    chunks = split(law(article(1, "Son ingresos:", *fractions)))

    assert [chunk.text.split(". ")[0].split("\n")[-1] for chunk in chunks] == ["I", "V"]
    assert all(LEAST <= chunk.tokens <= MOST for chunk in chunks)


LONG_SENTENCES = {
    "es": "Conforme al art. 5 de la Ley y al núm. 3, la Sra. Gil y la fracc. II del Dr. Paz pagarán 3.5 pesos. ",
    "en": "Under Sec. 4(a) and art. IV. the U.S. Treasury, Mr. Gray et al. v. Smith shall pay $3.50 to it. ",
}


@pytest.mark.parametrize("language", LONG_SENTENCES)
def test_a_long_paragraph_is_split_between_sentences(language: str) -> None:
    sentence = LONG_SENTENCES[language]

    chunks = split(law(article(1, sentence * 100)))

    assert len(chunks) > 2
    assert {chunk.text[-8:] for chunk in chunks} == {sentence.strip()[-8:]}
    assert {chunk.text[:8] for chunk in chunks[1:]} == {sentence[:8]}


def test_fractions_within_a_line_are_split_before_their_numbers() -> None:
    chunks = split(law(article(1, "Son: " + "I. Los ingresos netos por rentas; II. Las otras cantidades, " * 120)))

    assert len(chunks) > 2
    assert {chunk.text.split(" ")[0] for chunk in chunks[1:]} <= {"I.", "II."}


def test_a_changed_article_changes_its_own_chunks_and_no_others() -> None:
    before = law(*(chapter(str(at), *(article(at * 9 + n, text_of(90 * n)) for n in range(1, 9))) for at in range(5)))
    after = law(*(chapter(str(at), *(article(at * 9 + n, text_of(90 * n)) for n in range(1, 9))) for at in range(5)))
    changed = next(one for _, one in after.articles() if one.id == "21")
    changed.paragraphs[0].text += "Se añade. " * 40

    known = {chunk.text for chunk in split(before)}
    new = [chunk for chunk in split(after) if chunk.text not in known]

    assert articles(new) in ([("21",)], [("20", "21")], [("19", "20", "21")], [("21", "22")])


def test_chunks_of_version_1_never_change() -> None:
    """Whoever changes this hash changes the texts behind stored chunk ids: that is another version."""
    chapters = [
        chapter(
            str(at),
            *(article(at * 20 + n, text_of(37 * n * (at + 1)), f"I. {text_of(50)}") for n in range(20)),
            text="Nota.",
        )
        for at in range(4)
    ]

    chunks = map(dataclasses.astuple, split(law(*chapters, preamble=text_of(1500))))
    cuts = json.dumps([chunk[:8] + chunk[9:] for chunk in chunks])  # the ninth is a table's title, always None

    assert (
        hashlib.sha256(cuts.encode()).hexdigest() == "34b139d9698a560ddf22bc6ef870a3e17cd1f5f7cacc13bf73f6b3c66682f6d7"
    )


def test_pages_are_those_of_the_chunk_or_the_whole_range() -> None:
    text = render_markdown(law(article(1, text_of(300)), article(2, text_of(300)))).text
    second = text.index("###### Artículo 2")

    assert [chunk.pages for chunk in CHUNKER.split(text, (0, 0, second))] == [(2, 2), (3, 3)]
    assert {chunk.pages for chunk in CHUNKER.split(text, (), last_page=9)} == {(1, 9)}
