"""Pages without a text layer, read by OCR in slices: what a slice gave is kept, so a lost worker loses one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from documents.models import Document, ScannedPage
from documents.parsers import ocr
from jobs import failpoints
from jobs.claims import Claim
from jobs.outcomes import Retryable, StageFailure, Wait

# Then the worker serves others before it goes on: a book of scans must not hold one for half an hour.
TURN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class OcrPages:
    """Markdown by page, and the pages, from 1, that could not be read."""

    pages: Sequence[str]
    failed: tuple[int, ...] = ()


def recognize_blank_pages(claim: Claim, path: Path, pages: Sequence[str], version: str) -> OcrPages | Wait:
    """Fill in the blank pages of ``pages`` by OCR; Wait when the turn is over and slices are left.

    Taken over is what a reader of the same ``version`` has read: it names the engine's, ``ocr.VERSION``, too.
    """
    document = claim.job.document
    known = ScannedPage.objects.filter(document=document, parser_version=version)
    found = dict(known.values_list("page", "text"))
    left = [number for number, text in enumerate(pages, 1) if not text.strip() and number not in found]
    until = time.monotonic() + TURN_SECONDS
    for start in range(0, len(left), ocr.PAGES_PER_BATCH):
        if time.monotonic() > until:
            return Wait(0.0, "OCR_CONTINUES")
        made = _slice(
            path, left[start : start + ocr.PAGES_PER_BATCH], is_last_try=claim.job.attempts > settings.JOBS_MAX_RETRIES
        )
        failpoints.failpoint("parsing:scanned")
        with claim.transaction():
            _keep(document, version, made)
        found |= made
    whole = [text if text.strip() else found.get(number) or "" for number, text in enumerate(pages, 1)]
    return OcrPages(whole, tuple(sorted(number for number, text in found.items() if text is None)))


def _keep(document: Document, version: str, made: dict[int, str | None]) -> None:
    """Keep what was read, in the place of what another version has read."""
    rows = [
        ScannedPage(document=document, user_id=document.user_id, page=page, parser_version=version, text=text)
        for page, text in made.items()
    ]
    columns = ["parser_version", "text"]
    ScannedPage.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["document", "page"], update_fields=columns
    )


def _slice(path: Path, numbers: list[int], *, is_last_try: bool) -> dict[int, str | None]:
    """Read some pages; one that cannot be read loses only itself."""
    try:
        return {
            index + 1: text for index, text in ocr.recognize_pages(path, [number - 1 for number in numbers]).items()
        }
    except StageFailure as failure:
        if isinstance(failure, Retryable) and not is_last_try:
            raise
        if len(numbers) == 1:
            return {numbers[0]: None}
    pages = (_slice(path, [number], is_last_try=is_last_try) for number in numbers)
    return {page: text for made in pages for page, text in made.items()}
