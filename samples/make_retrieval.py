"""Generator of the retrieval set, nine PDFs and their questions: `python -m samples.make_retrieval FOLDER`."""

import re
import shutil
import sys
from pathlib import Path

from reportlab.platypus import Flowable, PageBreak, Paragraph

from samples.layout import BODY, TITLE, Booklet, contents
from samples.make_samples import HERE
from samples.markdown import flowables

SET = HERE / "retrieval"
QUESTIONS = "questions.jsonl"
NOTICE = "{product} is not a real product. This booklet was written to try out Accessa; it covers nobody."


def make(folder: Path) -> Path:
    """Write the set, the same bytes each time. Return the path of the questions."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in (*HERE.glob("*.pdf"), SET / QUESTIONS):
        shutil.copyfile(source, folder / source.name)
    for source in sorted(set(SET.glob("*.md")) - {SET / "README.md"}):
        _booklet(source, folder / f"{source.stem}.pdf")
    return folder / QUESTIONS


def _booklet(source: Path, target: Path) -> None:
    """Write a cover with the contents, then each chapter on a new page; the source begins with `name: value` lines."""
    head, _, text = source.read_text(encoding="utf-8").partition("\n\n")
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    story: list[Flowable] = [Paragraph(fields["title"], TITLE)]
    story += [Paragraph(line, BODY) for line in (f"{fields['product']}, {fields['form']}.", NOTICE.format(**fields))]
    story.append(contents())
    for chapter in re.split(r"^(?=# )", text, flags=re.MULTILINE)[1:]:
        story += [PageBreak(), *flowables(chapter)]
    Booklet(target, **fields).multiBuild(story)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
