"""Fixtures: an account at the fake provider, and an embedder that records its calls."""

from collections.abc import Iterator
from typing import Any

import pytest

from embeddings.embedders import registry
from integrations.models import ConnectedSource
from integrations.tests import grants
from integrations.tests.fake_provider import rest
from integrations.tests.fake_provider.embedder import SpyEmbedder
from integrations.tests.fake_provider.rest import Account
from testing.fakes.oauth import OAuthServer
from testing.personas import Person

REMEMBERING = "integrations.tests.fake_provider.embedder.SpyEmbedder"


@pytest.fixture
def account(settings: Any) -> Account:
    """Return an empty account at ``integrations.tests.fake_provider``."""
    settings.INTEGRATIONS_PROVIDERS = {"hubspot": "integrations.tests.fake_provider"}
    settings.INTEGRATIONS_USE_FIXTURES = True  # no token is asked for
    rest.account.__init__()  # type: ignore[misc]
    return rest.account


@pytest.fixture
def source(account: Account, ana: Person) -> ConnectedSource:
    """Return Ana's source."""
    row: ConnectedSource = ConnectedSource.objects.create(user_id=ana.id, provider="hubspot")
    return row


@pytest.fixture
def model(settings: Any) -> SpyEmbedder:
    """Use an embedder that records its calls."""
    settings.EMBEDDER = REMEMBERING
    embedder = registry.get_embedder(REMEMBERING)
    assert isinstance(embedder, SpyEmbedder)
    embedder.clear()
    return embedder


@pytest.fixture
def oauth(settings: Any) -> Iterator[OAuthServer]:
    """Serve every provider's consent page and token endpoint."""
    with OAuthServer() as server:
        grants.use_fake_oauth(settings, server)
        yield server
