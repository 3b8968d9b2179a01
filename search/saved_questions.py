"""Saved questions of the search page: a row of their tenant each, bounded by number and by age, deletable."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from django.db.models.functions import Now

from accounts.common_error_codes import not_found
from accounts.rls import as_tenant
from search.models import SavedQuestion

MAX_QUESTIONS = 200  # of a tenant: the newest
MAX_DAYS = 90
BATCH = 1_000


def save_question(*, user_id: UUID, question: str, history: Sequence[str], mode: str, scope: str) -> SavedQuestion:
    """Store a question; the tenant's oldest beyond MAX_QUESTIONS are deleted."""
    row = SavedQuestion.objects.create(
        user_id=user_id, question=question, history=list(history), mode=mode, scope=scope
    )
    own = SavedQuestion.objects.filter(user_id=user_id)
    newest = own.order_by("-created_at", "pk").values("pk")[:MAX_QUESTIONS]
    own.exclude(pk__in=list(newest.values_list("pk", flat=True))).delete()
    return row


def get_question(user_id: UUID, question_id: UUID) -> SavedQuestion:
    """Return a question of the tenant. Raises ``ApiError``: NOT_FOUND for another tenant's, too."""
    with as_tenant(user_id):
        row = SavedQuestion.objects.filter(user_id=user_id, pk=question_id).first()
    if row is None:
        raise not_found()
    return row


def delete_question(user_id: UUID, question_id: UUID) -> None:
    SavedQuestion.objects.filter(user_id=user_id, pk=question_id).delete()


def delete_expired_questions() -> None:
    """Delete some of the questions that are older than MAX_DAYS."""
    expired = SavedQuestion.objects.filter(created_at__lt=Now() - timedelta(days=MAX_DAYS)).order_by("created_at")
    SavedQuestion.objects.filter(pk__in=list(expired.values_list("pk", flat=True)[:BATCH])).delete()
