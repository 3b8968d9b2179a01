"""RELIABILITY: at least twelve kinds of bombs, each refused within 5 s, and the worker grows by 20 MB at most."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from documents.parsers import pdf_parser
from documents.parsers.failures import FAILURES
from documents.parsers.sandbox.client import pdf_sandbox
from jobs.outcomes import StageFailure
from testing import pdf_bombs

pytestmark = pytest.mark.slow

SECONDS = 5.0
WORKER_GROWTH = 20 << 20
KNOWN = {code for _, code, _ in FAILURES.values()} | {"read"}
HARMLESS = {"pixel_flood", "xref_loop", "huge_media_box", "deep_arrays"}  # the text is there, and nothing explodes


@pytest.mark.parametrize("kind", pdf_bombs.KINDS, ids=lambda kind: kind.__name__)
def test_a_bomb_fails_in_time_and_the_worker_stays_small(kind: Callable[[], bytes], tmp_path: Path) -> None:
    path = tmp_path / "bomb.pdf"
    path.write_bytes(kind())
    memory, spent = resident(), computed()

    code = outcome(path)

    assert code in KNOWN
    assert computed() - spent <= SECONDS
    assert resident() - memory <= WORKER_GROWTH
    assert code == "read" or kind.__name__ not in HARMLESS


def test_there_are_twelve_kinds_of_bombs() -> None:
    assert len(pdf_bombs.KINDS) >= 12


def outcome(path: Path) -> str:
    """Inspect, then parse unless the inspection fails, as the pipeline does."""
    try:
        pdf_parser.parse_pdf(path, pages=pdf_parser.inspect_pdf(path).pages)
    except StageFailure as failure:
        return failure.code
    return "read"


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def computed() -> float:
    """CPU seconds of all children so far: unlike the wall clock, it does not depend on who else uses the machine."""
    if pdf_sandbox._process is None:
        return 0.0
    fields = Path(f"/proc/{pdf_sandbox._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
