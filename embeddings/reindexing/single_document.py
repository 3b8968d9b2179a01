"""Reading or cutting one document again: a campaign of that document alone, priced first and bounded by its price."""

from typing import Any, Literal

from django.db import transaction
from django.db.models.functions import Now

from accounts.audit import log
from accounts.models import User
from documents.models import Document
from embeddings.reindexing import cost_estimates, services
from embeddings.reindexing.cost_estimates import Estimate
from embeddings.reindexing.models import Campaign

Choice = Literal["reparse", "rechunk"]


def estimate(document: Document, *, kind: Choice, ocr: bool | None = None, **target: str | None) -> Estimate:
    """Return the price, which is the most that it may cost. ``target`` is a ``parser`` or a ``chunker``.

    ``ocr`` None leaves the document's choice. Writes nothing. Raises ``ApiError`` as ``cost_estimates.estimate``:
    "NOTHING_TO_DO" where the same would be made again, as the same parser makes the same text.
    """
    with transaction.atomic():
        _choose_ocr(document, ocr)
        estimate = cost_estimates.estimate(**_options(document, kind, target))
        transaction.set_rollback(True)
    return estimate


def start(
    document: Document, *, kind: Choice, by: User, reason: str, ocr: bool | None = None, **target: str | None
) -> Campaign:
    """Start it, with an audit entry. Search keeps the old passages until the new ones replace them.

    Raises ``ApiError`` as ``estimate`` and ``services.start`` ("CAMPAIGN_OPEN"), and "REASON_REQUIRED".
    """
    reason = log.clean_reason(reason)
    cents = estimate(document, kind=kind, ocr=ocr, **target).cents
    with transaction.atomic():
        _choose_ocr(document, ocr)
        campaign = services.start(**_options(document, kind, target), budget_cents=cents or None, by=str(by.pk))
        log.record_action(
            by=by, action=f"documents.{kind}", reason=reason, object_type="document", object_id=document.pk,
            tenant_id=document.user_id, campaign=str(campaign.pk), target=campaign.target, ocr=ocr,
        )  # fmt: skip
    return campaign


def _options(document: Document, kind: Choice, target: dict[str, str | None]) -> dict[str, Any]:
    return {"kind": kind, "document_ids": [document.pk], "user_ids": [document.user_id], **target}


def _choose_ocr(document: Document, ocr: bool | None) -> None:
    if ocr is not None:
        Document.objects.filter(pk=document.pk).update(ocr=ocr, updated_at=Now())
