"""Fork server of the statute readers: forks a child for each file. No Django in here, as in ``pdf_fork_server``."""

import codecs
import gc
import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pdf_oxide

from documents.parsers import pdf_engines
from documents.parsers.sandbox import fork_server, rlimits
from statutes.readers import docx, pdf, xml
from statutes.readers.xml_tree import Unreadable
from statutes.structure.markdown import render_markdown
from statutes.structure.model import Article, CanonicalLaw, Division

CPU_SECONDS = 20.0  # of building; a law of 3,000 articles takes 1 to 2 s
# With their divisions. The largest codes, such as California's Health and Safety Code, have below 20,000.
MAX_ARTICLES = 30_000

# Encodings of the Americas and Europe that expat leaves to Python; a DOCX names its members in the first.
ENCODINGS = (
    "cp437", "cp850", "cp1250", "cp1252", "iso-8859-2", "iso-8859-9", "iso-8859-15", "mac-roman", "utf-16-be",
    "utf-16-le",
)  # fmt: skip
BALLAST_BYTES = 8 << 20  # freed so that there is memory for the answer that there is no more
SPECIMEN = b"<document><body><p><t>Section 1. Some words.</t></p></body></document>"


def respond(request: fork_server.Message) -> fork_server.Message:
    """Return the ``statute`` of a file, or the ``blank`` pages of a PDF that need OCR, or an error code."""
    ballast = bytearray(BALLAST_BYTES)
    try:
        if request["format"] == "pdf":
            law = _read_pdf(request)
        else:
            gc.disable()  # a tree of a million elements has no cycles, and looking for them takes most of the time
            rlimits.limit_cpu_time(CPU_SECONDS)
            content = Path(request["path"]).read_bytes()
            rlimits.forbid_opening_files()
            law = docx.read_docx(content) if request["format"] == "docx" else xml.read_xml(content)
        if isinstance(law, list):
            return {"blank": law}
        return {"statute": render_statute(law, header=request["header"], pages=request["pages"])}
    except Unreadable as refused:
        return {"unreadable": refused.code}
    except pdf_engines.PdfError as refused:
        return {"refused": refused.code}
    except RecursionError:
        return {"unreadable": "XML_TOO_DEEP"}
    except MemoryError:
        del ballast
        return {"refused": "PARSER_OUT_OF_MEMORY"}


def _read_pdf(request: fork_server.Message) -> CanonicalLaw | list[int]:
    document = pdf_engines.open_document(Path(request["path"]))
    scanned = None
    if request["scanned"]:
        scanned = {int(page): text for page, text in json.loads(Path(request["scanned"]).read_bytes()).items()}
    rlimits.forbid_opening_files()
    pages = pdf.page_texts(document)
    blank = [number for number, page in enumerate(pages, 1) if not page.strip()]
    if blank and scanned is None:
        return blank
    rlimits.limit_cpu_time(CPU_SECONDS)
    return pdf.read_pdf(pages, scanned or {})


def render_statute(law: CanonicalLaw, *, header: dict[str, Any], pages: int) -> fork_server.Message:
    """Return the law as the texts that are stored: the worker would need many times their size for its structure."""
    if not (law.preamble or law.contents or law.children):
        raise Unreadable("NO_TEXT")
    if next(law.articles(), None) is None:
        raise Unreadable("NO_ARTICLES")
    if _count_units(law.children) > MAX_ARTICLES:
        raise Unreadable("TOO_MANY_ARTICLES")
    rendered = render_markdown(law, pages=pages)
    return {
        "title": law.title,
        "language": law.language,
        "canonical": json.dumps(law.as_json(**header), ensure_ascii=False),
        "text": rendered.text,
        "page_starts": rendered.page_starts,
    }


def _count_units(children: Sequence[Division | Article]) -> int:
    return sum(1 + (_count_units(child.children) if isinstance(child, Division) else 0) for child in children)


def warm_up() -> None:
    """Import in the fork server whatever is imported late: a child cannot open files any more."""
    pdf_engines.warm_up()
    for encoding in ENCODINGS:
        codecs.lookup(encoding)
    xml.read_xml(SPECIMEN)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(docx.BODY, SPECIMEN)
    docx.read_docx(packed.getvalue())


if __name__ == "__main__":
    pdf_oxide.disable_logging()  # it logs pieces of the document
    warm_up()
    fork_server.serve(0, 1, respond)
