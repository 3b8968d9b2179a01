"""Checks of PDF parsing, OCR and LlamaParse, by the smallest possible document or call."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from accessa.doctor.findings import Finding, error, skipped, warning
from accessa.doctor.http_probe import NoResponse, send_request
from accessa.doctor.vendor_findings import explain_no_response, explain_status
from documents.parsers import ocr, pdf_parser
from jobs.outcomes import Permanent, Retryable

PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 100]/Contents 4 0 R"
    b"/Resources<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>endobj\n"
    b"4 0 obj<</Length 46>>\nstream\nBT /F1 18 Tf 20 50 Td (The doctor is in) Tj ET\nendstream endobj\n"
    b"trailer<</Root 1 0 R>>\n%%EOF\n"
)


CHILD = "Raise PDF_CHILD_MEMORY_MB, look at the system's limits, or install again: pip install -r requirements/base.txt"


def check_llamaparse() -> Iterator[Finding]:
    """List one parse: that costs nothing, and needs the key (https://developers.llamaindex.ai/llamaparse)."""
    if settings.PARSER != "llamaparse":
        yield skipped(f"PARSER={settings.PARSER}")
        return
    url = f"{settings.LLAMAPARSE_BASE_URL.rstrip('/')}/api/v2/parse?page_size=1"
    try:
        response = send_request("GET", url, headers={"authorization": f"Bearer {settings.LLAMAPARSE_API_KEY}"})
    except NoResponse as failure:
        yield explain_no_response("LlamaParse", failure, "LLAMAPARSE_BASE_URL")
        return
    if response.status == 200 and not isinstance(response.json.get("items"), list):
        yield error("The server at LLAMAPARSE_BASE_URL is not LlamaParse.", "Correct LLAMAPARSE_BASE_URL.")
    elif response.status != 200:
        yield explain_status("LlamaParse", response.status, "LLAMAPARSE_API_KEY", "LLAMAPARSE_BASE_URL")


@contextmanager
def _sample_pdf() -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(suffix=".pdf") as file:
        file.write(PDF)
        file.flush()
        yield Path(file.name)


def check_pdf() -> Iterator[Finding]:
    """Parse a page in the sandboxed child, which opens each document whatever the parser."""
    with _sample_pdf() as path:
        try:
            pages = pdf_parser.parse_pdf(path, pages=pdf_parser.inspect_pdf(path).pages).markdown
        except (Permanent, Retryable) as failure:
            yield error(f"A small PDF cannot be parsed: {failure.code}.", CHILD)
            return
    if "doctor is in" not in " ".join(pages):
        yield error("A small PDF is parsed to another text.", CHILD)


def check_ocr() -> Iterator[Finding]:
    with _sample_pdf() as path:
        try:
            ocr.recognize_pages(path, [0])
        except ImproperlyConfigured as failure:
            remedy = "Install what it names, if documents are to be read by OCR here; others do not need it."
            yield warning(str(failure), remedy)
        except (Permanent, Retryable) as failure:
            yield error(f"OCR does not work: {failure.code}.", CHILD)
