"""Pages as markdown by LiteParse, with our own tables (`table_grids`) in the place of its blocks."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, pairwise, takewhile
from statistics import median
from typing import Any

from liteparse._liteparse import LiteParse  # its Python wrapper copies every object: a third of the speed

from documents.parsers import aligned_tables, table_checks, table_grids
from documents.parsers.reading_order import TITLE_GAP, Region, Run, split_title, split_words
from documents.parsers.rulings import SNAP
from documents.parsers.table_grids import Box, DownwardWord, Line, Table, UpwardWord, Word

TITLE_SIZE = 1.25  # of the usual height of the page's words
LONGEST_TITLE = 60
TOUCHING = 0.05  # of a word's height
ITEM_GAP = 0.5  # of a line's height
CONTINUED = 12.0  # points by which the columns of a table and of its continuation may differ
_PAGE_NUMBER = re.compile(r"[. ]*\d{1,3}")
_new = tuple.__new__  # of a NamedTuple in half of the time, for each word of a page
_PIPE_ESCAPES = str.maketrans({"|": "\\|", "\n": " "})


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a page in reading order."""

    box: Box
    markdown: str
    table: Table | None = None
    is_table: bool = False  # one of LiteParse's
    level: int = 0  # of a heading


@dataclass(frozen=True, slots=True)
class PageLayout:
    """One page as LiteParse reads it; its runs, headings and tables serve to put it in another order."""

    markdown: str
    page: Any
    blocks: list[Block]

    def runs(self) -> list[Run]:
        """Return the pieces of its lines."""
        return _to_runs(self.page.text_items)

    def rules(self) -> list[Box]:
        """Return the lines that are drawn."""
        return [_to_rule(line) for line in self.page.vector_graphics.lines]

    def headings(self) -> list[Region]:
        """Return the headings."""
        return [_to_region(block.box, block.markdown.lstrip("# "), block.level) for block in self.blocks if block.level]

    def tables(self) -> list[Region]:
        """Return our own tables and those of LiteParse."""
        return [_to_region(block.box, block.markdown) for block in self.blocks if block.table or block.is_table]


@cache
def shared_parser() -> Any:
    """Return the LiteParse parser, which opens files (its event loop): call before they are forbidden.

    The forks of a process that has it use it too. They must not free it: that waits for the event loop's threads,
    which no fork has.
    """
    return LiteParse(
        ocr_enabled=False,
        output_format="markdown",
        quiet=True,
        num_workers=1,
        continue_on_page_error=True,
        image_mode="off",
        extract_links=False,
        keep_headers_footers=True,  # `running_headers` keeps the first of them
        extract_blocks=True,
        emit_word_boxes=True,
        extract_vector_graphics=True,
    )


def parse_pages(data: bytes) -> dict[int, PageLayout]:
    """Return the layout of each page, from 0, that LiteParse can read. Raises what it raises.

    A page on which our own search for tables fails is left out, too.
    """
    pages: dict[int, PageLayout] = {}
    last, titles = None, tuple[str, ...]()
    levels: dict[int, int] = {}
    for page in shared_parser().parse_bytes(data).pages:
        try:
            blocks = _page_blocks(page, levels)
        except Exception:  # one page must not cost all others their tables; it is reported as doubtful
            last = None
            continue
        blocks = _repeat_header(blocks, last, titles)
        last = _last_table(blocks)
        titles = tuple(block.markdown.lstrip("# ") for block in blocks if block.level)
        markdown = "\n\n".join(block.markdown for block in blocks if block.markdown)
        pages[page.page_num - 1] = PageLayout(markdown, page, blocks)
    return pages


