"""Markdown subset of the sample texts, rendered as reportlab flowables."""

import re

from reportlab.platypus import Flowable, Paragraph

from samples import benefits
from samples.layout import BODY, BULLET, HEADINGS, ruled


def flowables(markdown: str) -> list[Flowable]:
    """Headings, paragraphs, lists, pipe tables and {{benefits FILE}}, each block set apart by an empty line."""
    return [flowable for block in re.split(r"\n{2,}", markdown.strip()) for flowable in _block(block)]


def _block(block: str) -> list[Flowable]:
    if heading := re.match(r"(#+) (.*)", block):
        return [Paragraph(_inline(heading[2]), HEADINGS[len(heading[1])])]
    if chapter := re.match(r"\{\{benefits (\w+)\}\}", block):
        return [benefits.summary(chapter[1])]
    if block.startswith("|"):
        return [_table(block)]
    if re.match(r"- |\d+\. ", block):
        return [_item(line) for line in block.splitlines()]
    return [Paragraph(_inline(block), BODY)]


def _item(line: str) -> Paragraph:
    mark, text = line.split(" ", 1)
    return Paragraph(_inline(text), BULLET, bulletText="\u2022" if mark == "-" else mark)


def _table(block: str) -> Flowable:
    rows = [[_inline(cell.strip()) for cell in line.strip("|").split("|")] for line in block.splitlines()]
    del rows[1]  # the line of dashes
    return ruled(rows)


def _inline(text: str) -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escaped)
