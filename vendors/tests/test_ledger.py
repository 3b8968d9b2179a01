"""Ledger: purchases are reserved before they are made, within a day's budget, also by concurrent callers."""

import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from jobs.claims import claim_next
from jobs.models import UploadJob
from jobs.outcomes import Permanent, Wait
from testing.concurrency import run_concurrently
from testing.error_codes import error_code
from testing.factories import JobFactory
from vendors import ledger
from vendors.models import Budget, Purchase

pytestmark = pytest.mark.django_db(transaction=True)

TENANT = uuid.UUID(int=7)


def reserve(cents: str | int, user_id: UUID = TENANT, **fields: Any) -> UUID:
    bought: dict[str, Any] = {"vendor": "openai", "model": "m", "unit": "tokens", "quantity": 100, "stage": "embedding"}
    return ledger.reserve(user_id=user_id, cents=Decimal(cents), **(bought | fields))


def refused_reservation(cents: int) -> Wait:
    with pytest.raises(Wait) as caught:
        reserve(cents)
    return caught.value


def set_budget(cents: int, user_id: UUID = TENANT) -> None:
    Budget.objects.create(user_id=user_id, cents_per_day=cents)


def move_purchases_to_yesterday() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE purchases SET created_at = created_at - interval '1 day'")


def spent_on(day: date) -> Decimal:
    """Return the cents of the tenant's own purchases of a UTC day, unsettled ones included."""
    rows = [row for row in ledger.bill(by="day", user_id=TENANT, day=day) if row["campaign_id"] is None]
    return sum((row["settled_cents"] + row["unsettled_cents"] for row in rows), Decimal(0))


def test_without_a_budget_nothing_is_refused() -> None:
    reserve(10**6)

    assert ledger.remaining_today(TENANT) is None


def test_a_purchase_over_the_budget_is_refused() -> None:
    set_budget(10)
    reserve(7)

    wait = refused_reservation(4)

    now = datetime.now(UTC)
    midnight = datetime(now.year, now.month, now.day, tzinfo=UTC) + timedelta(days=1)
    assert wait.reason == "BUDGET_SPENT"
    assert wait.seconds == pytest.approx((midnight - now).total_seconds(), abs=5)
    assert Purchase.objects.count() == 1
    assert ledger.remaining_today(TENANT) == 3


def test_a_budget_can_be_spent_to_the_last_cent() -> None:
    set_budget(10)
    reserve(7)
    reserve(3)

    assert ledger.remaining_today(TENANT) == 0


def test_a_purchase_over_a_whole_days_budget_is_permanent() -> None:
    set_budget(10)

    with pytest.raises(Permanent, match="BUDGET_TOO_SMALL"):
        reserve(11)


def test_a_new_day_has_its_own_budget() -> None:
    set_budget(10)
    reserve(10)
    move_purchases_to_yesterday()

    reserve(10)

    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    assert spent_on(yesterday) == 10
    assert ledger.remaining_today(TENANT) == 0


def test_tenants_without_a_budget_have_the_settings(settings: Any) -> None:
    settings.TENANT_DAILY_CENTS = 5.0
    rich, free, other = (uuid.uuid4() for _ in range(3))
    set_budget(100, rich)
    set_budget(0, free)

    assert ledger.remaining_today(rich) == 100
    assert ledger.remaining_today(free) is None
    assert ledger.remaining_today(other) == 5


def test_one_tenants_spending_is_not_anothers() -> None:
    set_budget(10)
    reserve(10, uuid.uuid4())

    reserve(10)


CAMPAIGN = uuid.UUID(int=9)


def test_a_campaigns_purchases_do_not_touch_the_tenants_budget() -> None:
    set_budget(10)
    reserve(10)
    job = JobFactory.create(campaign_id=CAMPAIGN)

    reserve(11, limited=False, job_id=job.pk)  # more than a day's whole budget
    reserve(3, limited=False, campaign_id=CAMPAIGN)

    assert ledger.spent_today(TENANT) == 10
    assert ledger.remaining_today(TENANT) == 0
    assert spent_on(datetime.now(UTC).date()) == 10
    assert ledger.spent_by_campaign(CAMPAIGN) == 14
    assert refused_reservation(1).reason == "BUDGET_SPENT"


def test_a_tenants_own_job_is_limited_without_a_campaign() -> None:
    set_budget(10)

    with pytest.raises(Permanent, match="BUDGET_TOO_SMALL"):
        reserve(11, limited=False, job_id=JobFactory.create().pk)


