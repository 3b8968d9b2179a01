"""An account at an invented provider, and a model that remembers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from embeddings import embedders
from integrations.models import ConnectedSource
from integrations.tests import grants
from integrations.tests.invented import rest
from integrations.tests.invented.embedder import SpyEmbedder
from integrations.tests.invented.rest import Account
from testing.fakes.oauth import OAuthServer
from testing.personas import Person

REMEMBERING = "integrations.tests.invented.embedder.SpyEmbedder"


@pytest.fixture
def account(settings: Any) -> Account:
    """An account at the provider of ``integrations.tests.invented``, with nothing in it."""
    settings.INTEGRATIONS_PROVIDERS = {"hubspot": "integrations.tests.invented"}
    settings.INTEGRATIONS_USE_FIXTURES = True  # no token is asked for
    rest.account.__init__()  # type: ignore[misc]
    return rest.account


@pytest.fixture
def source(account: Account, ana: Person) -> ConnectedSource:
    """Ana's."""
    made: ConnectedSource = ConnectedSource.objects.create(user_id=ana.id, provider="hubspot")
    return made


@pytest.fixture
def model(settings: Any) -> SpyEmbedder:
    """What embeds, and what it was asked to."""
    settings.EMBEDDER = REMEMBERING
    found = embedders.get_embedder(REMEMBERING)
    assert isinstance(found, SpyEmbedder)
    found.clear()
    return found


@pytest.fixture
def oauth(settings: Any) -> Iterator[OAuthServer]:
    """Every provider's consent page and token endpoint."""
    with OAuthServer() as server:
        grants.use_fake_oauth(settings, server)
        yield server
