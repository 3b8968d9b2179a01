"""Markdown splitter: walks over a text and fits chunk after chunk under the limit of tokens.

The end of a chunk depends on the text near it alone, not on the chunks before: text behind a changed page is split as
before, from the first boundary on that both splits choose.
"""

import re
from dataclasses import dataclass

from embeddings import tokenizer
from embeddings.chunking.boundaries import Window, best_boundary
from embeddings.chunking.markdown_structure import Block, Heading, Structure

_NONSPACE = re.compile(r"\S")
_SENTENCE_START = re.compile(r"""[.!?]["')\]]*+\s++(?=\S)""")
_LINE_START = re.compile(r"\n\s*+(?=\S)")
_DEEPEST_INDENT = 16  # characters; deeper ones are not worth their tokens
_LONGEST_TITLE = 200  # characters of a heading in a path; a path is repeated in every chunk of a section
_LONGEST_TOKEN = 64  # characters a token on average; only runs of one character fit more of them in a chunk
_SAMPLE = 192  # characters before a chunk that are counted to know how far an overlap reaches
_FEWEST_CHARACTERS = 32  # four bytes each are 128 tokens at most: with any header, that fits


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """How large chunks are, in tokens. ``target`` is the most for a chunk's whole text: header, overlap and all."""

    target: int
    overlap: int  # repeated from the same section, whole sentences or lines
    small: int  # a heading closer than this to the chunk's start does not end it
    largest_header: int  # a larger table header is not repeated, or hostile tables would multiply


