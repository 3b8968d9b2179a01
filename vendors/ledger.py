"""Ledger of paid vendor calls: reserved before a call, settled after it, within a tenant's daily budget.

A day is a UTC day of the database's clock.
"""

import logging
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Count, DateTimeField, F, Func, Q, QuerySet, Sum, Value
from django.db.models.functions import Coalesce, TruncDate

from accounts.rls import as_tenant
from jobs import services
from jobs.advisory_locks import lock_transaction
from jobs.choices import State
from jobs.models import UploadJob
from jobs.outcomes import Permanent, Wait
from vendors.error_codes import BUDGET_SPENT, BUDGET_TOO_SMALL
from vendors.models import Budget, Purchase

log = logging.getLogger("accessa.vendors")

CENT_FRACTION = Decimal("0.000001")  # as the column keeps them

# Of the statement, not of the transaction, which may have begun before midnight; stable, so that the index serves.
_TODAY = "date_trunc('day', statement_timestamp(), 'UTC')"
TODAY = f"""
SELECT coalesce(sum(cents), 0), extract(epoch FROM {_TODAY} + interval '1 day' - statement_timestamp())::float
FROM purchases WHERE user_id = %s AND campaign_id IS NULL AND created_at >= {_TODAY}
"""


class StatementTimestamp(Func):
    function = "statement_timestamp"
    output_field = DateTimeField()


def period_start(period: str) -> Func:
    """Return when the current ``day`` or ``month`` began, by UTC and the database's clock."""
    return Func(Value(period), StatementTimestamp(), Value("UTC"), function="date_trunc", output_field=DateTimeField())


# Prices are in cents.
def parse_price(pages: int) -> Decimal:
    return credit_price(pages * Decimal(str(settings.LLAMAPARSE_CREDITS_PER_PAGE)))


def credit_price(credits: Decimal) -> Decimal:
    return (credits * Decimal(str(settings.LLAMAPARSE_CENTS_PER_CREDIT))).quantize(CENT_FRACTION, ROUND_HALF_UP)


def embedding_price(tokens: int) -> Decimal:
    price = Decimal(str(settings.OPENAI_CENTS_PER_MILLION_TOKENS))
    return (tokens * price / 1_000_000).quantize(CENT_FRACTION, ROUND_HALF_UP)


def answer_price(input_tokens: int, output_tokens: int) -> Decimal:
    prices = Decimal(str(settings.OPENAI_ANSWER_INPUT_CENTS)), Decimal(str(settings.OPENAI_ANSWER_OUTPUT_CENTS))
    cents = (input_tokens * prices[0] + output_tokens * prices[1]) / 1_000_000
    return cents.quantize(CENT_FRACTION, ROUND_HALF_UP)


def predict_price(pages: int, *, is_local: bool) -> tuple[int, Decimal]:
    """Return the tokens and cents of a document: the parse costs by page, embeddings by TOKENS_PER_PAGE of them."""
    tokens = pages * settings.TOKENS_PER_PAGE
    cents = Decimal(0) if is_local else parse_price(pages)
    return tokens, cents + (embedding_price(tokens) if settings.EMBEDDER == "openai" else 0)


def reserve(
    *,
    user_id: UUID,
    cents: Decimal,
    job_id: UUID | None = None,
    campaign_id: UUID | None = None,
    limited: bool = True,
    **columns: Any,
) -> UUID:
    """Insert the purchase that is about to be made, in the caller's transaction; return its id.

    ``columns``: ``vendor, model, unit, quantity, stage, document_id``.
    With ``limited=False`` a campaign pays, ``campaign_id`` or the job's, and the tenant's budget is not used.
    Raises ``Wait("BUDGET_SPENT")`` until the next day when the tenant's budget does not have ``cents`` left, and
    ``Permanent("BUDGET_TOO_SMALL")`` when no day's budget ever will. A tenant with a budget is locked until the
    transaction ends: take no other lock after it, and make no call inside.
    """
    if campaign_id is None and job_id is not None and not limited:
        campaign_id = UploadJob.objects.filter(pk=job_id).values_list("campaign_id", flat=True).first()
    with transaction.atomic():
        budget = None if campaign_id else day_budget(user_id)
        if budget is not None:
            _check_budget(user_id, cents, budget)
        columns |= {"user_id": user_id, "cents": cents, "job_id": job_id, "campaign_id": campaign_id}
        purchase = Purchase.objects.create(**columns, created_at=StatementTimestamp())
    return purchase.pk


def _check_budget(user_id: UUID, cents: Decimal, budget: Decimal) -> None:
    if cents > budget:
        detail = f"This needs {cents:f} cents at once; the budget of a whole day is {budget:f}."
        raise Permanent(BUDGET_TOO_SMALL, detail)
    lock_transaction(f"budget:{user_id}")
    with connection.cursor() as cursor:
        # A statement of its own: one that waited for the lock itself would not see what the holder has written.
        cursor.execute(TODAY, [user_id])
        spent, until_midnight = cursor.fetchone()
    if spent + cents > budget:
        raise Wait(until_midnight, BUDGET_SPENT)


def settle(purchase_id: UUID, *, quantity: int, cents: Decimal) -> None:
    settled_at = Coalesce("settled_at", StatementTimestamp())
    changes = {"state": Purchase.State.SETTLED, "quantity": quantity, "cents": cents, "settled_at": settled_at}
    # Voided before: the parse or the vectors are worth more than the entry.
    if not Purchase.objects.filter(pk=purchase_id).update(**changes):
        log.error("Purchase %s was settled and is not in the ledger.", purchase_id)


