"""Key rotation of a running deployment: docs/operations/keys.md."""

from typing import Any

import pytest

from testing.personas import Person, upload_request
from vendors.webhook_secrets import webhook_secrets

PDF = b"%PDF-1.7"


@pytest.fixture
def url_of_before(ana: Person, settings: Any) -> str:
    """Return a URL that was signed before the key changed."""
    settings.SECRET_KEY = "the key of before, long enough to be one"
    url = str(ana.post("/upload", upload_request(PDF)).json()["signed_url"])
    settings.SECRET_KEY_FALLBACKS, settings.SECRET_KEY = (
        [settings.SECRET_KEY],
        "the key of today, long enough to be one",
    )
    return url


def test_signatures_of_a_fallback_key_remain_valid(url_of_before: str, ana: Person) -> None:
    assert ana.client.put(url_of_before, PDF, content_type="application/pdf").status_code == 200


def test_and_no_longer_once_it_is_none(url_of_before: str, ana: Person, settings: Any) -> None:
    settings.SECRET_KEY_FALLBACKS = []

    answer = ana.client.put(url_of_before, PDF, content_type="application/pdf")

    assert (answer.status_code, answer.json()["code"]) == (403, "URL_NOT_VALID")


def test_callbacks_that_were_ordered_with_the_old_key_still_verify(url_of_before: str, settings: Any) -> None:
    new, old = webhook_secrets()

    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = settings.SECRET_KEY_FALLBACKS[0], []
    assert webhook_secrets() == [old]
    assert new != old
