"""Staff pages in a browser: dashboard charts, dead letters, and the retry of a group."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect

from accounts.audit.models import AuditEntry
from accounts.models import User
from jobs.models import UploadJob
from jobs.outcomes import Permanent
from metrics.models import MetricRollup
from metrics.tests.event_histories import History, collect_again, database_time
from statutes.models import Law, LawVersion
from testing.browser import Visit, browser, visit  # noqa: F401 - fixtures
from testing.error_codes import error_code
from testing.factories import JobFactory
from testing.pdfs import text_pdf
from testing.personas import Person, claim_at_stage
from testing.worker_thread import running_worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

PASSWORD = "a long enough password"
SECRET = "Mrs. Miller's knee"
REASON = "The vendor is back, ticket 4711"


@pytest.fixture
def failed(ana: Person, ben: Person, settings: Any) -> list[UploadJob]:
    """Documents of two tenants whose vendor was away."""
    settings.JOBS_PIPELINES = "accessa.pipelines.PIPELINES"
    settings.EMBEDDER = "testing.embedders.InstantEmbedder"
    uploaded = [person.upload(text_pdf(f"About {SECRET}."), filename="plan.pdf") for person in (ana, ben)]
    for _ in uploaded:
        failure = Permanent(error_code("VENDOR_UNAVAILABLE"), "The vendor has a fault of its own.")
        claim_at_stage("embedding").settle(failure)
    return [one.job for one in uploaded]


@pytest.fixture
def desk(visit: Callable[..., Visit], sam: Person, settings: Any) -> Visit:  # noqa: F811
    """Sam has signed in to the admin."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    sam.user.set_password(PASSWORD)
    sam.user.save()
    sams = visit()
    sams.sign_in(sam.user.email, PASSWORD, at="/admin/login/?next=/admin/")
    return sams


# What sticks out of its cell, by the text's own place.
STICKING_OUT = """() => [...document.querySelectorAll('#content .readonly')].filter(shown => {
    const text = document.createRange(), cell = shown.closest('.field-line, .form-row > div');
    text.selectNodeContents(shown);
    return text.getBoundingClientRect().right > cell.getBoundingClientRect().right;
}).map(shown => shown.textContent)"""


# Cells of a list that end beyond the window.
CUT_OFF = """() => [...document.querySelectorAll('#result_list :is(th, td)')]
    .filter(cell => cell.getBoundingClientRect().right > innerWidth).map(cell => cell.textContent.trim())"""


def test_admin_pages_of_statutes_have_no_overlap(desk: Visit) -> None:
    law_id, document_id = f"LEY_{'LARGA_' * 20}2024", uuid4()
    Law.objects.create(law_id=law_id, version="1" * 64, status="failed", title="Ley " * 60)
    LawVersion.objects.create(
        document_id=document_id, law_id=law_id, version="1" * 64, bucket="b" * 63, raw_key=f"raw/{'k' * 200}.pdf",
        raw_sha256="a" * 64, manifest_sha256="b" * 64, uploader_id="u" * 200, job_id=uuid4(), status="failed",
        error_code="PARSER_OUT_OF_MEMORY",
    )  # fmt: skip

    for name, at in (("version", f"lawversion/{document_id}"), ("law", f"law/{law_id}")):
        desk.page.goto(f"/admin/statutes/{at}/change/")
        desk.screenshot(f"support-law-{name}")
        assert desk.page.locator("#content .readonly").count() > 9
        assert desk.page.evaluate(STICKING_OUT) == []


