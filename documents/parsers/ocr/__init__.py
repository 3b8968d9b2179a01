"""Local OCR: PDF pages to markdown, a batch of pages at a time in a sandboxed child."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from documents.parsers.sandbox.client import LOW_MEMORY_ENV, SandboxClient, register_cleanup

VERSION = (
    f"{version('rapidocr-onnxruntime')}+1"  # the number is the version of our rules: orientation, order, paragraphs
)
PAGES_PER_BATCH = 4  # lost when a worker is killed: about 10 s of work
SECONDS_TO_START, SECONDS_A_PAGE = 20.0, 45.0  # a page takes 1 to 8 s on a core of its own, and workers share cores
MEMORY_MB = 1024  # of address space, 300 MB of it shared libraries that are never touched: 750 MB resident at most
# One thread: a fork server may have no others, and there are as many workers as cores anyway.
ENVIRONMENT = {
    **LOW_MEMORY_ENV,
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # onnxruntime's telemetry must be disabled before it is loaded; its own call to stop it comes too late.
    "ORT_DISABLE_TELEMETRY": "1",
}
REMEDY = (
    "OCR cannot be loaded ({}): pip install -r requirements/base.txt,"
    " and the system's libGL.so.1 and libgthread-2.0.so.0 (Debian: apt-get install libgl1 libglib2.0-0)."
)

ocr_sandbox = register_cleanup(
    SandboxClient("documents.parsers.ocr.ocr_fork_server", MEMORY_MB, ENVIRONMENT, grace_seconds=30.0)
)


def recognize_pages(path: Path, pages: Sequence[int]) -> dict[int, str]:
    """Return a markdown string for each of ``pages`` (from 0), "" where nothing can be read.

    Raises ``Permanent`` or ``Retryable``, and ``ImproperlyConfigured`` where the libraries do not load.
    """
    wall = SECONDS_TO_START + SECONDS_A_PAGE * len(pages)
    request = {"path": str(path.resolve()), "pages": list(pages), "cpu_seconds": int(wall)}
    response = ocr_sandbox.request(request, wall_seconds=wall)
    if "unavailable" in response:
        ocr_sandbox.close()  # a restarted one may find the missing library
        raise ImproperlyConfigured(REMEDY.format(response["unavailable"]))
    return dict(zip(pages, response["markdown"], strict=True))
