"""Tenants' pages in a browser: sign-in, upload, search, citation, deletion; and hostile contents."""

import base64
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Dialog, Page, expect

from accounts.models import UserSession
from documents.models import Document
from documents.tests.s3_settings import use_s3_storage
from jobs.outcomes import Permanent
from portal.tests.conftest import PASSWORD, with_password
from testing.browser import Visit
from testing.error_codes import error_code
from testing.fakes.s3 import S3Server
from testing.pdfs import encrypted_pdf, text_pdf
from testing.personas import Person, claim_at_stage, plan_pdf
from testing.worker_thread import running_worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

PLAN = plan_pdf("hospital care", "drugs", "dental care", lines=20)
LETTER = text_pdf("Prior authorization is needed for every magnetic resonance imaging scan of the knee.")
HOSTILE = "<img src=x onerror=alert(1)>\u202efdp.pdf"
DROP = """async (files) => {
    const carried = new DataTransfer();
    for (const [name, base64] of files) {
        const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
        carried.items.add(new File([bytes], name, {type: "application/pdf"}));
    }
    document.getElementById("upload").dispatchEvent(
        new DragEvent("drop", {dataTransfer: carried, bubbles: true, cancelable: true}));
}"""


@pytest.fixture(autouse=True)
def _here(live_server: Any, settings: Any) -> None:
    settings.PUBLIC_URL = live_server.url
    settings.EMBEDDER = "testing.embedders.InstantEmbedder"


@pytest.fixture
def home(ana: Person, visit: Callable[..., Visit]) -> Visit:
    """Ana is signed in, and at her documents."""
    ana_visits = visit()
    ana_visits.is_signed_in(ana.user)
    ana_visits.page.goto("/")
    return ana_visits


def drop(page: Page, **files: bytes) -> None:
    page.evaluate(DROP, [[name, base64.b64encode(content).decode()] for name, content in files.items()])


def standing(page: Page, name: str) -> Any:
    return page.locator("#documents .row", has_text=name).locator("[data-label]")


def test_a_tenant_drops_plans_watches_asks_opens_the_citation_and_deletes(
    ana: Person, visit: Callable[..., Visit], settings: Any
) -> None:
    settings.EMBEDDER = "local"
    home = visit()
    page = home.page
    page.goto("/")
    assert home.accessibility_violations() == []
    home.sign_in(with_password(ana).user.email, PASSWORD, at=page.url)
    assert home.accessibility_violations() == []
    home.screenshot("tenant-1-empty")

    drop(
        page,
        **{
            "plan.pdf": PLAN,
            "letter.pdf": LETTER,
            "locked.pdf": encrypted_pdf("x", user_password=b"x"),
            "n.pdf": b"no",
        },
    )
    expect(page.locator("#uploads")).to_contain_text("The file is not a PDF")
    expect(standing(page, "plan.pdf")).to_be_visible()
    assert home.accessibility_violations() == []
    home.screenshot("tenant-2-uploaded")
    page.get_by_role("link", name="Delete plan.pdf").focus()
    with running_worker():
        expect(standing(page, "plan.pdf")).to_have_text("Searchable")
        expect(standing(page, "letter.pdf")).to_have_text("Searchable")
        expect(standing(page, "locked.pdf")).to_have_text("Failed")
    expect(page.locator("#documents")).to_contain_text("needs a password")
    expect(page.locator("#news")).to_have_text(re.compile("pdf: (Searchable|Failed)"))  # for who does not see it
    expect(page.get_by_role("link", name="Delete plan.pdf")).to_be_focused()  # though the list is another by now
    expect(page.locator("#documents")).to_have_attribute("hx-trigger", "refresh")  # nothing is asked any more
    assert home.accessibility_violations() == []
    home.phone_screenshot("tenant-3-done-phone")
    page.emulate_media(color_scheme="dark")
    assert home.accessibility_violations() == []
    home.screenshot("tenant-3-done-dark")
    page.emulate_media(color_scheme="light")

    page.get_by_role("link", name="Search").click()
    page.keyboard.type("which scans need approval?")  # the field has the focus
    page.keyboard.press("Enter")
    expect(page.locator("#results-title")).to_be_focused()
    first = page.locator(".found li").first
    expect(first).to_contain_text("letter.pdf, page 1")
    assert home.accessibility_violations() == []
    home.phone_screenshot("tenant-4-found-phone")

    first.get_by_role("link").click()
    expect(page.locator("mark#cited")).to_be_in_viewport()
    expect(page.locator(".marks rect").first).to_be_visible()
    assert (
        page.locator("[data-page-image]").evaluate("picture => picture.decode().then(() => picture.naturalWidth)") > 300
    )
    assert home.accessibility_violations() == []
    home.screenshot("tenant-5-citation")
    home.phone_screenshot("tenant-5-citation-phone")
    page.go_back()
    expect(page.locator(".found li").first).to_contain_text("letter.pdf")  # the question is asked again

    page.get_by_role("link", name="Documents").click()
    page.get_by_role("link", name="Delete letter.pdf").click()
    expect(page.get_by_role("dialog")).to_contain_text("letter.pdf")
    assert home.accessibility_violations() == []
    home.screenshot("tenant-6-delete")
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="Delete letter.pdf")).to_be_focused()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("status").first).to_have_text("The document was deleted.")
    assert not Document.objects.filter(filename="letter.pdf").exists()
    assert (home.wrong, home.foreign) == ([], set())


