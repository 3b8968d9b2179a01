"""The document library in a browser: choices that outlive polls, bulk actions, table and grid."""

import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from documents.models import Document
from testing.browser import Visit
from testing.pdfs import text_pdf
from testing.personas import Person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
NAMES = [f"Evergreen Gold PPO {2010 + number} summary of benefits and coverage.pdf" for number in range(13)]


@pytest.fixture
def home(ana: Person, visit: Callable[..., Visit], live_server: Any, settings: Any) -> Visit:
    settings.PUBLIC_URL = live_server.url
    settings.EMBEDDER = "testing.embedders.InstantEmbedder"
    for name in NAMES:
        ana.ingest(text_pdf(f"Care by {name}."), filename=name)
    ana_visits = visit()
    ana_visits.is_signed_in(ana.user)
    ana_visits.page.set_viewport_size({"width": 1280, "height": 800})
    ana_visits.page.goto("/")
    return ana_visits


def test_documents_are_chosen_tagged_filtered_downloaded_and_deleted(home: Visit) -> None:
    page, rows = home.page, home.page.locator("#documents .row")
    twelfth = rows.nth(11).bounding_box()
    assert twelfth is not None
    assert twelfth["y"] + twelfth["height"] <= 800
    expect(page.locator("[data-thumbnail]").first).to_have_js_property("complete", True)
    expect(page.locator("#bulk")).to_be_hidden()

    page.set_input_files(
        "#files", {"name": "again.pdf", "mimeType": "application/pdf", "buffer": text_pdf(f"Care by {NAMES[5]}.")}
    )
    expect(page.locator("#uploads")).to_contain_text(f"Already here: {NAMES[5]}")
    page.get_by_role("button", name="Dismiss: again.pdf").click()

    for number in (0, 2):
        rows.nth(number).locator(".pick").check()
    page.evaluate("htmx.trigger('#documents', 'refresh')")
    expect(page.locator("#picked")).to_have_text("2 chosen")
    expect(page.locator(".pick:checked")).to_have_count(2)
    assert home.accessibility_violations() == []
    home.screenshot("library-1-chosen")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert len(zipfile.ZipFile(download.value.path()).namelist()) == 2

    page.locator("#bulk [name=new_tag]").fill("<b>Dad's")
    page.get_by_role("button", name="Add tag").click()
    expect(page.get_by_role("status").first).to_have_text("2 documents tagged.")
    page.locator("#filters [name=tag]").select_option("<b>Dad's")
    expect(rows).to_have_count(2)
    page.get_by_role("link", name="Grid").click()
    expect(page.locator(".docs.grid .row")).to_have_count(2)
    assert home.accessibility_violations() == []
    home.phone_screenshot("library-2-grid-phone")
    page.locator(".pick").first.check()
    page.locator("#pick-all").check()
    page.locator("#bulk").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Delete 2 documents?")
    page.get_by_role("button", name="Delete").click()

    expect(page.get_by_role("status").first).to_have_text("2 documents deleted.")
    assert Document.objects.count() == len(NAMES) - 2
    assert (home.wrong, home.foreign) == ([], set())
