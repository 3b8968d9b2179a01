"""Hostile files: each gives a law or a permanent error code, and reads no other file."""

import io
import random
import time
import zipfile
from pathlib import Path

import pytest

from jobs.outcomes import Permanent
from statutes.readers import docx, pdf, xml, xml_tree
from statutes.readers.file_type import Format, sniff_format
from statutes.readers.xml_tree import Unreadable
from statutes.structure.model import CanonicalLaw
from statutes.tests.law_texts import all_texts, article_texts, read_law
from statutes.tests.readers.test_docx import NUMBERING, W, docx_bytes, numbered_docx, paragraphs, zip_bytes
from testing.pdfs import text_pdf

SAMPLES = Path(__file__).parents[3] / "samples" / "statutes"
WHOLE: dict[Format, bytes] = {
    "pdf": text_pdf(*(f"Section {n}. The board of the act.\nIt shall meet." for n in (1, 2, 3))),
    "docx": (SAMPLES / "ley-de-ejemplo.docx").read_bytes(),
    "xml": (SAMPLES / "sample-benefits-act.xml").read_bytes(),
}
ONE = "<section><num>1</num><p>The board of the act.</p></section>"
LAW = {"1": "The board of the act."}
BODY = f'<w:document xmlns:w="{W}"><w:body>{paragraphs("Artículo 1. La ley.")}</w:body></w:document>'


def outcome(path: Path, content: bytes, format: Format) -> CanonicalLaw | str:
    path.write_bytes(content)
    try:
        return read_law(path, format=format, scan=lambda path, pages: {})
    except Permanent as failure:
        return failure.code


def damaged_files(content: bytes, chance: random.Random) -> bytes:
    """Return the content with bytes changed, taken out and repeated."""
    damaged = bytearray(content)
    for _ in range(chance.choice((1, 3, 9))):
        at, length = chance.randrange(len(damaged)), chance.randrange(1, 200)
        change = chance.randrange(3)
        damaged[at : at + length * (change == 1)] = (
            chance.randbytes(4) if change == 0 else damaged[at : at + length] * 2 if change == 2 else b""
        )
    return bytes(damaged)


@pytest.mark.parametrize("format", WHOLE)
def test_a_damaged_file_gives_a_law_or_a_permanent_error(tmp_path: Path, format: Format) -> None:
    chance = random.Random(f"{format} 7")

    outcomes = [outcome(tmp_path / "law", damaged_files(WHOLE[format], chance), format) for _ in range(15)]

    assert {code for code in outcomes if isinstance(code, str)} <= {
        "NOT_XML", "XML_ENTITY_REFUSED", "NO_ARTICLES", "NO_TEXT", "NOT_DOCX", "DOCX_TRUNCATED", "DOCX_TOO_LARGE",
        "DOCX_ENCRYPTED", "PDF_TRUNCATED", "NO_TEXT_FOUND", "PASSWORD_REQUIRED", "PDF_MALFORMED",
    }  # fmt: skip