@pytest.fixture
def s3(home: Visit, settings: Any) -> Iterator[S3Server]:
    with S3Server() as server:
        use_s3_storage(settings, server)
        yield server


def test_bytes_go_straight_to_an_s3_by_its_presigned_url(s3: S3Server, home: Visit) -> None:
    home.page.goto("/")  # whose policy is made for where the store is

    home.page.set_input_files("#files", {"name": "plan.pdf", "mimeType": "application/pdf", "buffer": LETTER})
    with running_worker():
        expect(standing(home.page, "plan.pdf")).to_have_text("Searchable")

    assert home.wrong == []
    assert [address for address in home.foreign if not address.startswith(s3.url)] == []
    assert home.foreign


def test_hostile_names_and_texts_do_not_run_and_break_no_page(home: Visit, ana: Person) -> None:
    page = home.page
    alerts: list[str] = []

    def refused(dialog: Dialog) -> None:
        alerts.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", refused)
    text = "<script>alert(1)</script> [press](javascript:alert(2)) <img src=x onerror=alert(3)> coverage of knees"
    uploaded = ana.ingest(text_pdf(text), filename=HOSTILE)
    ana.upload(LETTER, filename="w" * 116 + ".pdf")

    page.goto("/")
    drop(page, **{HOSTILE: b"no PDF"})
    expect(page.locator("#uploads")).to_contain_text("The file is not a PDF")
    page.locator("[data-delete]").last.click()
    expect(page.get_by_role("dialog")).to_contain_text("onerror")
    page.keyboard.press("Escape")
    home.phone_screenshot("hostile-list-phone")
    page.goto(f"/d/{uploaded.document_id}")
    expect(page.locator(".read")).to_contain_text("alert(1)")
    home.phone_screenshot("hostile-document-phone")
    page.goto("/find")
    page.get_by_text("Options").click()
    page.locator("#mode").select_option("text")
    page.locator("#query").fill("coverage")
    page.keyboard.press("Enter")
    expect(page.locator(".found")).to_contain_text("onerror")
    home.phone_screenshot("hostile-found-phone")

    assert (alerts, home.wrong, home.foreign) == ([], [], set())


