"""OCR on this machine: pictures of text in, markdown out, a slice of pages at a time, each slice in a capped child."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from documents.parsers.sandbox.client import LOW_MEMORY_ENV, SandboxClient, register_cleanup

VERSION = f"{version('rapidocr-onnxruntime')}+1"  # the number is that of our own rules: orientation, order, paragraphs
PAGES_PER_BATCH = 4  # pages: what a worker that is killed has read in vain, about 10 s
SECONDS_TO_START, SECONDS_A_PAGE = 20.0, 45.0  # a page takes 1 to 8 s on a core of its own, and workers share cores
MEMORY_MB = 1024  # of address space, 300 MB of it shared libraries that are never touched: 750 MB resident at most
# One thread: a zygote may only fork while it has no others, and as many workers as there are cores are at work anyway.
ENVIRONMENT = {
    **LOW_MEMORY_ENV,
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # onnxruntime reports to its maker unless told not to before it is loaded; its own call to stop it comes too late.
    "ORT_DISABLE_TELEMETRY": "1",
}
REMEDY = (
    "OCR cannot be loaded ({}): pip install -r requirements/base.txt,"
    " and the system's libGL.so.1 and libgthread-2.0.so.0 (Debian: apt-get install libgl1 libglib2.0-0)."
)

ocr_sandbox = register_cleanup(
    SandboxClient("documents.parsers.sandbox.ocr_child", MEMORY_MB, ENVIRONMENT, grace_seconds=30.0)
)


def recognize_pages(path: Path, pages: Sequence[int]) -> dict[int, str]:
    """One markdown string for each of ``pages`` (from 0), "" where nothing can be read.

    Raises ``Permanent`` or ``Retryable``, and ``ImproperlyConfigured`` where the libraries do not load.
    """
    wall = batch_timeout(len(pages))
    request = {"path": str(path.resolve()), "pages": list(pages), "cpu_seconds": int(wall)}
    told = ocr_sandbox.request(request, wall_seconds=wall)
    if "unavailable" in told:
        ocr_sandbox.close()  # the next one may find what was missing
        raise ImproperlyConfigured(REMEDY.format(told["unavailable"]))
    return dict(zip(pages, told["markdown"], strict=True))


def batch_timeout(pages: int) -> float:
    """The deadline of a slice of so many pages."""
    return SECONDS_TO_START + SECONDS_A_PAGE * pages
