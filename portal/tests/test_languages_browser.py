"""Pages in Spanish in a browser: the switch, the script's sentences, what longer words do to a phone's page."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from documents import tags
from testing.browser import Visit
from testing.pdfs import text_pdf
from testing.personas import Person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
PLAN = "Un especialista cuesta 40 dólares por visita. Las vacunas no cuestan nada."
PAGES = ("/settings/account", "/settings/tokens", "/settings/webhooks", "/settings/integrations", "/library/tags")


@pytest.fixture
def home(ana: Person, visit: Callable[..., Visit], live_server: Any, settings: Any) -> Visit:
    settings.PUBLIC_URL = live_server.url
    settings.EMBEDDER = "testing.embedders.InstantEmbedder"
    settings.SUPPORT_EMAIL = "ayuda@example.org"
    ana.ingest(text_pdf(PLAN), filename="plan.pdf")
    ana.ingest(b"%PDF-1.4 nothing", filename="carta.pdf")
    tags.create_tag(user_id=ana.id, name="2026")
    ana_visits = visit(locale="en-US")
    ana_visits.is_signed_in(ana.user)
    ana_visits.page.goto("/")
    return ana_visits


def looks_right(visit: Visit, name: str) -> None:
    assert visit.accessibility_violations() == [], name
    visit.screenshot(f"spanish-{name}")
    visit.phone_screenshot(f"spanish-{name}-phone")
    visit.page.emulate_media(color_scheme="dark")
    visit.screenshot(f"spanish-{name}-dark")
    visit.phone_screenshot(f"spanish-{name}-phone-dark")
    assert visit.accessibility_violations() == [], name
    visit.page.emulate_media(color_scheme="light")


def test_a_member_reads_uploads_and_asks_in_spanish(home: Visit) -> None:
    page = home.page
    page.get_by_role("button", name="Español").click()
    expect(page.get_by_role("heading", name="Sus documentos")).to_be_visible()
    expect(page.locator("html")).to_have_attribute("lang", "es")
    page.wait_for_load_state()  # the script that uploads a chosen file is there
    page.set_input_files("#files", {"name": "otra vez.pdf", "mimeType": "application/pdf", "buffer": text_pdf(PLAN)})
    expect(page.locator("#uploads")).to_contain_text("Ya está aquí: plan.pdf")
    page.locator(".pick").first.check()
    expect(page.locator("#picked")).to_have_text("1 elegido")
    looks_right(home, "1-documents")

    page.get_by_role("link", name="plan.pdf").first.click()
    expect(page.get_by_role("heading", name="Texto de la página 1")).to_be_visible()
    looks_right(home, "2-document")

    page.get_by_role("link", name="Buscar", exact=True).click()
    page.get_by_label("Su pregunta o algunas palabras").fill("¿Cuánto cuesta un especialista?")
    page.locator("#ask").get_by_role("button", name="Buscar").click()
    expect(page.get_by_role("heading", name="Se encontró 1 fragmento")).to_be_focused()
    looks_right(home, "3-found")

    for number, path in enumerate(PAGES, 4):
        page.goto(path)
        looks_right(home, f"{number}-{path.rpartition('/')[2]}")
    page.get_by_role("button", name="English").click()
    expect(page.get_by_role("heading", name="Tags", exact=True)).to_be_visible()
    assert (home.wrong, home.foreign) == ([], set())


def test_pages_without_an_account_take_the_browsers_language(visit: Callable[..., Visit], settings: Any) -> None:
    seen = visit(locale="es-MX")
    seen.page.goto("/")

    expect(seen.page.get_by_role("heading", name="Iniciar sesión")).to_be_visible()
    looks_right(seen, "0-sign-in")

    settings.FIRST_ACCOUNT_CODE = "K7QF-9MZP"
    seen.page.goto("/")
    expect(seen.page.get_by_role("heading", name="Crear la primera cuenta")).to_be_visible()
    looks_right(seen, "0-first-account")