def test_without_a_script_everything_but_uploading_works(ana: Person, visit: Callable[..., Visit]) -> None:
    ana.ingest(LETTER, filename="letter.pdf")
    plain = visit(java_script_enabled=False)
    plain.sign_in(with_password(ana).user.email, PASSWORD)
    page = plain.page
    assert "needs JavaScript" in page.content()

    page.get_by_role("link", name="Search").click()
    page.locator("#query").fill("knee")
    page.get_by_role("button", name="Search").click()
    page.locator(".found a").first.click()
    assert page.locator("mark#cited").count() == 1
    page.get_by_role("link", name="Delete").click()
    page.get_by_role("button", name="Delete").click()

    assert "The document was deleted." in page.content()
    assert not Document.objects.exists()


def test_a_browser_that_cannot_check_files_says_why(
    ana: Person, visit: Callable[..., Visit], live_server: Any, settings: Any
) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    plain = visit(live_server.url.replace("localhost", "insecure.example.org"))
    plain.is_signed_in(ana.user)

    plain.page.goto("/")
    plain.page.set_input_files("#files", {"name": "plan.pdf", "mimeType": "application/pdf", "buffer": LETTER})

    expect(plain.page.locator("#uploads")).to_contain_text("not loaded over HTTPS")


def test_a_broken_upload_connection_can_be_retried(home: Visit, settings: Any) -> None:
    settings.PUBLIC_URL = "https://another-name-of-ours.example.org"
    home.page.goto("/")
    page = home.page
    page.route("**/storage/**", lambda route: route.abort())

    page.set_input_files("#files", {"name": "plan.pdf", "mimeType": "application/pdf", "buffer": LETTER})
    expect(page.locator("#uploads")).to_contain_text("The connection broke off.")
    page.unroute("**/storage/**")
    page.get_by_role("button", name="Try again: plan.pdf").click()

    expect(standing(page, "plan.pdf")).to_be_visible()
    expect(page.locator("#uploads .row")).to_have_count(0)


def test_a_file_chosen_before_the_script_begins_is_uploaded(home: Visit) -> None:
    page = home.page
    page.route("**/portal.js*", lambda route: route.abort())
    page.goto("/")
    script = page.locator("script[src*='portal.js']").get_attribute("src")
    page.unroute("**/portal.js*")

    page.set_input_files("#files", {"name": "plan.pdf", "mimeType": "application/pdf", "buffer": LETTER})
    page.add_script_tag(url=script)

    expect(standing(page, "plan.pdf")).to_be_visible()


def test_a_failed_document_is_tried_again_by_its_button(home: Visit, ana: Person) -> None:
    page = home.page
    ana.upload(LETTER, filename="letter.pdf")
    claim_at_stage("queued").settle(Permanent(error_code("PARSE_FAILED"), "x"))

    page.goto("/")
    page.get_by_role("button", name="Try again letter.pdf").click()

    expect(standing(page, "letter.pdf")).to_have_text("In line")
    expect(page.get_by_role("link", name="letter.pdf", exact=True)).to_be_focused()
    assert home.wrong == []


def test_an_unavailable_service_is_reported_and_retried(home: Visit, ana: Person) -> None:
    page = home.page
    ana.upload(LETTER, filename="letter.pdf")
    page.goto("/")

    page.route("**/list*", lambda route: route.fulfill(status=503))
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    page.unroute("**/list*")

    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_limit_shows_when_to_come_back(home: Visit, settings: Any) -> None:
    settings.UPLOADS_PER_DAY = 0

    home.page.set_input_files("#files", {"name": "plan.pdf", "mimeType": "application/pdf", "buffer": LETTER})

    expect(home.page.locator("#uploads")).to_contain_text("Come back in 24 hours.")


def test_an_expired_session_redirects_to_sign_in(home: Visit) -> None:
    UserSession.objects.all().delete()

    home.page.evaluate("htmx.trigger('#documents', 'refresh')")

    home.page.wait_for_url("**/sign-in?next=%2F")
    expect(home.page.get_by_role("status").first).to_have_text(
        "Your session has expired. Sign in to go on where you were."
    )
    assert home.accessibility_violations() == []