def _page_blocks(page: Any, levels: dict[int, int]) -> list[Block]:
    """``levels``: those of the headings so far, by the height of their words."""
    items = page.text_items  # LiteParse copies the list whenever it is asked for it
    words = [
        _new(Word, (word.text, _new(Box, (x := word.x, y := word.y, x + word.width, y + word.height))))
        for item in items
        for word in item.words
    ]
    heights = [y1 - y0 for _, (_, y0, _, y1) in words]
    least = TITLE_SIZE * median(heights) if words else 0.0
    large = [word for word, height in zip(words, heights, strict=True) if height >= least]
    boxes = [(block, _to_box(block.bbox)) for block in page.blocks]
    titles = [box for block, box in boxes if block.kind == "heading" or _is_title(block, box, words, large)]
    boxes_turned = [(_to_box(item), item.rotation % 360 > 180) for item in items if 45 < item.rotation % 180 < 135]
    upright, turned = list[Word](), list[Word]()
    for word in _join_torn(words):
        goes_up = next((up for box, up in boxes_turned if box.contains(word.box.center)), None)
        if goes_up is None:
            upright.append(word)
        else:
            turned.append((UpwardWord if goes_up else DownwardWord)(*word))
    tables = find_tables(upright, map(_to_rule, page.vector_graphics.lines), titles, turned)
    blocks: list[Block] = []
    runs = _to_runs(items) if any(block.kind == "heading" for block, _ in boxes) else []
    runs.sort(key=lambda run: (run.y0, run.x0))
    for block, box in boxes:
        touched = [table for table in tables if table_grids.overlap(table.box, box)]
        inside = _words_within(words, box) if touched else []
        outside = [word for word in inside if not any(table.box.contains(word.box.center) for table in touched)]
        if len(inside) != len(outside):  # a table, or words of one together with the text around it
            blocks += _split_text(outside, touched, least, levels)
        elif block.kind == "heading":
            levels.setdefault(_height(_words_within(large, box)), block.level or 1)
            first, *others = _split_heading(block, runs)
            if blocks and _is_wrapped(blocks[-1], first):
                first = _join_titles(blocks.pop(), first)
            blocks += [first, *others]
        else:
            is_title = not touched and box in titles
            level = levels.get(_height(_words_within(large, box)), 1) if is_title else 0
            markdown = _render_item(block, box, words) if block.kind == "list_item" else _render(block, level)
            blocks.append(Block(box, markdown, is_table=markdown.startswith("|"), level=level))
    for table in sorted(tables, key=lambda table: (table.box.y0, table.box.x0)):
        title = f"**{table.title}**\n\n" if table.title else ""
        blocks.insert(_find_place(blocks, table.box), Block(table.box, title + render_table(table.rows), table))
    return blocks


def _join_torn(words: list[Word]) -> list[Word]:
    """Return the words without leaders, and one where LiteParse has parted a number before its point."""
    if not any(text.startswith(".") for text, _ in words):
        return words
    joined: list[Word] = []
    for word in words:
        text, box = word
        before = joined[-1] if joined and text[0] == "." else None
        if before and abs(box.x0 - before.box.x1) < TOUCHING * box.height + 0.1 and abs(box.y0 - before.box.y0) < SNAP:
            joined[-1] = Word(before.text + text, table_grids.bounds([before.box, box]))
        elif text[0] == "." and not text[1:2].isalnum():  # ".$10", and leaders, which stand low
            joined += [Word(rest, box)] if (rest := text.lstrip(".")) else []
        else:
            joined.append(word)
    return joined


def find_tables(
    words: Sequence[Word], rules: Iterable[Box], headings: Sequence[Box] = (), turned: Iterable[Word] = ()
) -> list[Table]:
    """Return the ruled tables and, in each frame and in the words outside, between the headings, the aligned ones.

    ``turned``: words that go up or down, which are in ruled tables only.
    """
    rules = list(rules)
    tables, frames = table_grids.find_ruled_tables([*words, *turned], rules)
    framed: list[Table] = []
    for frame in frames:
        if not any(table_grids.overlap(frame, table.box) for table in framed):
            framed += aligned_tables.find_aligned_tables(_words_within(words, frame), headings, rules)
    closed = [table for table in tables if not table.is_open]
    framed = [table for table in framed if not _overlaps(table, closed)]
    rest = words
    if closed or framed:
        rest = [word for word in words if not any(table.box.contains(word.box.center) for table in closed + framed)]
    aligned = aligned_tables.find_aligned_tables(rest, headings, rules)
    aligned = framed + [table for table in aligned if not _overlaps(table, closed + framed)]
    for table in tables:
        others = [other for other in aligned if table_grids.overlap(table.box, other.box)]
        if table.is_open and not any(_replaces(other, table) for other in others):
            closed.append(table)
            aligned = [other for other in aligned if other not in others]
    return closed + aligned


def _replaces(table: Table, grid: Table) -> bool:
    """Tell whether a table without lines has all columns of a grid, and most of its height."""
    common = min(table.box.y1, grid.box.y1) - max(table.box.y0, grid.box.y0)
    return len(table.rows[0]) >= len(grid.rows[0]) and common > 0.5 * grid.box.height


def _overlaps(table: Table, others: Iterable[Table]) -> bool:
    return any(table_grids.overlap(table.box, other.box) for other in others)


def _words_within(words: Sequence[Word], box: Box) -> list[Word]:
    left, top, right, bottom = (2 * edge for edge in (box.x0 - 0.5, box.y0 - 0.5, box.x1 + 0.5, box.y1 + 0.5))
    return [  # some four times as fast as with the names
        word for word in words if left <= word[1][0] + word[1][2] <= right and top <= word[1][1] + word[1][3] <= bottom
    ]


