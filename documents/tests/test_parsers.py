"""Every PDF ends in pages or in a typed failure."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from documents.parsers import file_structure, pdf_engines, pdf_parser
from documents.parsers.failures import FAILURES
from documents.parsers.sandbox.client import ROOT
from jobs.outcomes import Permanent, Retryable, StageFailure
from testing import pdf_bombs
from testing.pdfs import SavePdf, build_pdf, content_stream, encrypted_pdf, page_objects, text_operators, text_pdf
from testing.sizes import size

SHARED = ROOT.parent / "shared" / "pdfs"
SHARED_FILES = sorted(SHARED.glob("*/*.pdf"))
WHOLE = text_pdf("hello world")


def outcome(path: Path) -> str:
    """As a stage would do it: the code, or "text"."""
    try:
        pages = pdf_parser.parse_pdf(path, pages=pdf_parser.inspect_pdf(path).pages).markdown
    except StageFailure as failure:
        return failure.code
    return "text" if any(page.strip() for page in pages) else "NO_TEXT_LAYER"


# What is read


def test_pages_come_back_in_order_and_blank_ones_keep_their_place(save_pdf: SavePdf) -> None:
    path = save_pdf(text_pdf("first", "", "third"))

    assert pdf_parser.inspect_pdf(path) == pdf_parser.Inspection(pages=3, encrypted=False)
    assert pdf_parser.parse_pdf(path, pages=3).markdown == ["first", "", "third"]


def test_lines_that_the_layout_drops_stand_at_its_end() -> None:
    rich, plain = "# Plan\n\nYou pay the deductible.", "Plan\nYou pay the de ductible.\nExclusions apply\n12"

    assert pdf_engines.append_lost_lines(rich, plain) == f"{rich}\n\nExclusions apply"


def test_large_type_becomes_a_heading(save_pdf: SavePdf) -> None:
    body = b"0 -14 Td (It pays the hospital, and it pays the doctor.) Tj " * 4
    big = b"BT /F1 30 Tf 72 740 Td (Your plan) Tj /F1 10 Tf 0 -60 Td %s ET" % body

    (page,) = pdf_parser.parse_pdf(save_pdf(build_pdf(page_objects([content_stream(big)]))), pages=1).markdown

    assert page.startswith("# Your plan\n")


def test_a_title_that_the_layout_takes_into_a_table_is_a_heading_of_its_size(save_pdf: SavePdf) -> None:
    rows = [["Cover", "Essential", "Premier"], ["Medical", "$4", "$9"], ["Baggage", "No", "$5"], ["Legal", "No", "$7"]]
    xs, tops = [54, 250, 400], [700 - 20 * n for n in range(len(rows))]
    cells = b" ".join(
        b"1 0 0 1 %d %d Tm (%s) Tj" % (x, y, cell.encode())
        for y, row in zip(tops, rows, strict=True)
        for x, cell in zip(xs, row, strict=True)
    )
    body = b"BT /F1 18 Tf 1 0 0 1 48 730 Tm (Travel insurance: what each level has) Tj /F1 10 Tf %s ET" % cells

    (page,) = pdf_parser.parse_pdf(save_pdf(build_pdf(page_objects([content_stream(body)]))), pages=1).markdown

    assert page.startswith("# Travel insurance: what each level has\n\n| Cover | Essential | Premier |\n")


def test_a_pdf_that_only_restricts_its_use_is_read(save_pdf: SavePdf) -> None:
    path = save_pdf(encrypted_pdf("open to all"))

    assert pdf_parser.inspect_pdf(path) == pdf_parser.Inspection(pages=1, encrypted=True)
    assert pdf_parser.parse_pdf(path, pages=1).markdown == ["open to all"]


@pytest.mark.parametrize(
    ("whole", "wound"),
    [
        pytest.param(b"65535 f \n00", b"65535 f ###", id="pdf-oxide cannot open it"),
        pytest.param(b"/Root 1 0 R", b"/Root 1#0 R", id="PDFium cannot open it"),
        pytest.param(b"R  /Resources", b"R  #Resources", id="pdf-oxide raises on the page"),
        pytest.param(b"/Resources << /Font", b"/Resources << /Fo#t", id="pdf-oxide finds nothing on the page"),
        pytest.param(b"/Kids [", b"/K### [", id="PDFium does not find the page"),
    ],
)
def test_the_second_engine_reads_pages_that_the_first_cannot(save_pdf: SavePdf, whole: bytes, wound: bytes) -> None:
    assert whole in WHOLE

    assert pdf_parser.parse_pdf(save_pdf(WHOLE.replace(whole, wound)), pages=1).markdown == ["hello world"]


def hebrew_pdf(content: bytes) -> bytes:
    """Return a page on which A is the first letter of the alphabet; small letters and digits are themselves."""
    codes = b"".join(b"<%02x> <%04x>\n" % (0x41 + n, 0x05D0 + n) for n in range(20))
    ranges = b"2 beginbfrange <30> <39> <0030> <61> <7a> <0061> endbfrange"
    cmap = b"begincmap 1 begincodespacerange <00> <ff> endcodespacerange 20 beginbfchar %s endbfchar %s endcmap"
    objects = page_objects([content_stream(content)])
    objects[2] = objects[2].replace(b">>", b"/ToUnicode 6 0 R >>")
    return build_pdf([*objects, content_stream(cmap % (codes, ranges))])


def test_right_to_left_pages_are_read_by_pdfium(save_pdf: SavePdf) -> None:
    path = save_pdf(hebrew_pdf(b"BT /F1 30 Tf 72 700 Td (EDCBA) Tj /F1 9 Tf 0 -50 Td (JIHGF EDCBA) Tj ET"))

    (page,) = pdf_parser.parse_pdf(path, pages=1).markdown

    assert page.lstrip("# ").split() == ["אבגדה", "אבגדה", "וזחטי"]  # alphabetical when read from the right


def test_the_first_column_of_a_right_to_left_table_is_its_rightmost(save_pdf: SavePdf) -> None:
    rows = [("CBA", "FED"), ("GFE", "200"), ("IHG", "blue cross"), ("KJI", "35")]
    cells = b" ".join(
        b"1 0 0 1 %d %d Tm (%s) Tj" % (x, 700 - 20 * n, cell.encode())
        for n, row in enumerate(rows)
        for x, cell in zip((400, 200), row, strict=True)
    )

    (page,) = pdf_parser.parse_pdf(save_pdf(hebrew_pdf(b"BT /F1 10 Tf %s ET" % cells)), pages=1).markdown

    assert page.split("\n") == ["| אבג | דהו |", "|---|---|", "| הוז | 200 |", "| זחט | blue cross |", "| טיך | 35 |"]


def test_text_from_any_font_map_can_be_stored() -> None:
    dirty = "a\x00b\ud800c\ufffed\r\ne\rf \x7f\n\n"

    assert pdf_engines.clean_text(dirty) == "abcd\ne\nf"


def test_nul_and_surrogates_from_a_font_map_are_removed(save_pdf: SavePdf) -> None:
    cmap = (
        b"begincmap 1 begincodespacerange <00> <ff> endcodespacerange 2 beginbfchar <41> <0000> <42> <d800> endbfchar"
    )
    objects = page_objects([content_stream(text_operators("xABx and more words"))])
    objects[2] = objects[2].replace(b">>", b"/ToUnicode 6 0 R >>")

    (page,) = pdf_parser.parse_pdf(save_pdf(build_pdf([*objects, content_stream(cmap)])), pages=1).markdown

    assert "and more words" in page
    assert "\0" not in page
    page.encode()


def test_images_are_not_carried_into_the_text(save_pdf: SavePdf) -> None:
    path = save_pdf(pdf_bombs.pixel_flood())

    assert pdf_parser.parse_pdf(path, pages=1).markdown == ["beside the flood"]


@pytest.mark.slow
def test_the_same_bytes_give_the_same_text_in_every_process(tmp_path: Path) -> None:
    paths = [path for path in SHARED_FILES if path.parent.name in ("text", "plans")]
    code = "import sys, hashlib, pathlib; from documents.parsers import pdf_parser\nfor name in sys.argv[1:]:\n"
    code += (
        "  print(hashlib.sha256(repr(pdf_parser.parse_pdf(pathlib.Path(name), pages=1).markdown).encode()).hexdigest())"
    )

    printed = {
        subprocess.run(
            [sys.executable, "-c", code, *map(str, paths)],
            cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip

    assert len(printed) == 1


JUNK = b"<script>var x = 1;</script>\n" * 200
UNENDED = WHOLE.removesuffix(b"%%EOF\n")
XREF_STREAM = content_stream(b"", b"/Type /XRef /Root 1 0 R /Size 7 /W [1 2 1]")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(UNENDED, id="no end-of-file mark"),
        pytest.param(UNENDED + JUNK, id="junk instead of an end-of-file mark"),
        pytest.param(WHOLE + JUNK, id="junk after the end"),
        pytest.param(b"\n" * 500 + WHOLE + JUNK, id="junk on both sides"),
        pytest.param(WHOLE[: WHOLE.index(b"startxref")], id="no startxref"),
        pytest.param(WHOLE[: WHOLE.index(b"xref")], id="objects only"),
        pytest.param(WHOLE[: WHOLE.index(b"xref")] + WHOLE[WHOLE.index(b"trailer") :] + JUNK, id="no table"),
    ],
)
def test_whole_files_are_read_whatever_their_end(save_pdf: SavePdf, content: bytes) -> None:
    assert pdf_parser.parse_pdf(save_pdf(content), pages=1).markdown == ["hello world"]


@pytest.mark.skipif(not SHARED.exists(), reason="The shared PDFs are not here.")
def test_pages_of_a_file_whose_references_are_wrong_keep_their_order(save_pdf: SavePdf) -> None:
    whole = (SHARED / "text" / "normal_4pages.pdf").read_bytes()
    wrong = whole[: whole.rindex(b"startxref")] + b"startxref\n77\n%%EOF\n"

    expected, pages = (pdf_parser.parse_pdf(save_pdf(pdf), pages=4).markdown for pdf in (whole, wrong))

    for right, page in zip(expected, pages, strict=True):
        assert len(set(page.split()) & set(right.split())) > 0.6 * len(set(right.split()))


@pytest.mark.parametrize(
    "content",
    [
        WHOLE[: WHOLE.index(b"xref") + 30],
        WHOLE[: WHOLE.index(b"endstream")],
        WHOLE[: WHOLE.index(b"5 0 obj")],  # the contents of the page
        WHOLE + b"3 0 obj\n" + content_stream(JUNK),  # an update that was cut
        WHOLE[: WHOLE.index(b"xref")] + b"6 0 obj\n" + XREF_STREAM[:-9],
        b"%PDF-1.7\n1 0 obj << /Linearized 1 >> endobj\nxref\n0 1\ntrailer << >>\nstartxref\n0\n%%EOF\n",
        WHOLE[: WHOLE.index(b"endstream")] + b"startxref\n" * 2,
    ],
)
def test_files_whose_end_is_missing_are_truncated(content: bytes) -> None:
    assert not file_structure.is_truncated(WHOLE)
    assert file_structure.is_truncated(content)


@pytest.mark.slow
def test_no_real_file_is_read_when_it_is_cut() -> None:
    shared = [path for path in SHARED_FILES if path.parent.name in ("text", "plans")]
    wholes = [path.read_bytes() for path in (*(ROOT / "samples").rglob("*.pdf"), *shared)]
    places = random.Random(15)

    cut = [whole[: int(places.uniform(0.1, 0.9) * len(whole))] for whole in wholes for _ in range(20)]

    assert not any(file_structure.is_truncated(whole) for whole in wholes)
    # A cut before an update, or among the last bytes, leaves a whole document.
    assert sum(map(file_structure.is_truncated, cut)) >= 0.998 * len(cut)


def test_pages_that_cannot_be_decrypted_are_damage_and_not_missing(save_pdf: SavePdf) -> None:
    # The page tree, object 3, is in a stream that would have to be decrypted.
    objects = [b"<< /Type /Catalog /Pages 3 0 R >>", b"<< /Filter /Standard /V 5 /R 6 >>"]

    assert outcome(save_pdf(build_pdf(objects, trailer=b"/Encr##t 2 0 R"))) == "PDF_MALFORMED"
    assert outcome(save_pdf(build_pdf(objects[:1]))) == "NO_PAGES"


# What is refused


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "EMPTY_FILE"),
        (b"PK\x03\x04 a zip", "NOT_A_PDF"),
        (b" " * 1024 + WHOLE, "NOT_A_PDF"),
        (WHOLE[:60], "PDF_TRUNCATED"),
        (WHOLE[:300], "PDF_TRUNCATED"),
        (b"%PDF-1.7\nnothing of the kind\n%%EOF\n", "PDF_MALFORMED"),
        (WHOLE.replace(b"<< /Type /Page ", b"<###Type /Page "), "PDF_MALFORMED"),
        (encrypted_pdf("secret", user_password=b"hunter2"), "PASSWORD_REQUIRED"),
        (build_pdf([b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [] /Count 0 >>"]), "NO_PAGES"),
        (pdf_bombs.flate_chained(), "PARSER_OUT_OF_MEMORY"),
    ],
)
def test_broken_files_fail_permanently(save_pdf: SavePdf, content: bytes, code: str) -> None:
    path = save_pdf(content)

    with pytest.raises(Permanent) as refusal:
        pdf_parser.parse_pdf(path, pages=pdf_parser.inspect_pdf(path).pages)

    assert refusal.value.code == code
    assert str(path) not in refusal.value.detail


def test_a_header_within_the_first_kilobyte_is_enough(save_pdf: SavePdf) -> None:
    assert outcome(save_pdf(b"\n" * 1000 + WHOLE)) == "text"


def test_every_failure_has_a_sentence() -> None:
    for kind, code, detail in FAILURES.values():
        assert kind in (Permanent, Retryable)
        assert code.isupper()
        assert detail.endswith(".")


@pytest.mark.parametrize(("pages", "seconds"), [(0, 120), (1, 120), (50, 120), (51, 240), (200, 480), (10_000, 600)])
def test_the_deadline_grows_with_the_pages_up_to_ten_minutes(pages: int, seconds: float) -> None:
    assert pdf_parser.parse_timeout(pages) == seconds


@pytest.mark.parametrize(("pages", "seconds"), [(1, 25), (200, 25), (201, 50), (1000, 125)])
def test_a_file_over_the_specs_page_limit_gets_more_computing_time(pages: int, seconds: int) -> None:
    assert pdf_parser.cpu_limit(pages) == seconds


@pytest.mark.slow
def test_parse_seconds_most_raises_the_deadline_and_the_time_limit_of_the_stage() -> None:
    program = (
        "import django; django.setup()\n"
        "from accessa import pipelines\n"
        "from documents.parsers import pdf_parser\n"
        "print(pdf_parser.parse_timeout(1000), pipelines.INSURANCE.step('parsing').time_limit)"
    )
    names = {"PARSE_SECONDS_MOST": "1800", "DJANGO_SETTINGS_MODULE": "accessa.settings"}

    output = subprocess.check_output([sys.executable, "-c", program], env=os.environ | names, text=True)

    deadline, time_limit = map(float, output.split())
    assert deadline == 1800
    assert time_limit > deadline


# What comes from outside


@pytest.mark.slow
def test_mutated_files_always_end_in_a_known_way(save_pdf: SavePdf) -> None:
    dice = random.Random(20)
    sources = [path.read_bytes() for path in SHARED_FILES if path.parent.name != "bombs"] or [WHOLE, encrypted_pdf("a")]
    known = {code for _, code, _ in FAILURES.values()} | {"text"}

    assert {outcome(save_pdf(mutated(dice.choice(sources), dice))) for _ in range(size(200, full=20_000))} <= known


def mutated(source: bytes, dice: random.Random) -> bytes:
    content = bytearray(source)
    if dice.random() < 0.3:
        return bytes(content[: dice.randrange(len(content))])
    for _ in range(dice.randint(1, 40)):
        content[dice.randrange(len(content))] = dice.randrange(256)
    return bytes(content)


EXPECTED = {
    "text": {"text"},
    "plans": {"text"},
    "scanned": {"NO_TEXT_LAYER"},
    "encrypted_openable": {"text"},
    "bombs": {"PARSER_OUT_OF_MEMORY"},
    "active_content": {"text", "NO_TEXT_LAYER"},
    "pages": {"text", "NO_TEXT_LAYER"},
    # one asks for a key of 80,000 bits and opens without; one has no pages
    "password": {"PASSWORD_REQUIRED", "text", "NO_PAGES"},
    "malformed": {"NOT_A_PDF", "PDF_MALFORMED", "PDF_TRUNCATED", "NO_TEXT_LAYER", "text"},
}


@pytest.mark.parametrize("path", SHARED_FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_sample_files_end_as_their_folder_says(path: Path) -> None:
    assert outcome(path) in EXPECTED[path.parent.name]
