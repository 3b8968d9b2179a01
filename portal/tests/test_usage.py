"""Usage page: what the signed-in user has stored and spent, and nobody else."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db.models import F
from django.db.models.functions import Now

from accounts import periodic
from accounts.models import RateWindow
from portal.tests.conftest import signed_in
from testing.personas import Person, plan_pdf
from vendors import ledger
from vendors.tests.test_usage import buy

pytestmark = pytest.mark.django_db
PAGE = "/settings/usage"


def test_the_page_shows_what_is_stored_and_spent(ana: Person, ben: Person, settings: Any) -> None:
    settings.TENANT_DAILY_CENTS = 1_000
    ana.ingest(plan_pdf("dental"))
    ledger.settle(buy(ana, 150), quantity=3_000, cents=Decimal(125))
    buy(ana, 20, vendor="llamaparse", unit="pages", quantity=4)
    buy(ben, 700)

    page = signed_in(ana).get(PAGE).content.decode()

    assert "1 document, " in page
    assert "Today (UTC): $1.45." in page
    assert "Of $10.00 a day, $8.55 are left" in page
    assert "<td>3000 tokens</td><td>$1.25</td>" in page.replace("3,000", "3000")
    assert "<td>4 pages</td><td>$0.20</td>" in page
    assert "includes estimates" in page
    assert "$7.00" not in page


def test_searches_are_counted_beyond_their_limits_window(ana: Person, ben: Person) -> None:
    for person in (ana, ana, ben):
        person.post("/search", {"query": "dental"})
        RateWindow.objects.filter(key__startswith="search:").update(expires_at=Now() - timedelta(days=1))
        periodic.delete_expired_rate_windows()
    ana.post("/search", {"query": "dental"})
    periodic.delete_expired_rate_windows()

    assert "3 searches and questions in the last 30 days" in signed_in(ana).get(PAGE).content.decode()
    counted = RateWindow.objects.filter(key=f"searched:{ana.id}")
    counted.update(expires_at=F("expires_at") - timedelta(days=31))
    periodic.delete_expired_rate_windows()
    assert not counted.exists()


def test_a_new_account_has_spent_nothing(ana: Person) -> None:
    page = signed_in(ana).get(PAGE).content.decode()

    assert "0 documents" in page
    assert "There is no daily limit." in page
    assert "Nothing was bought in the last 30 days." in page
