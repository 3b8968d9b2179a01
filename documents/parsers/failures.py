"""Errors of PDF parsing, and whether each is retryable."""

from jobs.outcomes import Permanent, Retryable, StageFailure, undeclared

#  reason                     exception   code                    detail for the tenant
FAILURES: dict[str, tuple[type[StageFailure], str, str]] = {
    "EMPTY_FILE": (Permanent, "EMPTY_FILE", "This file is empty."),
    "NOT_A_PDF": (Permanent, "NOT_A_PDF", "This file is not a PDF."),
    "PDF_TRUNCATED": (Permanent, "PDF_TRUNCATED", "This PDF is cut short; upload the whole file."),
    "PDF_MALFORMED": (Permanent, "PDF_MALFORMED", "This PDF is damaged and cannot be read."),
    "PASSWORD_REQUIRED": (Permanent, "PASSWORD_REQUIRED", "This PDF needs a password to be opened."),
    "NO_PAGES": (Permanent, "NO_PAGES", "This PDF has no pages."),
    "NO_TEXT_LAYER": (Permanent, "NO_TEXT_LAYER", "This PDF has no text layer that can be read; it needs OCR."),
    "NO_TEXT_FOUND": (Permanent, "NO_TEXT_FOUND", "OCR found no text in this PDF."),
    "PARSER_OUT_OF_MEMORY": (Permanent, "PARSER_OUT_OF_MEMORY", "This PDF needs more memory than parsing is allowed."),
    # Outcomes of a child without a response:
    "memory": (Permanent, "PARSER_OUT_OF_MEMORY", "This PDF needs more memory than parsing is allowed."),
    "cpu": (Permanent, "PARSE_TIMEOUT", "This PDF needs more computing time than parsing is allowed."),
    "deadline": (Retryable, "PARSE_TIMEOUT", "Parsing this PDF did not finish in time."),
    "killed": (Retryable, "PARSER_CRASHED", "The parser stopped unexpectedly on this PDF."),
    "crashed": (Retryable, "PARSER_CRASHED", "The parser stopped unexpectedly on this PDF."),
}


def parse_failure(reason: str) -> StageFailure:
    kind, code, detail = FAILURES[reason]
    return kind(undeclared(code), detail)