def test_support_finds_and_retries_a_group_of_dead_letters(desk: Visit, failed: list[UploadJob], sam: Person) -> None:
    page = desk.page
    desk.screenshot("support-1-dashboard")

    page.goto("/admin/dead-letters/")
    group = page.locator(".console-group", has_text="VENDOR_UNAVAILABLE")
    expect(group).to_contain_text("embedding")
    expect(group.locator(".console-count")).to_have_text("2")
    desk.screenshot("support-2-dead-letters")
    group.locator(f"a[href='/admin/jobs/{failed[0].pk}/']").click()
    expect(page.locator("#content, main").first).to_contain_text("The vendor has a fault of its own.")
    expect(page.locator("#invariants table, #invariants li, #invariants dl").first).to_be_visible()
    assert SECRET not in page.content()
    desk.screenshot("support-3-why")

    page.go_back()
    group.get_by_role("link", name="Retry the group").click()
    page.get_by_label("Why").fill(REASON)
    desk.screenshot("support-4-retry")
    page.get_by_role("button", name="Retry 2").click()
    expect(page.locator("body")).to_contain_text("2")
    expect(page.locator(".console-group")).to_have_count(0)
    desk.screenshot("support-5-retried")
    with running_worker():
        page.goto(f"/admin/jobs/{failed[0].pk}/")
        while page.locator("dl .console-good", has_text="done").count() == 0:  # without a reload
            page.wait_for_timeout(200)
            look_again(page)
    desk.screenshot("support-6-done")
    # Only superusers see the audit log.
    User.objects.filter(pk=sam.id).update(is_superuser=True, email="samantha.of.support@example.org")
    for name in ("jobs/uploadjob", "jobs/event", "documents/document", "audit/auditentry"):
        page.goto(f"/admin/{name}/")
        assert page.locator("#result_list td").count() > 3
        assert page.evaluate(CUT_OFF) == [], name

    assert {job.state for job in UploadJob.objects.all()} == {"done"}
    assert set(AuditEntry.objects.filter(action="jobs.retry").values_list("reason", flat=True)) == {REASON}
    assert (desk.wrong, desk.foreign) == ([], set())


def look_again(page: Page) -> None:
    """Come back to a tab: it is refreshed at once."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_a_list_refreshes_itself_while_it_is_seen(desk: Visit) -> None:
    page, rows = desk.page, [JobFactory.create() for _ in range(12)]
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url) if "x-live-refresh" in request.headers else None)
    page.clock.install()
    page.set_viewport_size({"width": 1280, "height": 420})
    page.goto("/admin/jobs/uploadjob/")
    chosen = page.locator(f".action-select[value='{rows[0].pk}']")  # the oldest: the last of the list
    chosen.check()
    place = chosen.bounding_box()
    page.evaluate("window.isSameDocument = true")

    page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    page.clock.fast_forward(60_000)
    assert fetched == []
    JobFactory.create()
    UploadJob.objects.filter(pk=rows[0].pk).update(cost_cents=123)
    page.evaluate("delete document.hidden")
    look_again(page)

    expect(page.locator("#result_list tbody")).to_have_count(13)
    row = page.locator("#result_list tbody", has=chosen)
    expect(row).to_contain_text("$1.23")
    expect(chosen).to_be_checked()
    expect(page.locator(".action-counter")).to_have_text("1 of 13 selected")
    assert chosen.bounding_box() == place
    assert desk.accessibility_violations() == []

    UploadJob.objects.filter(pk=rows[0].pk).update(cost_cents=456)
    page.clock.fast_forward(60_000)
    expect(row).to_contain_text("$4.56")
    page.locator("#action-toggle").check()
    expect(page.locator(".action-counter")).to_have_text("13 of 13 selected")
    page.get_by_role("button", name="Live").click()
    expect(page.locator("#live")).to_have_text("Live paused")
    count = len(fetched)
    page.clock.fast_forward(60_000)
    look_again(page)
    assert page.evaluate("window.isSameDocument")
    assert len(fetched) == count == 2
    assert (desk.wrong, desk.foreign) == ([], set())


def test_charts_are_drawn_under_the_admins_policy(desk: Visit) -> None:
    job = (
        History(database_time() - timedelta(minutes=20)).add(1, "CLAIMED", "parsing").add(4, "PARSE_STORED", "parsing")
    )
    job.add(3, "RETRY_SCHEDULED", "parsing", code="X").add(9, "FINALIZED", "embedded")
    collect_again()

    desk.page.goto("/admin/?period=1h")
    charts = "[...document.querySelectorAll('canvas.chart')]"
    desk.page.wait_for_function(f"{charts}.every(each => Chart.getChart(each))")
    drawn = desk.page.evaluate(f"{charts}.map(each => Chart.getChart(each).data.datasets.length)")

    assert len(drawn) > 2
    assert all(drawn)
    desk.screenshot("support-1-charts")

    table = desk.page.locator("#throughput details")
    table.locator("summary").click()
    desk.page.evaluate("window.isSameDocument = true")
    MetricRollup.objects.filter(metric="ended").update(count=2)
    look_again(desk.page)

    total = "Chart.getChart(document.querySelector('#throughput canvas')).data.datasets[0].data.reduce((a, b) => a + b)"
    desk.page.wait_for_function(f"{total} === 2")
    expect(table).to_have_attribute("open", "")
    assert desk.page.evaluate("window.isSameDocument")
    assert desk.wrong == []