class Splitter:
    """Walks over one text. `span` is the length of text that fills the target, at the density of the present place."""

    def __init__(self, text: str, sizes: ChunkSizes) -> None:
        self.text = text
        self.sizes = sizes
        self.end = len(text.rstrip())
        self.structure = Structure(text)
        self.path: list[Heading] = []
        self.span = 0
        self._seen = 0
        self._last_start = 0
        self._header_tokens: tuple[int, int] = (-1, 0)

    def next_start(self, end: int) -> int:
        """Return where what follows end starts, with its indent if a new line does."""
        match = _NONSPACE.search(self.text, end)
        if not match:
            return self.end
        visible = match.start()
        line = self.text.rfind("\n", end, visible) + 1
        if (line or not end) and visible - line <= _DEEPEST_INDENT:
            return line
        return visible

    def next_chunk(self, at: int) -> tuple[int, int, int, tuple[int, int] | None]:
        """Return start, end, tokens and repeated header of the chunk whose new text starts at `at`."""
        self._enter_sections(at)
        header, used = self._header(at)
        start = at if header else self._overlap_start(at)
        start, end, count = self._fit(start, at, self.text[slice(*header)] if header else "", used)
        self._last_start = at
        return start, end, count, header

    def _fit(self, start: int, at: int, prefix: str, used: int) -> tuple[int, int, int]:
        """Count a sample, guess a window from it, count what that holds, and correct it: once upwards, then down."""
        target, room = self.sizes.target, self.sizes.target - used
        # A sample of as many characters as the target has tokens: more would often be counted twice.
        sample_end = min(start + target, self.end)
        last = start, sample_end, tokenizer.count_tokens(prefix + self.text[start:sample_end])
        self.span = max(_FEWEST_CHARACTERS, (sample_end - start) * target // max(last[2] - used, 1))
        reach = self.span * room * 15 // (16 * target)
        fit, grown = (0, 0, 0), False
        while True:
            if (at - start) * 3 > reach:
                start = at
            start, end = self._choose(start, at, start + reach)
            count = self._count(prefix, start, end, last)
            last = start, end, count
            guess = (end - start) * room * 15 // (16 * max(count - used, 1))
            if count <= target:
                fit = max(fit, (end, start, count))
                if grown or end >= self.end or guess * 3 < reach * 4:
                    break
                reach, grown = min(guess, reach * 4), True
            elif fit[0]:
                break
            else:
                reach, grown = max(min(guess, (end - start) * 7 // 8), _FEWEST_CHARACTERS), True
        return fit[1], fit[0], fit[2]

    def _count(self, prefix: str, start: int, end: int, last: tuple[int, int, int]) -> int:
        """Count prefix + text[start:end], building on the last try where that saves reading it all again."""
        if start == last[0] and last[1]:
            count = tokenizer.recount_tokens(self.text, start, last[1], end, last[2])
            if count >= 0:
                return count
        return tokenizer.count_tokens(prefix + self.text[start:end])

    def _choose(self, start: int, at: int, limit: int) -> tuple[int, int]:
        """Return the best start and end of a chunk that may reach limit."""
        if limit >= self.end:
            return start, self.end
        if whole := self._whole_block_end(at, limit):
            return at, whole
        reach = limit - start
        # A remainder smaller than an overlap would be a stub.
        high = max(min(limit, self.end - self.span * self.sizes.overlap // self.sizes.target), at + 1)
        half = max(start + reach // 2, at + 1)
        low = max(start + reach * self.sizes.small // self.sizes.target, at + 1)
        end = best_boundary(self.structure, Window(at, low, half, high), self._fits)
        return start, at + len(self.text[at:end].rstrip())

    def _whole_block_end(self, at: int, limit: int) -> int:
        """Return the end of a fence or table at `at`, headings aside, that limit would cut though a chunk holds it."""
        for blocks in (self.structure.fences, self.structure.tables):
            block = blocks.first_from(at)
            if not block or not block.start <= limit < block.end:
                continue
            if self.structure.above_headings(block.start, at) == at and self._fits(block._replace(start=at)):
                return at + len(self.text[at : block.end].rstrip())
        return 0

    def _fits(self, block: Block) -> bool:
        size, target = block.end - block.start, self.sizes.target
        return size <= _LONGEST_TOKEN * target and tokenizer.fits_in_tokens(self.text[block.start : block.end], target)

    def _enter_sections(self, at: int) -> None:
        for heading in self.structure.headings(self._seen, at + 1):
            while self.path and self.path[-1].level >= heading.level:
                self.path.pop()
            self.path.append(heading._replace(title=heading.title.rstrip("# ")[:_LONGEST_TITLE]))
        self._seen = at + 1

    def _header(self, at: int) -> tuple[tuple[int, int] | None, int]:
        """Return place and tokens of the header that a chunk starting at `at` repeats."""
        table = self.structure.tables.block_at(at)
        if not table or at < table.body:
            return None, 0
        if self._header_tokens[0] != table.start:
            self._header_tokens = table.start, tokenizer.count_tokens(self.text[table.start : table.body])
        used = self._header_tokens[1]
        return ((table.start, table.body), used) if used <= self.sizes.largest_header else (None, 0)

    def _overlap_start(self, at: int) -> int:
        """Return where the last whole sentences or lines before `at` start within its section, outside other blocks."""
        structure = self.structure
        section = self.path[-1].start if self.path else 0
        fence = structure.fences.block_at(at)
        blocks = max(structure.fences.last_end(at), structure.tables.last_end(at), fence.start if fence else 0)
        floor = max(self._last_start + 1, section, blocks)
        if floor < at:
            # Sentences are whole, so the first one that does not fit leaves about the target.
            before = self.text[max(at - _SAMPLE, 0) : at]
            longest = len(before) * self.sizes.overlap * 5 // (4 * max(tokenizer.count_tokens(before), 1))
            floor = max(floor, at - longest)
        if floor >= at:
            return at
        match = _LINE_START.search(self.text, floor - 1, at)
        line = match.end() if match else at
        match = None if fence else _SENTENCE_START.search(self.text, floor - 1, at)
        sentence = match.end() if match else at
        return sentence if at - sentence >= (at - floor) // 2 else min(line, sentence)