def test_eight_at_once_never_overspend() -> None:
    set_budget(10)

    def buy() -> bool:
        try:
            reserve(3)
        except Wait:
            return False
        return True

    bought = run_concurrently(*[buy] * 8)

    assert sum(bought) == 3
    assert ledger.remaining_today(TENANT) == 1


def test_the_charge_replaces_the_estimate() -> None:
    set_budget(10)
    purchase = reserve(9)

    ledger.settle(purchase, quantity=42, cents=Decimal("1.5"))

    row = Purchase.objects.get()
    assert (row.state, row.quantity, row.cents) == ("settled", 42, Decimal("1.5"))
    assert row.settled_at is not None
    assert ledger.remaining_today(TENANT) == Decimal("8.5")


def test_a_void_deletes_the_reservation() -> None:
    set_budget(10)

    ledger.void(reserve(9))

    assert ledger.remaining_today(TENANT) == 10


def test_a_settled_purchase_cannot_be_voided() -> None:
    purchase = reserve(9)
    ledger.settle(purchase, quantity=1, cents=Decimal(9))

    ledger.void(purchase)

    assert Purchase.objects.count() == 1


def test_settling_an_unknown_purchase_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    ledger.settle(uuid.uuid4(), quantity=1, cents=Decimal(1))

    assert "not in the ledger" in caplog.text


def test_unsettled_purchases_count() -> None:
    set_budget(10)
    reserve(10)

    refused_reservation(1)


def test_a_reservation_rolls_back_with_the_callers_transaction() -> None:
    with transaction.atomic():
        reserve(5)
        transaction.set_rollback(True)

    assert not Purchase.objects.exists()


def test_prices_are_exact(settings: Any) -> None:
    settings.OPENAI_CENTS_PER_MILLION_TOKENS = 2.0
    settings.LLAMAPARSE_CREDITS_PER_PAGE, settings.LLAMAPARSE_CENTS_PER_CREDIT = 3.0, 0.125

    assert ledger.embedding_price(1) == Decimal("0.000002")
    assert ledger.embedding_price(300_000) == Decimal("0.6")
    assert ledger.parse_price(100) == Decimal("37.5")


@pytest.mark.usefixtures("never_vacuumed")
def test_todays_spend_uses_the_index() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        cursor.execute(f"EXPLAIN {ledger.TODAY}", [TENANT])
        plan = "\n".join(line for (line,) in cursor.fetchall())
        cursor.execute("RESET enable_seqscan")

    condition = next(line for line in plan.splitlines() if "Index Cond" in line)
    assert "created_at" in condition


def test_raising_a_budget_wakes_the_jobs_that_wait_for_it() -> None:
    waiting, other = JobFactory.create(user_id=TENANT), JobFactory.create()
    for _ in range(2):
        claim = claim_next("test:1:1")
        assert claim is not None
        claim.settle(Wait(3600, error_code("BUDGET_SPENT")))

    ledger.set_budget(TENANT, Decimal(50))

    assert UploadJob.objects.get(pk=waiting.pk).run_after is None
    assert UploadJob.objects.get(pk=other.pk).run_after is not None


def test_the_bill_tells_settled_from_unsettled() -> None:
    document = uuid.uuid4()
    ledger.settle(reserve(4, document_id=document), quantity=90, cents=Decimal(3))
    reserve(2, document_id=document)
    reserve(5, uuid.uuid4(), stage="parsing", unit="pages", vendor="llamaparse")

    by_stage = ledger.bill(by="stage")
    own = ledger.bill(by="document", user_id=TENANT, day=datetime.now(UTC).date())

    assert [(row["stage"], row["unit"], row["calls"], row["amount"]) for row in by_stage] == [
        ("embedding", "tokens", 2, 190),
        ("parsing", "pages", 1, 100),
    ]
    assert [(row["document_id"], row["settled_cents"], row["unsettled_cents"]) for row in own] == [(document, 3, 2)]


@pytest.mark.parametrize("by", ledger.GROUPS)
def test_a_bill_of_another_day_or_document_is_empty(by: str) -> None:
    reserve(4, document_id=uuid.uuid4())

    assert ledger.bill(by=by, day=datetime.now(UTC).date() - timedelta(days=1)) == []
    assert ledger.bill(by=by, document_id=uuid.uuid4()) == []
    assert len(ledger.bill(by=by)) == 1
