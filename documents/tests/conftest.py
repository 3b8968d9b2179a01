"""Files to parse."""

from pathlib import Path

import pytest

from testing.pdfs import SavePdf


@pytest.fixture
def save_pdf(tmp_path: Path) -> SavePdf:
    def save(content: bytes) -> Path:
        path = tmp_path / "upload.pdf"
        path.write_bytes(content)
        return path

    return save