@pytest.mark.parametrize("format", WHOLE)
def test_a_truncated_file_gives_a_law_or_a_permanent_error(tmp_path: Path, format: Format) -> None:
    content = WHOLE[format]

    outcomes = [outcome(tmp_path / "law", content[: len(content) * tenth // 10], format) for tenth in range(1, 10)]

    assert {code for code in outcomes if isinstance(code, str)} <= {"NOT_XML", "DOCX_TRUNCATED", "PDF_TRUNCATED"}


@pytest.mark.parametrize("encoding", ["UTF-7", "hz", "idna", "base64"])
def test_the_child_rejects_unsupported_encodings(tmp_path: Path, encoding: str) -> None:
    content = f'<?xml version="1.0" encoding="{encoding}"?><act>{ONE}</act>'.encode()

    assert outcome(tmp_path / "law", content, "xml") == "NOT_XML"


@pytest.mark.parametrize("encoding", ["iso-8859-2", "cp850", "mac-roman", "windows-1250"])
def test_the_child_reads_legacy_encodings(tmp_path: Path, encoding: str) -> None:
    content = f'<?xml version="1.0" encoding="{encoding}"?><ley><articulo>Artículo 1. Él.</articulo></ley>'

    law = outcome(tmp_path / "law", content.encode(encoding), "xml")

    assert isinstance(law, CanonicalLaw)
    assert article_texts(law) == {"1": "Él."}


HARMLESS = {
    "an inclusion": '<act xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="file:///etc/passwd"/>{}</act>',
    "instructions": "<act>" + "<?php system('id') ?>" * 5_000 + "{}</act>",
    "a style sheet": '<?xml-stylesheet href="http://127.0.0.1:1/x.xsl"?><act>{}</act>',
    "a schema elsewhere": '<act xsi:schemaLocation="x http://127.0.0.1:1/x.xsd" xmlns:xsi="x">{}</act>',
    "a huge attribute": '<act a="' + "x" * 5_000_000 + '">{}</act>',
    "many attributes": "<act " + " ".join(f'a{n}="x"' for n in range(20_000)) + ">{}</act>",
    "a huge comment": "<act><!--" + "x" * 5_000_000 + "-->{}</act>",
    "nearly too deep": "<a>" * 90 + "{}" + "</a>" * 90,
}


@pytest.mark.parametrize("kind", HARMLESS)
def test_unusual_xml_constructs_are_harmless(kind: str) -> None:
    law = xml.read_xml(HARMLESS[kind].format(ONE).encode())

    assert article_texts(law) == LAW
    assert "root:" not in " ".join(all_texts(law))


REFUSED = {
    "one large entity many times": '<!DOCTYPE a [<!ENTITY a "' + "a" * 50_000 + '">]><a>' + "&a;" * 50_000 + "</a>",
    "a DTD that is declared twice": '<!DOCTYPE a SYSTEM "x" [<!ENTITY % a SYSTEM "file:///etc/passwd"> %a;]><a/>',
    "a hundred thousand levels": "<a>" * 100_000,
}


@pytest.mark.parametrize("kind", REFUSED)
def test_growing_xml_is_rejected_before_expansion(kind: str) -> None:
    with pytest.raises(Unreadable) as refused:
        xml.read_xml(REFUSED[kind].encode())

    assert refused.value.code in ("XML_ENTITY_REFUSED", "XML_TOO_DEEP")


def test_the_number_of_elements_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_tree, "MAX_ELEMENTS", 1_000)

    with pytest.raises(Unreadable) as refused:
        xml.read_xml(b"<a>" + b"<b/>" * 1_000)

    assert refused.value.code == "XML_TOO_LARGE"


# PDFs


def read_seconds(line: str, count: int) -> float:
    """Return the CPU time of reading one page of such lines, the least of three."""
    seconds = []
    for _ in range(3):
        start = time.process_time()
        pdf.read_pdf(["\n".join([line] * count)], {})
        seconds.append(time.process_time() - start)
    return min(seconds)


@pytest.mark.slow
@pytest.mark.parametrize("line", ["~~~", "|-|", "ABC", "«"])
def test_a_pdf_of_repeated_lines_is_read_in_linear_time(line: str) -> None:
    # Quadratic code takes 14 to 16 times as long for four times the lines, linear code 4 times.
    assert read_seconds(line, 16_000) < 8 * read_seconds(line, 4_000)


# Word documents


def test_path_traversal_names_are_ignored() -> None:
    law = docx.read_docx(
        zip_bytes({"../../../tmp/evil": "x", "/etc/passwd": "x", "word/vbaProject.bin": "x", docx.BODY: BODY})
    )

    assert article_texts(law) == {"1": "La ley."}


@pytest.mark.parametrize("target", ["http://127.0.0.1:1/x", "../../../../etc/passwd", "file:///etc/passwd"])
def test_an_external_body_is_not_fetched(target: str) -> None:
    relation = f'<Relationship Type="x/officeDocument" TargetMode="External" Target="{target}"/>'

    with pytest.raises(Unreadable) as refused:
        docx.read_docx(zip_bytes({docx.RELATIONS: f"<Relationships>{relation}</Relationships>"}))

    assert refused.value.code == "NOT_DOCX"


def test_a_false_member_size_is_not_trusted() -> None:
    content = bytearray(zip_bytes({docx.BODY: BODY}))
    place = content.index(b"PK\x01\x02") + 24

    content[place : place + 4] = (0xFFFFFFF0).to_bytes(4, "little")
    assert article_texts(docx.read_docx(bytes(content))) == {"1": "La ley."}

    content[place : place + 4] = (5).to_bytes(4, "little")
    with pytest.raises(Unreadable) as refused:
        docx.read_docx(bytes(content))
    assert refused.value.code == "DOCX_TRUNCATED"


def test_members_that_overlap_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docx, "LARGEST", 1 << 20)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(docx.BODY, BODY.replace("La ley", "La ley" + " " * (1 << 19)))
    content = file.getvalue()
    start, end = content.index(b"PK\x01\x02"), content.index(b"PK\x05\x06")
    entries, tail = content[start:end] * 4_000, bytearray(content[end:])
    tail[8:12], tail[12:16] = (4_000).to_bytes(2, "little") * 2, len(entries).to_bytes(4, "little")

    law = docx.read_docx(content[:start] + entries + bytes(tail))

    assert article_texts(law) == {"1": "La ley ."}


def test_an_endless_list_label_is_truncated() -> None:
    lists = NUMBERING.replace("Artículo %1.", "Artículo 1. " + "%1" * 100_000)
    lists = lists.replace("decimal", "upperRoman").replace('start w:val="1"', 'start w:val="99999"')

    law = docx.read_docx(docx_bytes(paragraphs("La ley.", properties=numbered_docx(0)), numbering=lists))

    assert sum(map(len, all_texts(law))) < 300


def test_circular_styles_terminate() -> None:
    style = '<w:style w:styleId="{}"><w:basedOn w:val="{}"/></w:style>'
    styles = f'<w:styles xmlns:w="{W}">{style.format("A", "B")}{style.format("B", "A")}</w:styles>'
    styled = '<w:pPr><w:pStyle w:val="A"/></w:pPr>'

    assert article_texts(
        docx.read_docx(docx_bytes(paragraphs("Artículo 1. La ley.", properties=styled), styles=styles))
    ) == {"1": "La ley."}


OTHERS = {
    "empty": b"",
    "rtf": b"{\\rtf1 Ley",
    "html": b"<!doctype html><p>Section 1",
    "png": b"\x89PNG\r\n",
    "doc": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_kinds_of_files_are_rejected_despite_their_names(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "ley.pdf"
    path.write_bytes(OTHERS[kind])

    with pytest.raises(Permanent):
        sniff_format(path, most=1_000)


def test_an_oversized_file_is_rejected_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "ley.xml"
    with path.open("wb") as file:
        file.truncate(200 << 30)  # sparse: nothing of it is written

    with pytest.raises(Permanent) as refused:
        sniff_format(path, most=100 << 20)

    assert refused.value.code == "FILE_TOO_LARGE"