def void(purchase_id: UUID) -> None:
    """Delete the reservation of a call that the vendor certainly did not make. What is settled stays."""
    Purchase.objects.filter(pk=purchase_id, state=Purchase.State.RESERVED).delete()


def day_budget(user_id: UUID) -> Decimal | None:
    """Return the tenant's budget in cents a day: its own, or the setting's; None without a limit."""
    own = Budget.objects.filter(pk=user_id).values_list("cents_per_day", flat=True).first()
    budget = Decimal(str(settings.TENANT_DAILY_CENTS)) if own is None else own
    return budget if budget > 0 else None


def remaining_today(user_id: UUID) -> Decimal | None:
    """Return how many cents the tenant may still spend today; None without a budget."""
    budget = day_budget(user_id)
    return None if budget is None else max(Decimal(0), budget - spent_today(user_id))


def spent_today(user_id: UUID) -> Decimal:
    with connection.cursor() as cursor:
        cursor.execute(TODAY, [user_id])
        return Decimal(cursor.fetchone()[0])


def require_budget(user_id: UUID, cents: Decimal) -> None:
    """Raise as ``reserve`` does when the tenant's budget does not have ``cents`` left, and reserve nothing."""
    budget = day_budget(user_id)
    if budget is not None:
        with transaction.atomic():
            _check_budget(user_id, cents, budget)


def tenant_purchases(user_id: UUID) -> QuerySet[Purchase]:
    """Return the tenant's own purchases: only staff see a campaign's."""
    return Purchase.objects.filter(user_id=user_id, campaign_id=None)


def read_usage(user_id: UUID) -> dict[str, Any]:
    """Return what a tenant has spent today and this month, what is left of today's budget, and what was bought."""
    with as_tenant(user_id):
        purchases = tenant_purchases(user_id)
        today, month = (purchases.filter(created_at__gte=period_start(period)) for period in ("day", "month"))
        return {
            "today": _sum(today),
            "month": _sum(month),
            "budget_cents_per_day": day_budget(user_id),
            "left_today_cents": remaining_today(user_id),
            "bought_this_month": list(aggregate_purchases(month.values("vendor", "unit")).order_by("vendor", "unit")),
        }


def read_daily_spending(user_id: UUID, days: int) -> list[dict[str, Any]]:
    """Return the ``day`` and ``cents`` of each of the last days on which a tenant bought something, the last first."""
    with as_tenant(user_id):
        recent = tenant_purchases(user_id).filter(created_at__gte=period_start("day") - timedelta(days=days - 1))
        return list(recent.values(day=TruncDate("created_at")).annotate(cents=Sum("cents")).order_by("-day"))


def _sum(purchases: QuerySet[Purchase]) -> dict[str, Any]:
    rows = list(aggregate_purchases(purchases.values("user_id")).order_by("user_id"))
    row = rows[0] if rows else {"settled_cents": Decimal(0), "unsettled_cents": Decimal(0)}
    return {**row, "cents": row["settled_cents"] + row["unsettled_cents"]}


def spent_by_campaign(campaign_id: UUID) -> Decimal:
    return Purchase.objects.filter(campaign_id=campaign_id).aggregate(cents=Sum("cents"))["cents"] or Decimal(0)


def set_budget(user_id: UUID, cents_per_day: Decimal | None) -> None:
    """Set a tenant's own budget, 0 for no limit, None for the setting's; wake the jobs that wait for it."""
    if cents_per_day is None:
        Budget.objects.filter(pk=user_id).delete()
    else:
        Budget.objects.update_or_create(pk=user_id, defaults={"cents_per_day": cents_per_day})
    waiting = UploadJob.objects.filter(user_id=user_id, state=State.QUEUED, run_after__isnull=False)
    for document_id in list(waiting.filter(wait_reason=BUDGET_SPENT).values_list("document_id", flat=True)):
        services.wake_job(document_id)


GROUPS = {"stage": "stage", "vendor": "vendor", "document": "document_id", "day": "day", "campaign": "campaign_id"}


def bill(
    *, by: str, user_id: UUID | None = None, day: date | None = None, document_id: UUID | None = None
) -> list[dict[str, Any]]:
    """Return sums of purchases, one row for each ``by`` (a key of ``GROUPS``), campaign and unit.

    The columns are those of ``aggregate_purchases``. Tenants' own purchases have no campaign, and come first.
    """
    purchases = Purchase.objects.all()
    if user_id:
        purchases = purchases.filter(user_id=user_id)
    if document_id:
        purchases = purchases.filter(document_id=document_id)
    if day:
        start = datetime.combine(day, time(), UTC)
        purchases = purchases.filter(created_at__gte=start, created_at__lt=start + timedelta(days=1))
    group = GROUPS[by]
    grouped = purchases.annotate(day=TruncDate("created_at")).values("campaign_id", group, "unit")
    return list(aggregate_purchases(grouped).order_by(F("campaign_id").asc(nulls_first=True), group, "unit"))


def aggregate_purchases(grouped: QuerySet[Purchase, Any]) -> QuerySet[Purchase, Any]:
    """Add ``calls``, ``amount`` (pages or tokens), ``settled_cents`` and ``unsettled_cents`` to each group."""
    settled = Q(state=Purchase.State.SETTLED)
    return grouped.annotate(
        calls=Count("pk"),
        amount=Sum("quantity"),
        settled_cents=Coalesce(Sum("cents", filter=settled), Decimal(0)),
        unsettled_cents=Coalesce(Sum("cents", filter=~settled), Decimal(0)),
    )
