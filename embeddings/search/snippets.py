"""Snippets: whole sentences, list items or table rows around the best sentence of a passage, as text and as HTML."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from embeddings.search.passage_sentences import Kind, Sentence

MAX_CHARS = 320  # of a snippet, unless its best sentence alone is longer
MAX_SENTENCE_CHARS = 900  # of the best sentence: beyond, it ends at a word with an ellipsis
MAX_CELL_CHARS = 300
MAX_COLUMNS = 12


@dataclass(frozen=True, slots=True)
class Snippet:
    """``html`` has paragraphs, lists and tables, the best sentence in ``<mark>``; nothing of the text is markup."""

    text: str
    html: str


NO_SNIPPET = Snippet("", "")


def render_snippet(sentences: Sequence[Sentence], best: Sentence, *, is_marked: bool = True) -> Snippet:
    """Return the snippet of a passage's sentences in reading order, of which ``best`` is one."""
    marked = best if is_marked else None
    if best.kind == Kind.ROW:
        return Snippet(cut_text(best.text), render_table([best], marked))
    chosen = _around(sentences, best)
    lead = [escape(cut_text(best.lead))] if best.kind == Kind.ITEM and best.lead else []
    html = [f"<p>{text}</p>" for text in lead]
    for is_list, group in groupby(chosen, key=lambda each: each.kind == Kind.ITEM):
        shown = [_mark(cut_text(each.text), each is marked) for each in group]
        html.append(_list(shown) if is_list else f"<p>{' '.join(shown)}</p>")
    text = " ".join(cut_text(each) for each in ([best.lead] if lead else []) + [each.text for each in chosen])
    return Snippet(text, "".join(html))


def render_table(rows: Sequence[Sentence], best: Sentence | None = None) -> str:
    """Return rows of one table as HTML with their column heads, the best one marked."""
    columns = [at for at in range(_width(rows)) if any(_cell(row.cells, at) for row in rows)][:MAX_COLUMNS]
    heads = [_cell(rows[0].heads, at) for at in columns]
    header = f"<thead><tr>{_cells('th', map(escape, heads))}</tr></thead>" if any(heads) else ""
    body = "".join(
        f"<tr>{_cells('td', (_mark(_cell(row.cells, at), row is best) for at in columns))}</tr>" for row in rows
    )
    return f"<table>{header}<tbody>{body}</tbody></table>"


def cut_text(text: str, limit: int = MAX_SENTENCE_CHARS) -> str:
    return text if len(text) <= limit else text[:limit].rpartition(" ")[0] + "…"


def _around(sentences: Sequence[Sentence], best: Sentence) -> list[Sentence]:
    """Return the best sentence with its neighbours of the same section that fit: those after it come first."""
    first = last = next(number for number, each in enumerate(sentences) if each is best)
    section = best.text if best.kind == Kind.HEADING else best.title
    kinds = (Kind.ITEM,) if best.kind == Kind.ITEM else (Kind.SENTENCE, Kind.ITEM)
    room = MAX_CHARS - len(best.text)
    for step in (1, -1):
        while 0 <= (edge := (last if step > 0 else first) + step) < len(sentences):
            neighbour = sentences[edge]
            if neighbour.kind not in kinds or neighbour.title != section or len(neighbour.text) >= room:
                break
            room -= len(neighbour.text) + 1
            first, last = min(first, edge), max(last, edge)
    return list(sentences[first : last + 1])


def _mark(text: str, is_best: bool) -> str:
    return f"<mark>{escape(text)}</mark>" if is_best and text else escape(text)


def _list(items: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>"


def _width(rows: Sequence[Sentence]) -> int:
    return max(len(row.cells) for row in rows)


def _cell(cells: Sequence[str], at: int) -> str:
    return cut_text(cells[at], MAX_CELL_CHARS) if at < len(cells) else ""


def _cells(tag: str, cells: Iterable[str]) -> str:
    return "".join(f"<{tag}>{cell}</{tag}>" for cell in cells)
