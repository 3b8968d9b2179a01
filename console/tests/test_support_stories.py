"""Support's three stories in a browser, from the e-mail address, in clicks; the console's pages on desk and phone."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect

from accounts.audit.roles import sync_group
from accounts.models import User
from documents.models import Document
from jobs.models import Event, UploadJob
from metrics import rollup_queries
from metrics.models import MetricRollup, Resolution
from testing.browser import PHONE, Visit, browser, visit  # noqa: F401 - fixtures
from testing.factories import JobFactory
from testing.personas import Person
from vendors.models import Purchase

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

MOST_CLICKS = 4
COUNT_CLICKS = """document.addEventListener("click", (event) => {
    if (event.isTrusted) sessionStorage.clicks = 1 + Number(sessionStorage.clicks || 0);
}, true);"""
WIDTH = "document.documentElement.scrollWidth"
CHARTS_DRAWN = "[...document.querySelectorAll('canvas.chart')].every(each => Chart.getChart(each))"
CUT_OFF = """[...document.querySelectorAll("main .simplebar-content-wrapper, main .console-scroll")]
    .some(each => each.scrollWidth > each.clientWidth + 1)"""


@pytest.fixture
def failed(ana: Person) -> UploadJob:
    """Return Ana's document that the parser has not read, its purchase of three dollars and its journal."""
    error = {
        "code": "VENDOR_UNAVAILABLE",
        "detail": "The vendor has a fault of its own.",
        "stage": "parsing",
        "attempt": 4,
    }
    job: UploadJob = JobFactory.create(
        user_id=ana.id, state="deadletter", stage="parsing", last_error=error, attempts=4, pipeline="insurance",
        cost_cents=300,
    )  # fmt: skip
    Document.objects.filter(pk=job.document_id).update(user_id=ana.id, filename="Dental plan 2026.pdf", pages=120)
    bought = {"user_id": ana.id, "document_id": job.document_id, "job_id": job.pk, "vendor": "llamaparse"}
    Purchase.objects.create(stage="parsing", model="agentic", unit="pages", quantity=120, cents=300, **bought)
    for code, type_, severity in (
        ("UPLOAD_ACCEPTED", "stage_started", "info"), ("CLAIMED", "stage_started", "info"),
        ("RETRY_SCHEDULED", "retry", "warn"), ("DLQ_MOVED", "error", "error"),
    ):  # fmt: skip
        Event.objects.create(
            job=job, document_id=job.document_id, user_id=ana.id, type=type_, severity=severity, code=code,
            correlation_id=job.correlation_id, payload={"stage": "parsing", "attempt": 1},
        )  # fmt: skip
    hour = rollup_queries.database_time().replace(minute=0, second=0, microsecond=0) - timedelta(hours=12)
    for at, outcome in ((hour, "503"), (hour + timedelta(hours=3), "ok")):
        MetricRollup.objects.create(
            metric="vendor", resolution=Resolution.HOUR, starts_at=at, labels=["llamaparse", "parse", outcome],
            count=40, total=80.0, peak=2.0,
        )  # fmt: skip
    return job


@pytest.fixture
def desk(visit: Callable[..., Visit], sam: Person) -> Visit:  # noqa: F811
    User.objects.filter(pk=sam.id).update(is_staff=True)
    sam.user.groups.set([sync_group("support")])
    sams = visit()
    sams.is_signed_in(sam.user)
    sams.page.add_init_script(COUNT_CLICKS)
    return sams


def find(page: Page, text: str) -> None:
    """Type into the box in the head of the page, and click."""
    page.goto("/admin/")
    page.get_by_label("Find", exact=True).fill(text)
    page.locator(".console-find").get_by_role("button", name="Find").click()


def clicks(page: Page) -> int:
    return int(page.evaluate("Number(sessionStorage.clicks || 0)"))


def test_a_member_says_that_a_plan_is_not_searchable(desk: Visit, ana: Person, failed: UploadJob) -> None:
    page = desk.page
    find(page, ana.user.email)
    row = page.get_by_role("row", name="Dental plan 2026.pdf").first
    expect(row).to_contain_text("VENDOR_UNAVAILABLE")

    row.get_by_role("link", name="Dental plan 2026.pdf").click()

    expect(page.locator("main")).to_contain_text("The vendor has a fault of its own.")
    expect(page.locator("main")).to_contain_text("To do:")
    expect(page.get_by_role("button", name="Retry", exact=True)).to_be_visible()
    assert clicks(page) <= MOST_CLICKS
    assert (desk.wrong, desk.foreign) == ([], set())


def test_why_did_this_cost_three_dollars(desk: Visit, ana: Person, failed: UploadJob) -> None:
    page = desk.page
    find(page, ana.user.email)
    spent = page.get_by_role("region", name="Spent")
    expect(spent).to_contain_text("$3.00")

    spent.get_by_role("link", name="job", exact=True).click()

    calls = page.get_by_role("region", name="Calls to vendors")
    expect(calls).to_contain_text("llamaparse")
    expect(calls).to_contain_text("120 pages")
    expect(calls).to_contain_text("$3.00")
    assert clicks(page) <= MOST_CLICKS


def test_the_parser_was_down_last_night(desk: Visit, ana: Person, failed: UploadJob) -> None:
    page = desk.page
    find(page, ana.user.email)
    page.get_by_role("link", name="Dental plan 2026.pdf").first.click()

    page.locator("main").get_by_role("link", name="Status of vendors").click()

    service = page.locator("#llamaparse")
    expect(service).to_contain_text("up")
    expect(service).to_contain_text("away from")
    expect(service).to_contain_text("40 of 40 calls failed")
    assert clicks(page) <= MOST_CLICKS


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_consoles_pages_fit_and_are_accessible(
    visit: Callable[..., Visit],  # noqa: F811
    sam: Person,
    failed: UploadJob,
    scheme: str,
) -> None:
    User.objects.filter(pk=sam.id).update(is_staff=True)
    sam.user.groups.set([sync_group("support")])
    desk = visit(color_scheme=scheme)
    desk.is_signed_in(sam.user)
    pages = {
        "dashboard": "/admin/", "job": f"/admin/jobs/{failed.pk}/", "dead-letters": "/admin/dead-letters/",
        "tenant": f"/admin/tenants/{failed.user_id}/", "jobs": "/admin/jobs/uploadjob/", "status": "/admin/status/",
        "purchases": "/admin/vendors/purchase/", "documents": "/admin/documents/document/",
        "events": "/admin/jobs/event/", "find": f"/admin/find/?q={uuid4()}",
    }  # fmt: skip
    if scheme == "light":  # it has no other
        pages["api"] = "/docs"
    wrong: dict[str, Any] = {}
    for name, path in pages.items():
        desk.page.goto(path)
        desk.page.wait_for_function(CHARTS_DRAWN)
        expect(desk.page.locator("main")).to_have_count(1)
        desk.screenshot(f"console-{name}-{scheme}")
        found = desk.accessibility_violations()
        if desk.page.evaluate(WIDTH) > 1280 or desk.page.evaluate(CUT_OFF):
            found.append("wider than 1280")
        desk.page.set_viewport_size({"width": 390, "height": PHONE["height"]})
        if desk.page.evaluate(WIDTH) > 390:
            found.append("wider than 390")
        desk.screenshot(f"console-{name}-{scheme}-phone")
        desk.page.set_viewport_size({"width": 1280, "height": 900})
        if found:
            wrong[name] = found

    assert not wrong, wrong
    assert (desk.wrong, desk.foreign) == ([], set())
