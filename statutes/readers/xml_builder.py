"""Where what an XML element holds goes to, in reading order."""

from __future__ import annotations

from statutes.structure.model import RANKS, Article, Division, Paragraph, Place


class LawBuilder:
    """Where the articles of an element go: into it, or into the division that a mere heading among them began."""

    def __init__(self, children: list[Division | Article], before: list[Paragraph], label: str = "") -> None:
        self._own, self._before, self._label = children, before, label
        self._open: list[Division] = []

    @property
    def children(self) -> list[Division | Article]:
        return self._open[-1].children if self._open else self._own

    @property
    def label(self) -> str:
        return self._open[-1].label if self._open else self._label

    def add_text(self, paragraph: Paragraph, label: str = "") -> None:
        """Add what is in no article: before the first one it is the division's own, later on a text in its place.

        A ``label`` is all that it says.
        """
        if not self.children:
            (self._open[-1].paragraphs if self._open else self._before).append(paragraph)
            return
        last = self.children[-1]
        if label or not (isinstance(last, Division) and last.kind == "text"):
            last = Division("text", "", label, paragraph.place)
            self.children.append(last)
        if not label:
            last.paragraphs.append(paragraph)
        last.place = last.place.upto(paragraph.place)
        self._stretch(paragraph.place)

    def open_division(self, division: Division) -> None:
        self.close_divisions(division)
        self.children.append(division)
        self._open.append(division)

    def close_divisions(self, other: Division) -> None:
        """End what the other division cannot stand in."""
        while self._open and RANKS[self._open[-1].kind] >= RANKS[other.kind]:
            self._open.pop()

    def add_article(self, article: Article) -> None:
        self.children.append(article)
        self._stretch(article.place)

    def _stretch(self, where: Place) -> None:
        for division in self._open:
            division.place = division.place.upto(where)
