"""Progress within a stage, in percent."""

import pytest

from jobs.choices import Stage
from jobs.display_status import stage_pct
from jobs.models import UploadJob

COUNTERS = {"pages_total": 8, "pages_done": 2, "embeds_total": 4, "embeds_done": 3}


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("queued", 0),
        ("job_validated", 100),
        ("parsing", 25),
        ("parsed", 100),
        ("parse_validated", 100),
        ("chunking", 0),
        ("chunks_buffered", 100),
        ("chunked", 100),
        ("embedding", 75),
        ("embeddings_buffered", 100),
        ("embedded", 100),
    ],
)
def test_each_stage_has_its_percentage(stage: str, expected: float) -> None:
    assert stage_pct(UploadJob(stage=stage, state="working", progress=COUNTERS)) == expected


@pytest.mark.parametrize("stage", Stage.values)
def test_a_job_without_counters_has_a_percentage(stage: str) -> None:
    assert stage_pct(UploadJob(stage=stage, state="working", progress={})) in (0.0, 100.0)
