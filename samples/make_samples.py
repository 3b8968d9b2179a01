"""Generator of the three sample PDFs: `python -m samples.make_samples [FOLDER]`."""

import sys
from pathlib import Path

from reportlab.platypus import Flowable, PageBreak, Paragraph

from samples import benefits
from samples.layout import BODY, TITLE, Booklet, contents
from samples.markdown import flowables

HERE = Path(__file__).parent
TEXT = HERE / "text"


def make(folder: Path = HERE) -> None:
    """Write the PDFs, the same bytes on every day."""
    summary = Booklet(folder / "summary_of_benefits.pdf", title="Summary of Benefits", form="Form HMH-SBC-2027-01")
    summary.build(flowables(_read("summary.md")))

    amendment = Booklet(folder / "amendment.pdf", title="Amendment No. 3", form="Form HMH-AMD-2027-03")
    amendment.build(flowables(_read("amendment.md")))

    evidence = Booklet(folder / "evidence_of_coverage.pdf", title="Evidence of Coverage", form="Form HMH-EOC-2027-01")
    evidence.multiBuild(_evidence())


def _evidence() -> list[Flowable]:
    """Written chapters and benefit chapters in the order of their numbers, each on a new page."""
    written = {path.stem: flowables(path.read_text(encoding="utf-8")) for path in (TEXT / "evidence").glob("*.md")}
    chapters = written | {name: benefits.chapter(name) for name in benefits.chapters()}
    story = [*_cover(), contents()]
    for name in sorted(chapters):
        story += [PageBreak(), *chapters[name]]
    return story


def _cover() -> list[Flowable]:
    lines = [
        "Harbor Choice PPO 1500, group form HMH-EOC-2027-01. Plan year January 1 to December 31, 2027.",
        "Harbor Mutual Health is not a real insurer. This booklet was written to try out Accessa; it covers nobody.",
    ]
    return [Paragraph("Evidence of Coverage", TITLE), *[Paragraph(line, BODY) for line in lines]]


def _read(name: str) -> str:
    return (TEXT / name).read_text(encoding="utf-8")


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
