"""Headless Chromium for tests; collects console errors and requests to other origins."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from django.test import Client
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, ViewportSize, expect, sync_playwright

from accounts.models import User

NAMES = ("chromium", "chromium-browser", "google-chrome")
SCREENSHOTS = os.environ.get("SCREENSHOTS", "")  # the folder that keeps what is seen, for people; none without it
PHONE = ViewportSize(width=360, height=740)
DESK = ViewportSize(width=1280, height=900)
# A name that leads here and is not trusted as localhost is.
INSECURE = "--host-resolver-rules=MAP insecure.example.org 127.0.0.1"
PATIENCE = 40_000  # milliseconds for anything to appear: what is slow here is the machine


class Visit:
    """One person's browser. ``wrong`` collects what the console complains of: scripts' errors, refusals of a policy."""

    def __init__(self, browser: Browser, origin: str, **options: Any) -> None:
        self.origin = origin
        self.context = browser.new_context(base_url=origin, viewport=DESK, reduced_motion="reduce", **options)
        self.context.set_default_timeout(PATIENCE)
        self.wrong: list[str] = []
        self.foreign: set[str] = set()
        self.page: Page = self.context.new_page()
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"{message.text} ({message.location['url']})")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.origin, "data:", "blob:")):
            self.foreign.add(request.url.split("?")[0])

    def sign_in(self, email: str, password: str, *, at: str = "/sign-in") -> None:
        self.page.goto(at)
        self.page.locator("[name=username]").fill(email)
        self.page.locator("[name=password]").fill(password)
        self.page.locator("[type=submit], form.card button").first.click()
        self.page.wait_for_load_state()

    def is_signed_in(self, user: User) -> None:
        """Spare a test the form."""
        client = Client()
        client.force_login(user)
        cookie = client.cookies[settings.SESSION_COOKIE_NAME]
        self.context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": self.origin}])

    def screenshot(self, name: str) -> None:
        """Keep what is seen, for people who ask for it."""
        if SCREENSHOTS:
            self.page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", full_page=True)

    def phone_screenshot(self, name: str) -> None:
        """Keep what a phone shows; nothing may stick out to its side."""
        self.page.set_viewport_size(PHONE)
        assert self.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name
        self.screenshot(name)
        self.page.set_viewport_size(DESK)

    def accessibility_violations(self) -> list[str]:
        """Return what axe finds in the page that keeps people out."""
        return [
            f"{violation['id']}: {violation['nodes'][0]['html'][:200]}"
            for violation in Axe().run(self.page).response["violations"]
        ]


def executable() -> str | None:
    """Return the Chromium of this machine."""
    named = os.environ.get("CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, for one module: playwright's event loop must not run on below other tests."""
    path = executable()
    if path is None:
        absent = "There is no Chromium here; name one by CHROMIUM."
        pytest.fail(absent) if os.environ.get("CI") else pytest.skip(absent)
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        expect.set_options(timeout=PATIENCE)
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")  # that loop runs in the thread that asks the database
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu", INSECURE])
        yield launched
        launched.close()


@pytest.fixture
def visit(browser: Browser, live_server: Any) -> Iterator[Callable[..., Visit]]:
    """Open a browser of somebody's own at the server that runs for this test."""
    visits: list[Visit] = []

    def open_one(origin: str = live_server.url, **options: Any) -> Visit:
        visits.append(Visit(browser, origin, **options))
        return visits[-1]

    yield open_one
    for one in visits:
        one.context.close()
