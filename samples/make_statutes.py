"""Generator of the sample statutes, one in each format: `python -m samples.make_statutes [FOLDER]`."""

import re
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

from reportlab.lib.pagesizes import LETTER
from reportlab.lib.units import inch
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import BaseDocTemplate, Flowable, PageBreak, Paragraph

from samples.layout import BODY, HEADINGS, MARGIN, RULE, TITLE, Booklet, contents

HERE = Path(__file__).parent
TEXT = HERE / "text" / "statutes"

AKN = "http://docs.oasis-open.org/legaldocml/ns/akn/3.0"
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
CONTENT_TYPES = (
    f'{HEAD}<Types xmlns="{PACKAGE}/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Default Extension="xml" ContentType="application/xml"/>'
    '<Override PartName="/word/document.xml"'
    ' ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
)
RELATIONS = (
    f'{HEAD}<Relationships xmlns="{PACKAGE}/relationships">'
    f'<Relationship Id="rId1" Type="{OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>'
)
_ARTICLE = re.compile(r"(?:Artículo|Section|§) ")


@dataclass
class Block:
    """A division, an article or a paragraph before them; ``lines`` are the text's, the first with the label."""

    kind: str
    lines: list[str] = field(default_factory=list)


def make(folder: Path = HERE / "statutes") -> None:
    """Write the statutes, the same bytes on every day."""
    folder.mkdir(exist_ok=True)
    (folder / "ley-de-ejemplo.docx").unlink(missing_ok=True)
    _write_docx(folder / "ley-de-ejemplo.docx", blocks("ley"))
    (folder / "sample-benefits-act.xml").write_text(_akoma_ntoso(blocks("benefits")), encoding="utf-8")
    act = Gazette(folder / "sample-disclosure-act.pdf", title="Sample Member Disclosure Act", form="Acts of 2027")
    act.multiBuild(_story(blocks("disclosure")))


def blocks(name: str) -> list[Block]:
    """``= `` begins a division, ``+ `` its heading, an empty line ends a block."""
    return [
        _block(text.split("\n")) for text in (TEXT / f"{name}.txt").read_text(encoding="utf-8").strip().split("\n\n")
    ]


def _block(lines: list[str]) -> Block:
    if lines[0].startswith("= "):
        return Block("division", [line[2:] for line in lines])
    return Block("article" if _ARTICLE.match(lines[0]) else "text", lines)


def _write_docx(path: Path, law: list[Block]) -> None:
    paragraphs = "".join(f"<w:p><w:r>{_run(line)}</w:r></w:p>" for block in law for line in block.lines)
    document = f'{HEAD}<w:document xmlns:w="{WORD}"><w:body>{paragraphs}</w:body></w:document>'
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:  # what deflate makes depends on the zlib
        for name, content in (
            ("[Content_Types].xml", CONTENT_TYPES),
            ("_rels/.rels", RELATIONS),
            ("word/document.xml", document),
        ):
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)


def _run(line: str) -> str:
    return f'<w:t xml:space="preserve">{escape(line)}</w:t>'


def _akoma_ntoso(law: list[Block]) -> str:
    title, *more = (line for block in law if block.kind == "text" for line in block.lines)
    body = "\n".join(_divisions([block for block in law if block.kind != "text"]))
    preamble = "".join(f"<p>{escape(line)}</p>" for line in more)
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<akomaNtoso xmlns="{AKN}">\n<act name="act">\n'
        f"<preface><longTitle><p><docTitle>{escape(title)}</docTitle></p></longTitle></preface>\n"
        f"<preamble>{preamble}</preamble>\n<body>\n{body}\n</body>\n</act>\n</akomaNtoso>\n"
    )


def _divisions(law: list[Block]) -> Iterator[str]:
    open_: list[str] = []
    for block in law:
        if block.kind == "article":
            yield _section(block)
            continue
        name = block.lines[0].split()[0].lower()
        while open_ and (name in open_ or name == "part"):
            yield f"</{open_.pop()}>"
        open_.append(name)
        yield f"<{name}><num>{block.lines[0]}</num><heading>{escape(block.lines[1])}</heading>"
    yield from (f"</{name}>" for name in reversed(open_))


def _section(block: Block) -> str:
    _, number, heading = block.lines[0].split(" ", 2)
    number = number.rstrip(".")
    inner = "".join(_paragraph(line) for line in block.lines[1:])
    return (
        f'<section eId="sec_{number}"><num>Section {number}.</num><heading>{escape(heading.rstrip("."))}</heading>'
        f"{inner}</section>"
    )


def _paragraph(line: str) -> str:
    if match := re.match(r"(\([a-z]\)) (.*)", line):
        return f"<paragraph><num>{match[1]}</num><content><p>{escape(match[2])}</p></content></paragraph>"
    return f"<content><p>{escape(line)}</p></content>"


class Gazette(Booklet):
    """An act as it is printed: the running head and the page's number at the top."""

    def furnish(self, canvas: Canvas, _: BaseDocTemplate) -> None:
        canvas.setFont("Helvetica", 8)
        canvas.setFillColor(RULE)
        canvas.drawString(MARGIN, LETTER[1] - 0.62 * inch, f"{self.form}, {self.title}")
        canvas.drawCentredString(LETTER[0] / 2, 0.6 * inch, str(canvas.getPageNumber()))


def _story(law: list[Block]) -> list[Flowable]:
    (title, *before), body = law[0].lines, law[1:]
    story = [Paragraph(title, TITLE), *(Paragraph(line, BODY) for line in before)]
    while body[0].kind == "text":
        story += [Paragraph(escape(line), BODY) for line in body.pop(0).lines]
    story += [Paragraph("Table of contents", BODY), contents(), PageBreak()]
    for block in body:
        heading, *lines = block.lines
        if block.kind == "division":
            story.append(Paragraph(f"{heading} {escape(lines[0])}", HEADINGS[1]))
            continue
        story += [Paragraph(escape(heading), HEADINGS[2 if block.kind == "article" else 3])]
        story += [Paragraph(escape(line), BODY) for line in lines]
    return story


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "statutes")
