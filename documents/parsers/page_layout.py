"""Pages as markdown by LiteParse, with our own tables (`table_grids`) in the place of its blocks."""

from dataclasses import dataclass
from statistics import median
from typing import Any

from liteparse._liteparse import LiteParse  # its Python wrapper copies every object: a third of the speed

from documents.parsers import table_grids
from documents.parsers.table_grids import Box, Table, Word

INSIDE = 0.5  # of a block's words; a block with fewer only touches a table
TITLE_SIZE = 1.25  # of the usual height of the page's words
LONGEST_TITLE = 60
CONTINUED = 12.0  # points by which the columns of a table and of its continuation may differ
_PIPE_ESCAPES = str.maketrans({"|": "\\|", "\n": " "})


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a page in reading order."""

    box: Box
    markdown: str
    table: Table | None = None


def create_parser() -> Any:
    """Return a LiteParse parser. It opens files (its event loop), so no later than they are forbidden."""
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


def parse_pages(parser: Any, data: bytes) -> dict[int, str]:
    """Return the markdown of each page, from 0, that LiteParse can read. Raises what it raises."""
    pages, last = {}, None
    for page in parser.parse_bytes(data).pages:
        blocks = _page_blocks(page)
        blocks, last = _repeat_header(blocks, last), _last_table(blocks)
        pages[page.page_num - 1] = "\n\n".join(block.markdown for block in blocks if block.markdown)
    return pages


def _page_blocks(page: Any) -> list[Block]:
    words = [
        Word(word.text, Box(word.x, word.y, word.x + word.width, word.y + word.height))
        for item in page.text_items
        for word in item.words
    ]
    tables = table_grids.find_tables(words, map(_to_rule, page.vector_graphics.lines))
    blocks: list[Block] = []
    waiting = sorted(tables, key=lambda table: (table.box.y0, table.box.x0))
    for block in page.blocks:
        box = _to_box(block.bbox)
        touched = [table for table in tables if table_grids.overlap(table.box, box)]
        if not touched:
            blocks.append(Block(box, _render(block, is_title=_is_title(block, words))))
            continue
        inside, outside = _split_words(words, box, touched)
        for table in [table for table in touched if table in waiting]:
            waiting.remove(table)
            blocks.append(Block(table.box, _render_table(table.rows), table))
        if not inside:
            blocks.append(Block(box, _render(block, is_title=False)))
        elif outside:
            # Where LiteParse took words of a table and of the text around it for one block.
            place = len(blocks) - len(touched) if outside[0].box.y0 < touched[0].box.y0 else len(blocks)
            blocks.insert(max(place, 0), Block(box, table_grids.join_words(outside)))
    return blocks + [Block(table.box, _render_table(table.rows), table) for table in waiting]


def _split_words(words: list[Word], box: Box, tables: list[Table]) -> tuple[list[Word], list[Word]]:
    """Return the block's words that stand in a table, and the others."""
    inside: list[Word] = []
    outside: list[Word] = []
    for word in words:
        center = word.box.center
        if box.contains(center, margin=0.5):
            (inside if any(table.box.contains(center) for table in tables) else outside).append(word)
    return inside, outside


def _last_table(blocks: list[Block]) -> Table | None:
    """Return the table at the foot of the page, above no more than a footer."""
    tables = [block.table for block in blocks[-3:] if block.table]
    return tables[-1] if tables else None


def _repeat_header(blocks: list[Block], last: Table | None) -> list[Block]:
    """Give a table that continues the last one of the page before, without its header, that header."""
    for index, block in enumerate(blocks[:3]):
        table = block.table
        if table and last and _continues(table, last) and table.rows[0] != last.rows[0]:
            rows = [last.rows[0], *table.rows]
            return [*blocks[:index], Block(block.box, _render_table(rows), table), *blocks[index + 1 :]]
    return blocks


def _continues(table: Table, last: Table) -> bool:
    near = abs(table.box.x0 - last.box.x0) + abs(table.box.x1 - last.box.x1) < CONTINUED
    return near and len(table.rows[0]) == len(last.rows[0])


def _is_title(block: Any, words: list[Word]) -> bool:
    """Tell whether a paragraph is one large line: LiteParse wants a heading to be some ten letters long."""
    if block.kind != "paragraph" or len(block.text) > LONGEST_TITLE or not any(map(str.isalpha, block.text)):
        return False
    usual = median(word.box.y1 - word.box.y0 for word in words)
    inside = [word for word in words if _to_box(block.bbox).contains(word.box.center, margin=0.5)]
    is_line = bool(inside) and block.bbox.height < 1.5 * min(word.box.y1 - word.box.y0 for word in inside)
    return is_line and min(word.box.y1 - word.box.y0 for word in inside) >= TITLE_SIZE * usual


def _render(block: Any, *, is_title: bool) -> str:
    if is_title:
        return f"# {block.text}"
    if block.kind == "heading":
        return f"{'#' * (block.level or 1)} {block.text}"
    if block.kind == "list_item":
        marker = block.marker if block.ordered else "-"
        return f"{'  ' * (block.level or 0)}{marker} {block.text}"
    if block.kind == "table":
        rows = [block.header, *block.rows] if block.header else block.rows
        return _render_table([[cell.text for cell in row] for row in rows])
    if block.kind in ("code", "grid_fallback"):
        return "\n".join(["```", *block.lines, "```"]) if not any("```" in line for line in block.lines) else ""
    if block.kind == "rule":
        return "---"
    text = block.text or ""
    return f"**{text}**" if block.bold and text else text


def _render_table(rows: list[list[str]]) -> str:
    width = max(map(len, rows))
    lines = [
        "| " + " | ".join(cell.translate(_PIPE_ESCAPES).strip() for cell in [*row, *[""] * (width - len(row))]) + " |"
        for row in rows
    ]
    return "\n".join([lines[0], "|" + "---|" * width, *lines[1:]])


def _to_box(box: Any) -> Box:
    return Box(box.x, box.y, box.x + box.width, box.y + box.height) if box else Box(0.0, 0.0, 0.0, 0.0)


def _to_rule(line: Any) -> Box:
    return Box(min(line.x1, line.x2), min(line.y1, line.y2), max(line.x1, line.x2), max(line.y1, line.y2))
