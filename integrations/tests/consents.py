"""Consent at the fake OAuth server, as a browser and the pages give it."""

from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from accounts.errors import ApiError
from integrations.models import ConnectedSource
from integrations.oauth import authorization_flow
from testing.fakes.oauth import PROSE
from testing.personas import Person

BACK = "https://accessa.example.org/settings/integrations/callback"


def consent_params(begun: authorization_flow.ConsentRequest) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(begun.url).query).items()}


def open_consent_page(begun: authorization_flow.ConsentRequest) -> dict[str, str]:
    """Open the consent page as a browser does, and return what comes back."""
    answer = httpx.get(begun.url)
    assert answer.status_code == 302
    address = answer.headers["Location"]
    assert address.startswith(BACK)
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


def connect(person: Person, provider: str, **instead: str) -> ConnectedSource:
    """Connect as the pages do."""
    begun = authorization_flow.start_consent(user_id=person.id, provider=provider, redirect_uri=BACK)
    callback = open_consent_page(begun)
    params = {
        "code": callback.get("code", ""),
        "state": callback["state"],
        "expected_state": begun.state,
        "verifier": begun.verifier,
        "redirect_uri": BACK,
        "account": callback.get("realmId", ""),
    }
    return authorization_flow.complete_consent(user_id=person.id, provider=provider, **(params | instead))


def refusal_code(person: Person, provider: str, **instead: str) -> str:
    with pytest.raises(ApiError) as refused:
        connect(person, provider, **instead)
    assert PROSE not in refused.value.detail
    return refused.value.code
