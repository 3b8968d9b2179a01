"""Reading in a sandboxed child: a file gives a law or a typed error."""

import io
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont
from reportlab.pdfgen.canvas import Canvas

from documents.parsers import ocr
from documents.parsers.sandbox.client import ROOT
from jobs.outcomes import Permanent, StageFailure
from statutes.error_codes import statute_failure
from statutes.readers import docx, reader_fork_server, sandbox_client
from statutes.readers.file_type import Format, sniff_format
from statutes.readers.xml_tree import Unreadable
from statutes.structure import schema_validation
from statutes.structure.model import CanonicalLaw
from statutes.tests.law_texts import HEADER, article_texts, build_from_text, encode_law, law_json, read_law, reject_scan
from statutes.tests.readers.test_docx import docx_bytes, paragraphs, zip_bytes
from testing import pdf_bombs
from testing.pdfs import content_stream, encrypted_pdf, text_pdf

FIRST, SECOND = "Artículo 1. Los de la ley.", "Artículo 2. El resto de la ley."
ACT = b"<act><section><num>1</num><p>The board of the act.</p></section></act>"
MOST = 1_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ley.bin"  # the name says nothing


def read(path: Path, content: bytes) -> CanonicalLaw:
    path.write_bytes(content)
    return read_law(path, format=sniff_format(path, most=MOST))


def refusal_code(path: Path, content: bytes, format: Format) -> StageFailure:
    path.write_bytes(content)
    with pytest.raises(StageFailure) as failure:
        read_law(path, format=format)
    return failure.value


FORMATS: dict[Format, bytes] = {
    "pdf": text_pdf(f"{FIRST}\n{SECOND}"),
    "docx": docx_bytes(paragraphs(FIRST, SECOND)),
    "xml": ACT,
}


@pytest.mark.parametrize("format", FORMATS)
def test_each_format_is_detected_by_content_and_read(path: Path, format: Format) -> None:
    path.write_bytes(FORMATS[format])

    detected = sniff_format(path, most=MOST)

    assert detected == format
    law = read_law(path, format=detected)
    schema_validation.check_schema(law_json(law))
    assert encode_law(law) == encode_law(read_law(path, format=detected))


# Which format it is

SNIFFED = {
    b"\xef\xbb\xbf<?xml version='1.0'?>": "xml",
    "<?xml version='1.0'?>".encode("utf-16"): "xml",
    "<ley>".encode("utf-16-be"): "xml",
    b"\n  <!-- a law --><ley>": "xml",
    b"<!DOCTYPE act SYSTEM 'x'><act/>": "xml",
    b"mail header\n%PDF-1.7": "pdf",
    b"PK\x03\x04 %PDF-1.7": "docx",  # what begins like a ZIP is one, whatever it hides
    b"<ley> %PDF-1.7": "xml",
}
NOT_SNIFFED = {
    b"": "EMPTY_FILE",
    b"Ley de aguas": "UNKNOWN_FORMAT",
    b"<html><p>Section 1": "UNKNOWN_FORMAT",
    b"<!DOCTYPE html><p>": "UNKNOWN_FORMAT",
    b"{\\rtf1 Ley": "UNKNOWN_FORMAT",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "OLD_OR_LOCKED_WORD",
    b"<" * (MOST + 1): "FILE_TOO_LARGE",
}


@pytest.mark.parametrize("content", SNIFFED)
def test_a_format_is_detected_by_its_first_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    assert sniff_format(path, most=MOST) == SNIFFED[content]


