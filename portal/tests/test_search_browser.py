"""Search page in a browser: a model's sentences as they come, the question's address, Back, and follow-ups."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from search.models import SavedQuestion
from search.tests.test_answers import BOOKLET
from testing.browser import DESK, Visit
from testing.factories.searchable_documents import create_searchable_markdown
from testing.fakes.openai import OpenAIServer
from testing.personas import Person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
ADDRESS = re.compile(r"/find/[0-9a-f-]{36}$")


@pytest.fixture
def openai(settings: Any) -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        settings.ANSWERER, settings.OPENAI_API_KEY, settings.OPENAI_BASE_URL = "openai", server.key, server.url
        yield server


@pytest.fixture
def home(ana: Person, visit: Callable[..., Visit]) -> Visit:
    create_searchable_markdown(ana.id, BOOKLET, filename="booklet.pdf")
    home = visit()
    home.is_signed_in(ana.user)
    home.page.goto("/find")
    return home


def test_a_model_answers_the_page_and_its_answer_is_kept_for_going_back(home: Visit, openai: OpenAIServer) -> None:
    page = home.page
    page.locator("#query").fill("How many therapy visits are covered?")
    page.keyboard.press("Enter")

    answer = page.locator("#model-answer")
    expect(answer).to_contain_text("Written by a model")
    expect(answer.locator("li", has_text="40 visits")).to_be_visible()
    expect(page).to_have_url(ADDRESS)
    assert home.accessibility_violations() == []
    home.screenshot("answer-model")
    home.phone_screenshot("answer-model-phone")
    page.emulate_media(color_scheme="dark")
    assert home.accessibility_violations() == []
    home.screenshot("answer-model-dark")
    home.phone_screenshot("answer-model-phone-dark")

    answer.get_by_role("link").first.click()
    expect(page).to_have_url(re.compile("span="))
    page.go_back()
    expect(page.locator("#model-answer li", has_text="40 visits")).to_be_visible()
    assert openai.requests == 1

    openai.responses.mode = "half"
    page.locator("#follow-up").fill("and out of network?")
    page.keyboard.press("Enter")
    expect(page.locator("#model-answer")).to_contain_text("The model could not answer")
    expect(page.locator("#results")).to_contain_text("Asked after")
    assert (home.wrong, home.foreign) == ([], set())


# A row of many columns, to be read downwards on a phone.
FEES = """\
# Ambulance

| Service | In network, you pay | Out of network, you pay | Limits | Prior authorization |
|---|---|---|---|---|
| Ambulance by air | $250 copay | $250 copay | 2 flights a plan year | Required unless an emergency |
"""
# Left, right and top of each head and cell of the first answer's table.
EDGES = """table => [...table.querySelectorAll('th, td')].map(cell => cell.getBoundingClientRect())
    .map(box => [Math.round(box.left), Math.round(box.right), Math.round(box.top)])"""


def test_a_question_is_found_again_by_its_address_alone(home: Visit, ana: Person) -> None:
    create_searchable_markdown(ana.id, FEES, filename="fees.pdf")
    page = home.page
    for question in ("What do I pay for therapy?", "What do I pay for an ambulance by air?"):
        page.locator("#query").fill(question)
        page.keyboard.press("Enter")
        expect(page.locator("#results-title")).to_be_focused()
        page.wait_for_url(ADDRESS)
    first, second = SavedQuestion.objects.order_by("created_at")
    expect(page).to_have_url(re.compile(str(second.pk)))
    home.phone_screenshot("answer-phone")
    page.set_viewport_size({"width": 390, "height": 844})
    edges = page.locator(".said table").first.evaluate(EDGES)
    heads, cells = edges[:5], edges[5:]
    assert len(cells) == 5
    assert [top for *_, top in heads] == sorted({top for *_, top in heads}) == [top for *_, top in cells]
    assert max(right for _, right, _ in heads) <= min(left for left, *_ in cells) + 1  # a border is shared
    assert max(right for _, right, _ in cells) <= 390
    page.set_viewport_size(DESK)

    page.go_back()
    expect(page).to_have_url(re.compile(str(first.pk)))
    expect(page.locator("#query")).to_have_value("What do I pay for therapy?")
    expect(page.locator(".answer")).to_contain_text("$30 copay")
    page.reload()
    expect(page.locator(".answer")).to_contain_text("$30 copay")

    loads: list[str] = []
    page.on("request", lambda request: loads.append(request.url) if request.is_navigation_request() else None)
    page.locator(".skip").press("Enter")
    expect(page).to_have_url(re.compile("#main$"))
    page.wait_for_function("fetch('/find')")
    assert loads == []  # a link within the page does not load it again

    page.get_by_role("button", name="Forget it").click()
    expect(page.get_by_role("status").first).to_have_text("The question is forgotten.")
    assert [row.pk for row in SavedQuestion.objects.all()] == [second.pk]
    assert home.wrong == []
