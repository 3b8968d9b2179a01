"""Fork server of the fidelity benchmark: our parser and bare engines in the sandbox, with the CPU time of each."""

import time
from typing import Any

import pdf_oxide
from liteparse import LiteParse

from documents.parsers import pdf_engines, pdf_fork_server
from documents.parsers.sandbox import fork_server


def respond(request: dict[str, Any]) -> dict[str, Any]:
    """Return the pages' markdown and the CPU seconds."""
    started = time.process_time()
    pages = ENGINES[request["engine"]](request)
    return {"markdown": pages, "seconds": time.process_time() - started}


def _parse_with_ours(request: dict[str, Any]) -> list[str]:
    response = pdf_fork_server.respond(request)
    if "refused" in response:
        raise ValueError(response["refused"])
    pages: list[str] = response["markdown"]
    return pages


def _parse_with_oxide(request: dict[str, Any]) -> list[str]:
    document = pdf_oxide.PdfDocument(request["path"])
    return [document.to_markdown(number, include_images=False) for number in range(document.page_count)]


def _parse_with_liteparse(request: dict[str, Any]) -> list[str]:
    return [page.markdown for page in _liteparse().parse(request["path"]).pages]


def _liteparse() -> Any:
    return LiteParse(
        ocr_enabled=False, output_format="markdown", quiet=True, num_workers=1, image_mode="off", extract_links=False
    )


ENGINES = {"ours": _parse_with_ours, "pdf-oxide": _parse_with_oxide, "liteparse": _parse_with_liteparse}

if __name__ == "__main__":
    pdf_oxide.disable_logging()
    pdf_engines.warm_up()
    fork_server.serve(0, 1, respond)