@pytest.mark.parametrize("content", NOT_SNIFFED, ids=lambda content: repr(content[:12]))
def test_unsupported_formats_are_rejected(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    with pytest.raises(Permanent) as refused:
        sniff_format(path, most=MOST)

    assert refused.value.code == NOT_SNIFFED[content]


# PDFs

WORDS = ["sigue", "manda", "obliga", "ordena", "dispone", "prohíbe"]


def test_running_heads_and_page_numbers_are_in_no_article(path: Path) -> None:
    pages = [
        f"DIARIO OFICIAL {day}\nArtículo {day}\nLa ley {word}\ny acaba {word}.\n{day + 40}"
        for day, word in enumerate(WORDS, 1)
    ]

    law = read(path, text_pdf("LEY DE PRUEBA", *pages))

    assert article_texts(law) == {str(day): f"La ley {word} y acaba {word}." for day, word in enumerate(WORDS, 1)}
    assert [paragraph.text for paragraph in law.preamble] == ["LEY DE PRUEBA"]
    assert [article.place.page for _, article in law.articles()] == [2, 3, 4, 5, 6, 7]


def test_page_furniture_of_gazettes_is_in_no_article(path: Path) -> None:
    head, foot = (
        "BOLETÍN OFICIAL DEL ESTADO\nNúm. 61 Jueves 11 de marzo de 2027 Sec. I. Pág. 3010",
        "cve: BOE-A-2027-3791",
    )
    pages = [
        f"{head}{page}\n{text}\n{foot}\nVerificable en https://www.boe.es"
        for page, text in enumerate(
            ("LEY DE PRUEBA\nArtículo 1. La ley de los que la hacen es la", "ley de todos.\nArtículo 2. La otra.")
        )
    ]

    law = read(path, text_pdf(*pages))

    assert article_texts(law) == {"1": "La ley de los que la hacen es la ley de todos.", "2": "La otra."}


def test_an_article_may_run_over_a_page(path: Path) -> None:
    law = read(path, text_pdf("Artículo 1. Los de la ley no\n- 1 -", "acaban aquí.\nPágina 2 de 2"))

    article = next(article for _, article in law.articles())
    assert article.text == "Los de la ley no acaban aquí."
    assert (article.place.start, article.place.end, article.place.page) == (
        0,
        len("Artículo 1. Los de la ley no\n- 1 -\nacaban aquí."),
        1,
    )


def two_columns(*, row_by_row: bool, x: int = 320) -> bytes:
    left = [
        "Artículo 1. La ley de los que la",
        "hacen es la ley de todos ellos,",
        "y a todos obliga por igual.",
        "Artículo 2. Los demás también",
        "quedan obligados por la ley.",
    ]
    right = [
        "Artículo 3. En lo no previsto se",
        "aplicará el código de la materia",
        "y los usos de cada comunidad.",
        "Artículo 4. La autoridad es la",
        "asamblea de la comunidad.",
    ]
    drawn = [(60, left), (x, right)]
    placed = [(at, 700 - 14 * row, line) for at, lines in drawn for row, line in enumerate(lines)]
    file = io.BytesIO()
    canvas = Canvas(file, invariant=1)
    for at, y, line in sorted(placed, key=lambda one: -one[1]) if row_by_row else placed:
        canvas.drawString(at, y, line)
    canvas.save()
    return file.getvalue()


@pytest.mark.parametrize("x", [319, 320, 321])
@pytest.mark.parametrize("row_by_row", [False, True])
def test_two_columns_are_read_one_after_the_other(path: Path, row_by_row: bool, x: int) -> None:
    law = read(path, two_columns(row_by_row=row_by_row, x=x))

    assert article_texts(law) == {
        "1": "La ley de los que la hacen es la ley de todos ellos, y a todos obliga por igual.",
        "2": "Los demás también quedan obligados por la ley.",
        "3": "En lo no previsto se aplicará el código de la materia y los usos de cada comunidad.",
        "4": "La autoridad es la asamblea de la comunidad.",
    }


def test_mirrored_running_heads_are_in_no_article(path: Path) -> None:
    file = io.BytesIO()
    canvas = Canvas(file, invariant=1)
    for page, word in enumerate(WORDS[:4], 1):
        sides = ["(Primera Sección)", "Lunes 1 de marzo"][:: 1 if page % 2 else -1]
        for x, text in ((60, sides[0]), (250, "DIARIO OFICIAL"), (400, f"{sides[1]} {page}")):
            canvas.drawString(x, 760, text)
        for x, number in ((60, page * 2 - 1), (320, page * 2)):
            lines = (f"Artículo {number}. La ley de los que", f"la hacen {word} a todos, y", f"a cada uno lo {word}.")
            for row, line in enumerate(lines):
                canvas.drawString(x, 700 - 14 * row, line)
        canvas.showPage()
    canvas.save()

    law = read(path, file.getvalue())

    assert list(article_texts(law).values()) == [
        f"La ley de los que la hacen {word} a todos, y a cada uno lo {word}." for word in WORDS[:4] for _ in range(2)
    ]


def test_only_pages_without_text_are_scanned(path: Path) -> None:
    ocr_pages: list[Sequence[int]] = []

    def scan(path: Path, pages: Sequence[int]) -> Mapping[int, str]:
        ocr_pages.append(pages)
        return {2: SECOND}

    path.write_bytes(text_pdf(FIRST, "", "Artículo 3. Lo demás.", ""))

    law = read_law(path, format="pdf", scan=scan)

    assert ocr_pages == [[2, 4]]
    assert [(article.number, article.place.page) for _, article in law.articles()] == [("1", 1), ("2", 2), ("3", 3)]


@pytest.mark.slow
def test_a_scanned_law_is_read_by_ocr(path: Path) -> None:
    page = Image.new("RGB", (900, 400), "white")
    text = "Section 1. The board of the act\n\n\nSection 2. The rest of the act"
    ImageDraw.Draw(page).text((60, 60), text, fill="black", font=ImageFont.load_default(32), spacing=10)
    page.save(path, format="PDF", resolution=100)

    law = read_law(
        path,
        format="pdf",
        scan=lambda path, pages: {page: ocr.recognize_pages(path, [page - 1])[page - 1] for page in pages},
    )

    assert article_texts(law) == {"1": "The board of the act", "2": "The rest of the act"}


# What is refused


def bomb() -> bytes:
    return pdf_bombs.one_page(content_stream(pdf_bombs.deflated(1 << 29, 2), b"/Filter [/FlateDecode /FlateDecode]"))


REFUSED: dict[str, tuple[bytes, Format, str]] = {
    "a PDF cut short": (text_pdf(FIRST)[:-40], "pdf", "PDF_TRUNCATED"),
    "a PDF that is none": (ACT, "pdf", "PDF_TRUNCATED"),
    "a PDF with a password": (encrypted_pdf(FIRST, user_password=b"secret"), "pdf", "PASSWORD_REQUIRED"),
    "a PDF without articles": (text_pdf("Just the words of it."), "pdf", "NO_ARTICLES"),
    "XML without text": (b"<act><p/></act>", "xml", "NO_TEXT"),
    "XML without articles": (b"<act><p>Just words.</p></act>", "xml", "NO_ARTICLES"),
    "XML as DOCX": (ACT, "docx", "DOCX_TRUNCATED"),
    "DOCX as XML": (docx_bytes(""), "xml", "NOT_XML"),
    "entities": (b'<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>', "xml", "XML_ENTITY_REFUSED"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_an_unreadable_file_fails_permanently_with_a_code(path: Path, kind: str) -> None:
    content, format, code = REFUSED[kind]

    failure = refusal_code(path, content, format)

    assert isinstance(failure, Permanent)
    assert failure.code == code
    assert "PDF" not in failure.detail or format == "pdf"


def test_a_zip_bomb_is_not_unpacked_beyond_its_limit(path: Path) -> None:
    content = zip_bytes({docx.BODY: b"<a>" + b" " * docx.LARGEST})

    assert refusal_code(path, content, "docx").code == "DOCX_TOO_LARGE"


def test_a_pdf_with_usage_restrictions_is_read(path: Path) -> None:
    assert article_texts(read(path, encrypted_pdf(FIRST))) == {"1": "Los de la ley."}


def test_a_pdf_bomb_fails_with_a_code(path: Path) -> None:
    assert refusal_code(path, bomb(), "pdf").code in {
        "PARSER_OUT_OF_MEMORY",
        "PARSE_TIMEOUT",
        "PARSER_CRASHED",
        "NO_TEXT",
        "NO_TEXT_FOUND",
    }


def test_memory_is_capped_and_the_next_file_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_client.statute_zygote, "memory_mb", 200)

    failure = refusal_code(path, b"<a>" + b"<b/>" * 600_000, "xml")

    assert isinstance(failure, Permanent)
    assert (failure.code, failure.detail) == (
        "PARSER_OUT_OF_MEMORY",
        "The file needs more memory than reading is allowed.",
    )
    monkeypatch.undo()
    assert article_texts(read(path, ACT)) == {"1": "The board of the act."}


def test_the_number_of_articles_and_divisions_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    law = build_from_text("TÍTULO I\nCAPÍTULO I\nArtículo 1. La ley.\nArtículo 2. Su fin.")
    monkeypatch.setattr(reader_fork_server, "MAX_ARTICLES", 4)
    assert reader_fork_server.render_statute(law, header=HEADER, pages=0)["title"] == law.title

    monkeypatch.setattr(reader_fork_server, "MAX_ARTICLES", 3)
    with pytest.raises(Unreadable) as refused:
        reader_fork_server.render_statute(law, header=HEADER, pages=0)

    assert refused.value.code == "TOO_MANY_ARTICLES"
    assert f"{30_000:,}" in statute_failure("TOO_MANY_ARTICLES").detail


def test_the_worker_holds_a_statute_as_text_only(path: Path) -> None:
    path.write_bytes(docx_bytes(paragraphs(*(f"Section {number}." for number in range(3_000)))))

    read_law(path, format="docx")  # starts the fork server
    tracemalloc.start()
    try:
        statute = sandbox_client.read_statute(path, format="docx", scan=reject_scan, header=HEADER)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # The message, its decoded form and the texts in it; objects for its structure need two thirds more.
    assert peak < 4.5 * (len(statute.canonical) + len(statute.text))


@pytest.mark.parametrize("format", FORMATS)
def test_the_child_can_open_neither_files_nor_sockets(path: Path, format: Format) -> None:
    path.write_bytes(FORMATS[format])
    code = (
        "import sys, socket; from statutes.readers import reader_fork_server; reader_fork_server.warm_up()\n"
        "request = {'path': sys.argv[1], 'format': sys.argv[2], 'scanned': None, 'pages': 0}\n"
        "request['header'] = {'law_id': '', 'version': '', 'source': {}}\n"
        "print('statute' in reader_fork_server.respond(request), flush=True)\n"
        "socket.socket()"
    )

    run = subprocess.run([sys.executable, "-c", code, str(path), format], cwd=ROOT, capture_output=True, text=True)

    assert run.stdout == "True\n"
    assert "Too many open files" in run.stderr


def test_each_code_of_the_readers_is_declared_with_a_sentence_of_its_own() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "statutes/readers").glob("*.py"))

    codes = set(re.findall(r'(?:Unreadable\(|"unreadable": |statute_failure\()"(\w+)"', sources))

    assert len(codes) > 10
    assert len({statute_failure(code).detail for code in codes}) == len(codes)
