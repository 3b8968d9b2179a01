"""OCR reads scans of any orientation in a child that no picture can make large, slow or dangerous."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pypdfium2
import pytest
from django.core.exceptions import ImproperlyConfigured
from PIL import Image, ImageDraw, ImageFont

from documents.parsers import ocr
from documents.parsers.ocr import ocr_sandbox
from documents.parsers.ocr.layout import layout_markdown
from jobs.outcomes import Permanent, Retryable, StageFailure
from testing import pdf_bombs
from testing.pdfs import SavePdf, build_pdf, content_stream, page_objects, text_operators

pytest.importorskip("cv2", reason="OpenCV wants libGL and glib from the system", exc_type=ImportError)

SCANNED = Path(__file__).resolve().parents[3] / "shared" / "pdfs" / "scanned"
RESIDENT_MB = 768
PARAGRAPH = "The deductible applies once a year\nfor each insured person."
ONE_PARAGRAPH = "The deductible applies once a year for each insured person."

needs_samples = pytest.mark.skipif(not SCANNED.exists(), reason="the shared sample PDFs are not here")


def draw_page(text: str, *, turned: int = 0, skew: float = 0.0, height: int = 300) -> Image.Image:
    """Return a page 800 wide with ``text``, turned counterclockwise by whole quarters. Reading costs by the area."""
    image = Image.new("RGB", (800, height), "white")
    ImageDraw.Draw(image).text((60, 80), text, fill="black", font=ImageFont.load_default(32), spacing=10)
    return image.rotate(skew, fillcolor="white").rotate(turned, expand=True)


@pytest.fixture
def scan(tmp_path: Path) -> Callable[..., Path]:
    """Save images as the pages of a PDF without any text."""

    def save(*images: Image.Image, rotate: int = 0) -> Path:
        path = tmp_path / "scan.pdf"
        images[0].save(path, save_all=True, append_images=images[1:], resolution=100)
        if rotate:
            document = pypdfium2.PdfDocument(path.read_bytes())
            document[0].set_rotation(rotate)
            document.save(path)
            document.close()
        return path

    return save


Scan = Callable[..., Path]


def recognize_page(path: Path) -> str:
    return ocr.recognize_pages(path, [0])[0]


# What is read


@pytest.mark.slow
@needs_samples
@pytest.mark.parametrize("name", ["ocr_test", "ocr_test_rotated_90", "ocr_test_rotated_180", "ocr_test_rotated_270"])
def test_a_scan_is_read_whichever_way_it_was_fed(name: str) -> None:
    text = recognize_page(SCANNED / f"{name}.pdf")

    assert text == "Docling bundles PDF document conversion to JSON and Markdown in an easy self contained package"


@pytest.mark.slow
@needs_samples
def test_a_typed_letter_is_read_in_order_and_in_paragraphs() -> None:
    paragraphs = recognize_page(SCANNED / "sample_with_rotation_mismatch.pdf").split("\n\n")

    assert paragraphs[0] == "THE SLEREXE COMPANY LIMITED"
    assert "Mining Surveys Ltd.,\nHolroyd Road,\nReading,\nBerks." in "\n".join(paragraphs)
    (body,) = [text for text in paragraphs if text.startswith("In facsimile a photocell is caused to perform")]
    assert body.endswith("to a remote destination over a radio or cable communications link.")


@pytest.mark.slow
@pytest.mark.parametrize("turned", [0, 90, 180, 270])
def test_rotated_content_on_an_upright_page_is_read(scan: Scan, turned: int) -> None:
    assert recognize_page(scan(draw_page(PARAGRAPH, turned=turned))) == ONE_PARAGRAPH


@pytest.mark.slow
@pytest.mark.parametrize(("turned", "rotate"), [(0, 90), (90, 90), (180, 180), (0, 270)])
def test_the_pages_own_rotation_is_honoured_and_may_be_wrong(scan: Scan, turned: int, rotate: int) -> None:
    assert recognize_page(scan(draw_page(PARAGRAPH, turned=turned), rotate=rotate)) == ONE_PARAGRAPH


@pytest.mark.slow
def test_a_page_that_was_fed_crooked_is_read(scan: Scan) -> None:
    assert recognize_page(scan(draw_page(PARAGRAPH, skew=2.5))) == ONE_PARAGRAPH


@pytest.mark.slow
def test_pages_keep_their_numbers_and_a_blank_one_is_empty(scan: Scan) -> None:
    specks = Image.fromarray(np.random.default_rng(1).integers(150, 256, (300, 800, 3), dtype=np.uint8))
    path = scan(draw_page("first"), draw_page(""), specks, draw_page("fourth"))

    assert ocr.recognize_pages(path, [3, 1, 2]) == {3: "fourth", 1: "", 2: ""}


@pytest.mark.slow
def test_text_that_runs_up_the_margin_of_an_upright_page_is_read_too(scan: Scan) -> None:
    page = draw_page(PARAGRAPH, height=600)
    page.paste(draw_page("Form 2291").crop((50, 70, 230, 130)).rotate(90, expand=True), (4, 300))

    text = recognize_page(scan(page))

    assert ONE_PARAGRAPH in text.split("\n\n")
    assert "Form 2291" in text.replace("Form2291", "Form 2291")


@pytest.mark.slow
def test_the_same_page_gives_the_same_text_in_another_process(scan: Scan) -> None:
    path = scan(draw_page("Policy 12-345\nCopay $25.00\nin network only"))
    before = recognize_page(path)

    ocr_sandbox.close()

    assert recognize_page(path) == before != ""


# In which order


def layout_lines(*pieces: tuple[float, float, float, str], slope: float = 0.0) -> str:
    """Each piece, 20 high, by its left edge, its right edge, its middle and its text, on a page that is crooked."""
    corners = [
        np.array(
            [(x, y + slope * x + up) for x, up in ((left, -10), (right, -10), (right, 10), (left, 10))], np.float32
        )
        for left, right, y, _ in pieces
    ]
    return layout_markdown(corners, [text for *_, text in pieces])


def prose(left: float, right: float, names: Sequence[str], top: float = 100) -> list[tuple[float, float, float, str]]:
    return [(left, right, top + 25 * row, name) for row, name in enumerate(names)]


def test_columns_are_read_in_order_and_split_at_titles_across_them() -> None:
    title, foot = (100, 900, 40, "Title"), (100, 900, 400, "Foot")
    left, right = prose(100, 480, ["a", "b", "c", "d", "e"]), prose(520, 900, ["v", "w", "x", "y", "z"], top=103)

    assert layout_lines(*right, foot, *left, title) == "Title\n\na b c d e\n\nv w x y z\n\nFoot"


def test_a_table_is_read_row_by_row() -> None:
    cells = [(100 + 300 * x, 180 + 300 * x, 100 + 25 * y, f"{y}{x}") for x in range(3) for y in range(6)]

    assert layout_lines(*cells) == "\n".join(f"{y}0 {y}1 {y}2" for y in range(6))


def test_the_rows_of_a_crooked_page_are_levelled() -> None:
    cells = [(100 + 300 * x, 180 + 300 * x, 100 + 25 * y, f"{y}{x}") for x in range(3) for y in range(6)]
    title = (100, 780, 75, "Title")

    assert layout_lines(title, *cells, slope=0.05) == "\n".join(["Title", *(f"{y}0 {y}1 {y}2" for y in range(6))])


def test_hyphenated_words_are_joined_and_list_items_are_not() -> None:
    lines = ["respon-", "sibility and", "1. first thing", "2. second"]

    assert layout_lines(*prose(100, 900, lines)) == "responsibility and\n1. first thing\n2. second"


def test_wide_gaps_start_paragraphs_and_short_rows_end_lines() -> None:
    body = [(100, 900, 100, "one"), (100, 400, 125, "two"), (100, 900, 150, "three"), (100, 900, 210, "four")]

    assert layout_lines(*body) == "one two\nthree\n\nfour"


def test_empty_text_stays_empty() -> None:
    assert layout_markdown([], []) == ""


# What is capped


def fork_server_pid() -> int:
    assert ocr_sandbox._process is not None
    return ocr_sandbox._process.pid


def status(process: int, name: str) -> int:
    """Return a figure of /proc/PID/status: kilobytes, where it is memory."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


