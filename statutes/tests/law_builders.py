"""Laws for tests of rendering and chunking, by hand and by hypothesis."""

from collections.abc import Sequence
from itertools import count

from hypothesis import strategies as st

from statutes.structure.article_ids import Numbering
from statutes.structure.model import Article, CanonicalLaw, Division, Paragraph, Place

SENTENCE = "El contribuyente deberá presentar su declaración anual ante la autoridad fiscal competente. "  # 20 tokens
TEXTS = [
    "Breve.",
    SENTENCE * 3,
    SENTENCE * 12,
    SENTENCE * 90,
    "I. Los ingresos; II. Los gastos, conforme al art. 5 de la Ley; " * 60,
    "palabra " * 1500,
    "sinfin" * 800,
    "漢字" * 700,
    "....;;;,,," * 400,
    "# no es título",
    "###### Artículo 99",
    "```",
    "~~~ x",
    "\u200b# oculto",
    "• viñeta",
    "1)  inciso",
    "* * *",
    "- [enlace](http://x.mx) y ![imagen](y)",
    "```[a](b)(c)",
    "  a  \u2028 b\tc\x00 ",
    "|---|",
    "{#5}",
    "\\",
    "",
    "\u200b",
]
LABELS = [
    "Artículo 5", "ARTÍCULO 12 Bis", "Art. 3o", "Section 4", "§ 7", "Primero", "Artículo", "", "Artículo 5 {#8}", "#"
]  # fmt: skip
NUMBERS = ["5", "12-bis", "3", "4", "7", "primero", "art-5", "unnumbered"]
TITLES = ["TÍTULO I", "CAPÍTULO ÚNICO De las # cosas", "TRANSITORIOS", "", "Sección {#9}", "#", "\u200b"]

# Texts by number: hypothesis writes the values of a strategy out.
_texts = st.lists(st.integers(0, len(TEXTS) - 1), max_size=4)
_articles = st.tuples(st.just("article"), st.sampled_from(LABELS), st.sampled_from(NUMBERS), _texts)
_parts = st.recursive(
    _articles,
    lambda inner: st.tuples(st.just("division"), st.sampled_from(TITLES), st.lists(inner, max_size=5), _texts),
    max_leaves=14,
)
plans = st.tuples(_texts, st.lists(_parts, max_size=8))


def law_from_plan(plan: tuple[Sequence[int], Sequence[tuple[object, ...]]]) -> CanonicalLaw:
    """Return the law of a drawn plan, its ids as a reader gives them."""
    maker = _Maker()
    return CanonicalLaw(
        "Ley", "es", "characters", maker.paragraphs(plan[0]), [], [maker.part(part) for part in plan[1]]
    )


def article(number: int, text: str, *more: str) -> Article:
    paragraphs = [Paragraph(each, Place(number * 100, number * 100 + 90, 1)) for each in (text, *more)]
    return Article(
        str(number), str(number), f"Artículo {number}", Place(number * 100, number * 100 + 99, 1), "", paragraphs
    )


def chapter(number: str, *children: Article | Division, text: str = "") -> Division:
    own = [Paragraph(text, Place(0, 0, 1))] if text else []
    return Division("chapter", number, f"CAPÍTULO {number}", Place(0, 0, 1), "", own, list(children))


def law(*children: Article | Division, preamble: str = "") -> CanonicalLaw:
    own = [Paragraph(preamble, Place(0, 0, 1))] if preamble else []
    return CanonicalLaw("Ley", "es", "characters", own, [], list(children))


class _Maker:
    def __init__(self) -> None:
        self._at, self._numbering = count(), Numbering()

    def _place(self) -> Place:
        at = next(self._at)
        return Place(at * 10, at * 10 + 9, 1 + at // 4)

    def paragraphs(self, texts: Sequence[int]) -> list[Paragraph]:
        return [Paragraph(TEXTS[text], self._place()) for text in texts]

    def part(self, plan: tuple[object, ...]) -> Division | Article:
        kind, title, inner, texts = plan
        place = self._place()
        assert isinstance(title, str)
        assert isinstance(texts, list)
        if kind == "article":
            identity, number = self._numbering.assign(str(inner))
            return Article(identity, number, title, place, "", self.paragraphs(texts))
        assert isinstance(inner, list)
        own = self.paragraphs(texts)
        return Division("chapter", "1", title, place, "", own, [self.part(part) for part in inner])
