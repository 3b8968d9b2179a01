"""Status of vendors and connected systems."""

from datetime import UTC, datetime, timedelta

import pytest

from accounts.audit.tests.personas import Staff
from console import service_status
from metrics import rollup_queries
from metrics.models import MetricRollup, Resolution
from vendors.models import Breaker

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 24, 12, 30, tzinfo=UTC)
MIDNIGHT = NOW.replace(hour=0, minute=0)


def calls(hour: datetime, count: int, outcome: str = "ok", *, seconds: float = 0.5, vendor: str = "llamaparse") -> None:
    MetricRollup.objects.create(
        metric="vendor", resolution=Resolution.HOUR, starts_at=hour, labels=[vendor, "parse", outcome], count=count,
        total=count * seconds, peak=seconds,
    )  # fmt: skip


def llamaparse() -> service_status.Service:
    (service,) = service_status.vendors(NOW)
    return service


def test_hours_in_which_half_of_the_calls_failed_are_one_trouble() -> None:
    for hour in range(-3, 12):
        is_night = 2 <= hour < 5
        calls(MIDNIGHT + timedelta(hours=hour), 10)
        if is_night:
            calls(MIDNIGHT + timedelta(hours=hour), 30, "VENDOR_UNREACHABLE")

    service = llamaparse()

    (trouble,) = service.troubles
    assert (trouble.state, trouble.calls, trouble.failed) == ("away", 120, 90)
    assert (trouble.since, trouble.until) == (MIDNIGHT + timedelta(hours=2), MIDNIGHT + timedelta(hours=5))
    assert (service.state, service.begun_at) == ("up", MIDNIGHT + timedelta(hours=5))
    assert len(service.hours) == 72


@pytest.mark.parametrize(
    ("outcome", "state"), [("500", "away"), ("429", "away"), ("408", "away"), ("401", "up"), ("422", "up")]
)
def test_a_refused_request_is_not_the_vendors_fault(outcome: str, state: str) -> None:
    calls(MIDNIGHT, 5, outcome)

    assert llamaparse().state == state


def test_an_hour_of_three_times_the_mean_is_slow() -> None:
    for hour in range(10):
        calls(MIDNIGHT + timedelta(hours=hour), 10, seconds=1.0)
    calls(MIDNIGHT + timedelta(hours=10), 10, seconds=9.0)

    assert [(trouble.state, trouble.until) for trouble in llamaparse().troubles] == [("slow", None)]


def test_an_open_breaker_is_away_since_it_opened() -> None:
    calls(MIDNIGHT, 5)
    Breaker.objects.create(key="llamaparse:abc/submit", state="open", opened_at=NOW)

    service = llamaparse()

    assert (service.state, service.begun_at) == ("away", NOW)


def test_the_page_is_for_staff_who_may_see_breakers() -> None:
    calls(rollup_queries.database_time().replace(minute=0, second=0, microsecond=0), 4, "500")

    page = Staff("support", group="support").client.get("/admin/status/").content.decode()

    assert "4 of 4 calls failed" in page
    assert "No connector has synced" in page
    assert Staff("nobody").client.get("/admin/status/").status_code == 403
