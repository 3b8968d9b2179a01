"""OCR of pages without a text layer, in batches that are saved: a worker that dies loses one batch."""

import time
from collections.abc import Sequence
from pathlib import Path

from django.conf import settings

from documents.error_codes import OCR_CONTINUES
from documents.models import OcrPage
from documents.parse_store import pages_progress
from documents.parsers import ocr
from jobs import failpoints
from jobs.claims import Claim
from jobs.outcomes import Retryable, StageFailure, Wait

# Then the worker runs other jobs before it continues: a book of scans must not occupy one for half an hour.
TURN_SECONDS = 60.0
PARSING_PCT = (15.0, 45.0)  # total progress when parsing begins, and when the last page is in


def recognize_blank_pages(
    claim: Claim, path: Path, pages: Sequence[str], version: str
) -> tuple[list[str], tuple[int, ...]]:
    """Fill the blank pages of ``pages`` by OCR; return them, and the pages, from 1, that could not be read.

    Raises Wait when the turn is over and batches are left. Pages that the same ``version``, which contains the engine's
    ``ocr.VERSION``, has read before are reused.
    """
    document = claim.job.document
    saved = OcrPage.objects.filter(document=document, parser_version=version)
    scanned = dict(saved.values_list("page", "text"))
    left = [number for number, text in enumerate(pages, 1) if not text.strip() and number not in scanned]
    until = time.monotonic() + TURN_SECONDS
    is_last_try = claim.job.attempts > settings.JOBS_MAX_RETRIES
    for start in range(0, len(left), ocr.PAGES_PER_BATCH):
        if time.monotonic() > until:
            raise Wait(0.0, OCR_CONTINUES)
        batch = _recognize_batch(path, left[start : start + ocr.PAGES_PER_BATCH], is_last_try=is_last_try)
        failpoints.failpoint("parsing:scanned")
        rows = [
            OcrPage(document=document, user_id=document.user_id, page=page, parser_version=version, text=text)
            for page, text in batch.items()
        ]
        with claim.transaction():
            OcrPage.objects.bulk_create(
                rows,
                update_conflicts=True,
                unique_fields=["document", "page"],
                update_fields=["parser_version", "text"],
            )
            done = len(pages) - len(left) + start + len(batch)
            low, high = PARSING_PCT
            total_pct = low + (high - low) * done / len(pages)
            claim.save_progress(total_pct=total_pct, progress=pages_progress(len(pages), done))
        scanned |= batch
    whole = [text if text.strip() else scanned.get(number) or "" for number, text in enumerate(pages, 1)]
    return whole, tuple(sorted(number for number, text in scanned.items() if text is None))


def _recognize_batch(path: Path, numbers: list[int], *, is_last_try: bool) -> dict[int, str | None]:
    """Read some pages; when a batch fails for good, read its pages singly, so that only the bad ones are lost."""
    try:
        texts = ocr.recognize_pages(path, [number - 1 for number in numbers])
        return {index + 1: text for index, text in texts.items()}
    except StageFailure as failure:
        if isinstance(failure, Retryable) and not is_last_try:
            raise
        if len(numbers) == 1:
            return {numbers[0]: None}
    singles = (_recognize_batch(path, [number], is_last_try=is_last_try) for number in numbers)
    return {page: text for single in singles for page, text in single.items()}
