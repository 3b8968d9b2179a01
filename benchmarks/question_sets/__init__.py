"""Question sets over documents of other authors, which are not part of the repository, and questions off topic."""

import re
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import escape

from reportlab.lib.pagesizes import LETTER
from reportlab.platypus import Paragraph, SimpleDocTemplate

from benchmarks import subprocesses
from samples.layout import BODY, TITLE

HERE = Path(__file__).parent
SHARED = subprocesses.ROOT.parent / "shared"  # of the sets handbooks and pages
LICENCES = Path("/usr/share/common-licenses")  # of Debian's base system
NAMES = ("handbooks", "licences", "pages")  # of the retrieval benchmark; the set answers has its own


def open_set(name: str, folder: Path) -> Path:
    """Copy a set's questions and link or print its documents into ``folder``; return the path of the questions.

    Raises ``SystemExit`` with a sentence where the documents are not on this machine.
    """
    lines = (HERE / f"{name}.jsonl").read_text(encoding="utf-8")
    documents = sorted(set(re.findall(r'"document": "([^"]+)"', lines)))
    originals = {each: SHARED / each if "/" in each else LICENCES / each.removesuffix(".pdf") for each in documents}
    if missing := [each for each, path in originals.items() if not path.is_file()]:
        raise SystemExit(f"Skipped: {len(missing)} documents of the set {name} are not in {SHARED} or {LICENCES}.")
    for document, original in originals.items():
        target = folder / document
        target.parent.mkdir(parents=True, exist_ok=True)
        if original.parent == LICENCES:
            _print_text(original, target)
        else:
            target.symlink_to(original.resolve())
    questions = folder / f"{name}.jsonl"
    questions.write_text(lines, encoding="utf-8")
    return questions


def off_topic_questions(*, held_out: bool = False) -> list[str]:
    """Return questions that no document answers, those that chose the floor or those that only report it."""
    name = "off_topic_held_out.txt" if held_out else "off_topic.txt"
    return (HERE / name).read_text(encoding="utf-8").splitlines()


def _print_text(source: Path, target: Path) -> None:
    paragraphs = re.split(r"\n\s*\n", source.read_text(encoding="utf-8").strip())
    title, *rest = (escape(" ".join(each.split())) for each in paragraphs)
    story: Iterable[Paragraph] = [Paragraph(title[:200], TITLE), *(Paragraph(each, BODY) for each in rest)]
    SimpleDocTemplate(str(target), pagesize=LETTER, title=source.name, invariant=1).build(list(story))