def children() -> list[int]:
    if (server := ocr_sandbox._process) is None:  # the first request starts it
        return []
    return [int(pid) for pid in Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()]


def only_child() -> int:
    """Wait for the fork server to fork."""
    until = time.monotonic() + 20
    while not (pids := children()):
        assert time.monotonic() < until
        time.sleep(0.005)
    return pids[0]


@contextmanager
def resident() -> Iterator[list[int]]:
    """Return the most memory of the children, in kilobytes, sampled."""
    peaks, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            with contextlib.suppress(OSError):
                peaks[0] = max(peaks[0], *(status(child, "VmHWM") for child in children()), 0)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peaks
    finally:
        over.set()
        thread.join()


@contextmanager
def reading(path: Path) -> Iterator[list[StageFailure]]:
    """Run a batch in another thread until the block ends."""
    failures: list[StageFailure] = []

    def read() -> None:
        try:
            ocr.recognize_pages(path, [0, 0, 0, 0])
        except StageFailure as failure:
            failures.append(failure)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield failures
    finally:
        thread.join()


def outcome(path: Path) -> str:
    try:
        return recognize_page(path)
    except StageFailure as failure:
        return failure.code


def computed() -> float:
    """Return the CPU seconds of the fork server and its children."""
    fields = Path(f"/proc/{fork_server_pid()}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


BOMBS: dict[Callable[[], bytes], str] = {
    pdf_bombs.flate_once: "PARSER_OUT_OF_MEMORY",
    pdf_bombs.nested_forms: "PARSER_OUT_OF_MEMORY",
    pdf_bombs.many_operators: "PARSER_OUT_OF_MEMORY",
    pdf_bombs.scanned_flood: "",
    pdf_bombs.absurd_count: "",
    pdf_bombs.cyclic_tree: "",
    pdf_bombs.huge_media_box: "vast",
    pdf_bombs.pixel_flood: "beside the flood",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOMBS, ids=lambda kind: kind.__name__)
def test_a_bomb_fails_in_time_and_its_child_stays_small(kind: Callable[[], bytes], save_pdf: SavePdf) -> None:
    path = save_pdf(kind())
    ocr.recognize_pages(path, [])  # the zygote is there
    spent = computed()

    with resident() as peaks:
        code = outcome(path)

    assert code == BOMBS[kind]
    assert computed() - spent <= 5
    assert peaks[0] <= RESIDENT_MB << 10
    assert children() == []


@pytest.mark.parametrize(
    "box", [b"[0 0 1000000 1000000]", b"[0 0 1000000 10]", b"[0 0 0.01 0.01]", b"[0 0 -1e38 1e38]"]
)
def test_a_page_of_any_size_costs_one_picture(box: bytes, save_pdf: SavePdf) -> None:
    page = build_pdf(page_objects([content_stream(text_operators("vast"))])).replace(b"[0 0 612 792]", box)

    with resident() as peaks:
        text = recognize_page(save_pdf(page))

    assert len(text) < 10
    assert peaks[0] <= RESIDENT_MB << 10


@pytest.mark.slow
def test_a_dense_scan_at_600_dpi_fits(scan: Scan) -> None:
    line = "The plan pays eighty percent of the covered charges after the deductible."
    page = Image.new("RGB", (4960, 7016), (250, 248, 240))
    font = ImageFont.load_default(100)
    for row in range(4):
        ImageDraw.Draw(page).text((300, 400 + 150 * row), line, fill="black", font=font)

    with resident() as peaks:
        text = recognize_page(scan(page))

    assert text.split("\n") == [line] * 4 or text == " ".join([line] * 4)
    assert 100 << 10 < peaks[0] <= RESIDENT_MB << 10


@pytest.mark.slow
def test_a_killed_child_costs_an_attempt_and_the_next_batch_is_read(scan: Scan) -> None:
    path = scan(draw_page(PARAGRAPH))
    ocr.recognize_pages(path, [])

    with reading(path) as failures:
        child = only_child()
        os.kill(child, signal.SIGKILL)

    assert [(type(failure), failure.code) for failure in failures] == [(Retryable, "PARSER_CRASHED")]
    assert not Path(f"/proc/{child}").exists()
    assert recognize_page(path) == ONE_PARAGRAPH


@pytest.mark.slow
def test_a_missed_deadline_is_worth_another_try(scan: Scan) -> None:
    path = scan(draw_page(PARAGRAPH))
    ocr.recognize_pages(path, [])

    with pytest.raises(Retryable) as failure:
        ocr_sandbox.request({"path": str(path), "pages": [0] * 20}, wall_seconds=0.3)

    assert failure.value.code == "PARSE_TIMEOUT"
    assert children() == []
    assert recognize_page(path) == ONE_PARAGRAPH


@pytest.mark.slow
def test_computing_time_that_runs_out_is_final(scan: Scan) -> None:
    with pytest.raises(Permanent) as failure:
        ocr_sandbox.request(
            {"path": str(scan(draw_page(PARAGRAPH))), "pages": [0] * 20, "cpu_seconds": 1}, wall_seconds=60
        )

    assert failure.value.code == "PARSE_TIMEOUT"


@pytest.mark.slow
def test_the_child_can_open_neither_file_nor_socket_once_it_reads_pages(scan: Scan) -> None:
    path = scan(draw_page(PARAGRAPH))
    ocr.recognize_pages(path, [])

    with reading(path):
        child = only_child()
        until = time.monotonic() + 20
        while psutil.Process(child).rlimit(psutil.RLIMIT_NOFILE)[0] != 0:
            assert time.monotonic() < until
            time.sleep(0.005)
        os.kill(child, signal.SIGKILL)  # the other pages are not needed


@pytest.mark.slow
def test_the_fork_server_has_one_thread_and_no_telemetry(scan: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SECRET_KEY", "do not tell")
    ocr_sandbox.close()
    ocr.recognize_pages(scan(draw_page("warm")), [0])

    environment = Path(f"/proc/{fork_server_pid()}/environ").read_bytes()
    assert b"do not tell" not in environment
    assert b"ORT_DISABLE_TELEMETRY=1" in environment
    assert status(fork_server_pid(), "Threads") == 1  # a fork of several threads may hang


@pytest.mark.slow
def test_libraries_that_do_not_load_are_the_deployments_fault(
    scan: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = scan(draw_page(PARAGRAPH))
    (tmp_path / "cv2.py").write_text("raise ImportError('libGL.so.1: cannot open shared object file')")
    ocr_sandbox.close()

    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with pytest.raises(ImproperlyConfigured, match=r"libGL\.so\.1.*apt-get install libgl1"):
        recognize_page(path)

    monkeypatch.undo()
    assert recognize_page(path) == ONE_PARAGRAPH
