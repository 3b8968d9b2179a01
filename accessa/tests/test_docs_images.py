"""Pictures of the documentation: `make images` draws them from the pages as they are now."""

from collections.abc import Callable
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from PIL import Image
from playwright.sync_api import expect

from accounts.audit.roles import sync_group
from accounts.models import User
from documents import tags
from documents.models import Document, Tag
from metrics.tests.event_histories import History, collect_again, database_time
from testing.browser import SCREENSHOTS, Visit, browser, visit  # noqa: F401 - fixtures
from testing.personas import Person

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not SCREENSHOTS, reason="make images keeps what this draws"),
]
SAMPLES = Path(django_settings.BASE_DIR) / "samples"
CHARTS_DRAWN = "[...document.querySelectorAll('canvas.chart')].every(each => Chart.getChart(each))"


def keep_picture(seen: Visit, name: str) -> None:
    """Keep what the window shows, in few colours: a tenth of the bytes."""
    with Image.open(BytesIO(seen.page.screenshot())) as picture:
        picture.convert("RGB").quantize(64).save(Path(SCREENSHOTS) / f"{name}.png", optimize=True)


@pytest.fixture
def member(ana: Person, visit: Callable[..., Visit], live_server: Any, settings: Any) -> Visit:  # noqa: F811
    """Ana has uploaded the samples and tagged one."""
    settings.PUBLIC_URL, settings.EMBEDDER = live_server.url, "local"
    for path in sorted(SAMPLES.glob("*.pdf")):
        ana.ingest(path.read_bytes(), filename=path.name)
    tag, _ = tags.create_tag(user_id=ana.id, name="2026", color=Tag.Color.TEAL)
    tags.add_tags(Document.objects.get(filename="amendment.pdf"), [tag.pk])
    home = visit()
    home.is_signed_in(ana.user)
    home.page.goto("/")
    return home


def test_the_members_pages(member: Visit) -> None:
    page = member.page
    expect(page.locator("#documents [data-label]").filter(has_text="Searchable")).to_have_count(3)
    page.wait_for_load_state("networkidle")
    keep_picture(member, "library")

    page.get_by_role("link", name="Search").click()
    page.keyboard.type("How many therapy visits are covered?")
    page.keyboard.press("Enter")
    expect(page.locator("#results-title")).to_be_focused()
    expect(page.locator(".answer").first).to_contain_text("40 visits")
    keep_picture(member, "search")

    page.locator(".answer").first.get_by_role("link").first.click()
    expect(page.locator("mark#cited")).to_be_visible()
    page.locator("[data-page-image]").evaluate("picture => picture.decode()")
    keep_picture(member, "citation")


def test_the_console(visit: Callable[..., Visit], sam: Person) -> None:  # noqa: F811
    now = database_time()
    for number in range(96):  # a day, with a vendor that was away in the morning
        job = History(now - timedelta(minutes=15 * number + 5)).add(1 + number % 3, "CLAIMED", "parsing")
        if 30 <= number < 44:
            job.add(9, "RETRY_SCHEDULED", "parsing", code="VENDOR_UNAVAILABLE")
        if number % 17 == 5:
            job.add(60, "DLQ_MOVED", "parsing", code="PDF_ENCRYPTED")
        else:
            job.add(20 + number % 7, "PARSE_STORED", "parsing").add(24 + number % 9, "FINALIZED", "embedded")
    collect_again()
    User.objects.filter(pk=sam.id).update(is_staff=True)
    sam.user.groups.set([sync_group("support")])
    desk = visit()
    desk.is_signed_in(sam.user)

    desk.page.goto("/admin/")
    desk.page.wait_for_function(CHARTS_DRAWN)

    keep_picture(desk, "console")
