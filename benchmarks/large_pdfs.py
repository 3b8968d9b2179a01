"""Generated PDFs: the largest that the product accepts, and one with more text than that."""

import io
import random
from pathlib import Path

from PIL import Image
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from benchmarks import stored_pdfs
from testing.pdfs import text_pdf

LINE_CHARS, LINES = 90, 50
CHUNK_CHARS = 1900  # about 512 tokens of such text, less the overlap


def write_image_pdf(target: Path, *, pages: int, megabytes: float) -> Path:
    """Real text on every page, and noise that no filter can shrink to make up the bytes."""
    canvas = Canvas(str(target), pageCompression=1)
    side = int((megabytes * 2**20 * 0.8 / pages / 3) ** 0.5)  # reportlab writes streams as ASCII85: a quarter more
    lines = _lines(pages * LINES)
    for _ in range(pages):
        text = canvas.beginText(40, 800)
        text.setFont("Helvetica", 8)
        for line in lines[:LINES]:
            text.textLine(line)
        del lines[:LINES]
        canvas.drawText(text)
        canvas.drawImage(_noise(side), 40, 40, 200, 200)
        canvas.showPage()
    canvas.save()
    return target


def write_text_pdf(target: Path, *, chunks: int) -> Path:
    """Nothing but text, on as many pages as it needs."""
    lines = _lines(chunks * CHUNK_CHARS // LINE_CHARS)
    target.write_bytes(text_pdf(*("\n".join(lines[at : at + LINES]) for at in range(0, len(lines), LINES))))
    return target


def _noise(side: int) -> ImageReader:
    stream = io.BytesIO()
    Image.frombytes("RGB", (side, side), random.randbytes(3 * side * side)).save(stream, "PNG")
    return ImageReader(stream)


def _lines(count: int) -> list[str]:
    """Lines of the samples' words, in an order of their own; the same at every run."""
    random.seed(7)
    folder = stored_pdfs.SAMPLES / "text"
    words = " ".join(path.read_text() for path in sorted(folder.rglob("*.md"))).split()
    plain = [word for word in words if word.isascii() and word[:1].isalpha()]
    lines = []
    for number in range(count):
        chosen = " ".join(random.choices(plain, k=22))[:LINE_CHARS]
        lines.append(chosen if number % 10 else "")
    return lines