def _split_text(words: list[Word], tables: list[Table], least: float, levels: dict[int, int]) -> list[Block]:
    """Return the words between the tables as paragraphs, and a first line of words of the ``least`` height as title."""
    parts: dict[int, list[Word]] = defaultdict(list)
    for word in words:
        parts[sum(table.box.center[1] < word.box.center[1] for table in tables)].append(word)
    blocks: list[Block] = []
    for _, part in sorted(parts.items()):
        lines = [line.words for line in table_grids.group_lines(part)]
        title = list(takewhile(lambda line: min(word.box.height for word in line) >= least, lines))
        rest = [word for line in lines[len(title) :] for word in line]
        for texts in filter(None, (list(chain.from_iterable(title)), rest)):
            box, text = table_grids.bounds([word.box for word in texts]), table_grids.join_words(texts)
            is_title = texts is not rest and len(text) <= LONGEST_TITLE and any(map(str.isalpha, text))
            level = levels.get(_height(texts), 1) if is_title else 0
            blocks.append(Block(box, f"{'#' * level} {text}" if level else text, level=level))
    return blocks


def _height(words: list[Word]) -> int:
    return round(max((word.box.height for word in words), default=0.0))


def _find_place(blocks: list[Block], box: Box) -> int:
    """Return the place after the last block above the table, or else before the first one below it."""
    beside = [(n, block.box) for n, block in enumerate(blocks) if block.box.x0 < box.x1 and block.box.x1 > box.x0]
    above = [n + 1 for n, other in beside if other.center[1] < box.y0]
    below = [n for n, other in beside if other.center[1] > box.y1]
    return above[-1] if above else below[0] if below else len(blocks)


def _last_table(blocks: list[Block]) -> Table | None:
    """Return the table at the foot of the page, above no more than a footer."""
    tables = [block.table for block in blocks[-3:] if block.table]
    return tables[-1] if tables else None


def _repeat_header(blocks: list[Block], last: Table | None, titles: tuple[str, ...]) -> list[Block]:
    """Give a table that continues the last one of the page before, without its header, that header.

    A title that is none of that page's ``titles`` begins another table.
    """
    for index, block in enumerate(blocks[:3]):
        table = block.table
        if block.level and not block.markdown.lstrip("# ").startswith(titles):
            break
        if table and last and _continues(table, last) and table.rows[0] != last.rows[0]:
            header = _header(last.rows)
            if any(_PAGE_NUMBER.fullmatch(cell) for cell in header[0][1:]):
                break  # an entry of a table of contents
            rows = [*header, *table.rows]
            continued = Block(block.box, render_table(rows), replace(table, rows=rows))
            return [*blocks[:index], continued, *blocks[index + 1 :]]
    return blocks


def _header(rows: list[list[str]]) -> list[list[str]]:
    """Return the first row, and the second one if the first has heads that span columns."""
    is_double = any(left and left == right for left, right in pairwise(rows[0]))
    return rows[: 2 if is_double and len(rows) > 2 else 1]


def _continues(table: Table, last: Table) -> bool:
    if len(table.rows[0]) != len(last.rows[0]):
        return False
    if table.columns and last.columns:  # without lines: as wide as their longest texts
        return all(
            (one[0] < other[1] and other[0] < one[1]) == (n == m)
            for n, one in enumerate(table.columns)
            for m, other in enumerate(last.columns)
        )
    return abs(table.box.x0 - last.box.x0) + abs(table.box.x1 - last.box.x1) < CONTINUED


def _is_title(block: Any, box: Box, words: list[Word], large: list[Word]) -> bool:
    """Tell whether a paragraph is one line of ``large`` words: LiteParse wants headings of some ten letters."""
    if block.kind != "paragraph" or len(block.text) > LONGEST_TITLE or not any(map(str.isalpha, block.text)):
        return False
    inside = _words_within(large, box)
    if not inside or len(inside) != len(_words_within(words, box)):
        return False
    return bool(block.bbox.height < 1.5 * min(word.box.height for word in inside))


def _render(block: Any, level: int = 0) -> str:
    """``level``: of a paragraph that is a title."""
    if level:
        return f"{'#' * level} {block.text}"
    if block.kind == "heading":
        return f"{'#' * (block.level or 1)} {block.text}"
    if block.kind == "list_item":
        marker = block.marker if block.ordered else "-"
        return f"{'  ' * (block.level or 0)}{marker} {block.text}"
    if block.kind == "table":
        rows = [block.header, *block.rows] if block.header else block.rows
        width = max(map(len, rows))
        texts = [[*(cell.text for cell in row), *[""] * (width - len(row))] for row in rows]
        if any(len(cell.split()) > table_grids.MAX_CELL_WORDS for row in texts for cell in row):
            return "\n\n".join(cell for column in zip(*texts, strict=True) for cell in column if cell)  # text
        if table_checks.has_bullets(texts):
            return "\n".join(" ".join(filter(None, row)) for row in texts)
        return render_table(table_grids.join_wrapped(texts))
    if block.kind in ("code", "grid_fallback"):
        return "\n".join(["```", *block.lines, "```"]) if not any("```" in line for line in block.lines) else ""
    if block.kind == "rule":
        return "---"
    text = block.text or ""
    return f"**{text}**" if block.bold and text else text


