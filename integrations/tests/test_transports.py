"""The client of a source, and recorded responses in place of a provider."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.conf import LazySettings

from integrations.models import ConnectedSource, Provider
from integrations.providers.interface import CapabilityMissing, TokenRefused, provider_module
from integrations.transports import make_client
from integrations.transports.fixture_transport import FixtureTransport
from integrations.transports.responses import TooLarge
from jobs.outcomes import Permanent, Retryable
from vendors.calls import VendorRefused

ROUTES = [
    {"method": "GET", "path": "/things", "file": "one.json"},
    {"method": "GET", "path": "/things", "params": {"after": 2}, "file": "two.json"},
    {"method": "GET", "path": "/things", "params": {"after": "3", "deep": True}, "file": "three.json"},
    {"method": "POST", "path": "/search", "params": {"limit": 1}, "file": "two.json"},
    {"method": "GET", "path": "/file", "file": "two.json"},
    {"method": "GET", "path": "/401", "file": "one.json", "status": 401},
    {"method": "GET", "path": "/403", "file": "scopes.json", "status": 403},
    {"method": "GET", "path": "/404", "status": 404},
    {"method": "GET", "path": "/503", "status": 503},
]


@pytest.fixture
def recorded(tmp_path: Path) -> FixtureTransport:
    folder = tmp_path / "hubspot"
    folder.mkdir()
    (folder / "routes.json").write_text(json.dumps(ROUTES))
    for number, name in enumerate(("one", "two", "three"), 1):
        (folder / f"{name}.json").write_text(f'{{"number": {number}, "price": 1.50}}')
    (folder / "scopes.json").write_text('{"category": "MISSING_SCOPES"}')
    return FixtureTransport("hubspot", tmp_path)


def request_json(recorded: FixtureTransport, method: str, path: str, **more: Any) -> Any:
    return recorded.json(method, path, operation="list", **more)


def test_the_route_with_the_most_params_responds(recorded: FixtureTransport) -> None:
    assert request_json(recorded, "GET", "/things")["number"] == 1
    assert request_json(recorded, "GET", "/things", params={"after": "2", "limit": 100})["number"] == 2
    assert request_json(recorded, "GET", "/things", params={"after": 3, "deep": "true"})["number"] == 3
    assert request_json(recorded, "POST", "/search", body={"limit": 1, "sorts": []})["number"] == 2
    assert str(request_json(recorded, "GET", "/things")["price"]) == "1.50"


def test_files_are_read_up_to_their_size(recorded: FixtureTransport) -> None:
    assert b"".join(recorded.stream("/file", operation="download", most=29)).startswith(b'{"number"')
    with pytest.raises(TooLarge):
        list(recorded.stream("/file", operation="download", most=5))


def test_a_request_that_was_not_recorded_is_named(recorded: FixtureTransport) -> None:
    with pytest.raises(Permanent, match="hubspot has no recorded answer for GET /others"):
        request_json(recorded, "GET", "/others")
    with pytest.raises(Permanent, match="no recorded answer"):
        request_json(recorded, "POST", "/things")


@pytest.mark.parametrize(
    ("path", "error"), [("/401", TokenRefused), ("/403", Permanent), ("/404", VendorRefused), ("/503", Retryable)]
)
def test_recorded_errors_raise_what_the_provider_would(
    recorded: FixtureTransport, path: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        request_json(recorded, "GET", path)


@pytest.mark.parametrize("name", Provider.values)
def test_each_provider_has_a_client_of_either_transport(settings: LazySettings, name: str) -> None:
    settings.CONNECTORS = {
        each: {**config, "mcp_url": "http://127.0.0.1:1/mcp"} for each, config in settings.CONNECTORS.items()
    }
    for transport in ("rest", "mcp"):
        source = ConnectedSource(id=uuid4(), provider=name, transport=transport, account="1")

        client = make_client(source, "token")

        assert client.provider == name
        assert type(client.transport).__name__ == {"rest": "RestTransport", "mcp": "Transport"}[transport]
        client.close()


@pytest.mark.parametrize("name", Provider.values)
def test_fixtures_need_no_provider(settings: LazySettings, name: str) -> None:
    settings.INTEGRATIONS_USE_FIXTURES = True
    source = ConnectedSource(id=uuid4(), provider=name, transport="mcp", account="1")

    client = make_client(source, "recorded")

    assert isinstance(client.transport, FixtureTransport)
    assert provider_module(name).STREAMS


def test_a_provider_without_a_server_raises_capability_missing() -> None:
    source = ConnectedSource(id=uuid4(), provider="quickbooks", transport="mcp")

    with pytest.raises(CapabilityMissing, match="server"):
        make_client(source, "token")


def test_tests_and_benchmarks_can_name_another_module(settings: LazySettings) -> None:
    settings.INTEGRATIONS_PROVIDERS = {"hubspot": "integrations.providers.gmail"}

    assert provider_module("hubspot").__name__ == "integrations.providers.gmail.mapping"  # type: ignore[attr-defined]