def _render_item(block: Any, box: Box, words: list[Word]) -> str:
    """Return the item, and apart from it the paragraph below that LiteParse took for its last lines."""
    lines = table_grids.group_lines(_words_within(words, box))
    start = next((n for n, pair in enumerate(pairwise(lines), 1) if _ends_item(lines[0], *pair)), len(lines))
    rest = sum(map(str.isalnum, "".join(word.text for line in lines[start:] for word in line.words)))
    place = len(block.text)
    while rest and place:
        place -= 1
        rest -= block.text[place].isalnum()
    item, paragraph = _render(block).removesuffix(block.text[place:]).rstrip(), block.text[place:]
    is_whole = not rest and item.count("*") % 2 == 0
    return f"{item}\n\n{paragraph}" if paragraph and is_whole else _render(block)


def _ends_item(first: Line, above: Line, line: Line) -> bool:
    """Tell whether a line stands left of the item's mark, or below the mark after a space."""
    indent = line.segments[0].x0 - first.segments[0].x0
    return indent < -SNAP or (indent < SNAP and line.y0 - above.y1 > ITEM_GAP * (line.y1 - line.y0))


def render_table(rows: list[list[str]]) -> str:
    """Return a pipe table, its first row the head."""
    lines = ["| " + " | ".join(cell.translate(_PIPE_ESCAPES).strip() for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def _to_box(box: Any) -> Box:
    return Box(box.x, box.y, box.x + box.width, box.y + box.height) if box else Box(0.0, 0.0, 0.0, 0.0)


def _to_runs(items: Iterable[Any]) -> list[Run]:
    return [
        Run(item.text, box.x0, box.y0, box.x1, box.y1, item.font_size or item.height, _is_bold(item))
        for item in items
        if item.text.strip()
        for box in (_to_box(item),)
    ]


def _split_heading(block: Any, runs: list[Run]) -> list[Block]:
    """Return a block for each title that LiteParse joined into one."""
    level, box = block.level or 1, _to_box(block.bbox)
    titles = split_title(_runs_of(block.text, box, runs))
    if not titles:
        return [Block(box, _render(block), level=level)]
    if len(titles) == 1:
        return [Block(_around(titles[0]), _render(block), level=level)]
    texts = (" ".join(run.text.strip() for run in title) for title in titles)
    return [
        Block(_around(title), f"{'#' * level} {text}", level=level) for title, text in zip(titles, texts, strict=True)
    ]


def _is_wrapped(title: Block, rest: Block) -> bool:
    """Tell whether LiteParse took the second line of a title for a title of its own."""
    gap = rest.box.y0 - title.box.y1
    text = rest.markdown.lstrip("# ")
    return bool(title.level) and text[:1].islower() and abs(gap) < TITLE_GAP * (rest.box.y1 - rest.box.y0)


def _join_titles(title: Block, rest: Block) -> Block:
    box = Box(title.box.x0, title.box.y0, max(title.box.x1, rest.box.x1), rest.box.y1)
    return Block(box, f"{title.markdown} {rest.markdown.lstrip('# ')}", level=title.level)


def _around(runs: list[Run]) -> Box:
    return table_grids.bounds([Box(run.x0, run.y0, run.x1, run.y1) for run in runs])


def _runs_of(text: str, box: Box, runs: list[Run]) -> list[Run]:
    """Return the runs of a title, of ``runs`` from top to bottom; its box has the first line only."""
    rest, of_title = "".join(split_words(text)), list[Run]()
    for run in runs:
        if not rest:
            break
        if run.y1 <= box.y0:
            continue
        words = "".join(split_words(run.text))
        if words and rest.startswith(words):
            rest = rest[len(words) :]
            of_title.append(run)
    return of_title if not rest else []


def _to_region(box: Box, markdown: str, level: int = 0) -> Region:
    return Region(box.x0, box.y0, box.x1, box.y1, markdown, level)


def _is_bold(item: Any) -> bool:
    return "bold" in (item.font_name or "").lower()


def _to_rule(line: Any) -> Box:
    return Box(min(line.x1, line.x2), min(line.y1, line.y2), max(line.x1, line.x2), max(line.y1, line.y2))
