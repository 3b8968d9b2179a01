"""System checks of the connectors' settings."""

from collections.abc import Callable
from typing import Any

import pytest

from accessa.checks import connectors
from accessa.checks.rules import check_rules
from accessa.checks.settings import check_settings
from accessa.env import Env, find_unread_variables
from accessa.observability import redaction
from accessa.settings_connectors import provider_settings

PLANTED: list[tuple[str, dict[str, Any], str, str]] = [
    ("hubspot", {"client_id": "id"}, "accessa.E236", "HUBSPOT_CLIENT_SECRET"),
    ("gmail", {"transport": "mpc"}, "accessa.E237", "rest or mcp"),
    ("quickbooks", {"transport": "mcp"}, "accessa.E238", "QUICKBOOKS_TRANSPORT=rest"),
    ("hubspot", {"requests_per_minute": -1}, "accessa.E225", "Unset HUBSPOT_REQUESTS_PER_MINUTE"),
    ("google_drive", {"api_url": "www.googleapis.com"}, "accessa.E239", "scheme://host"),
]


@pytest.fixture
def connector(settings: Any) -> Callable[..., None]:
    """Set something of a provider."""

    def set_(provider: str, **said: Any) -> None:
        settings.CONNECTORS = settings.CONNECTORS | {provider: settings.CONNECTORS[provider] | said}

    return set_


def test_the_defaults_contradict_nothing() -> None:
    assert check_settings(app_configs=None) == []


@pytest.mark.parametrize(("provider", "said", "id", "remedy"), PLANTED, ids=[each[2] for each in PLANTED])
def test_invalid_provider_settings_are_found(
    provider: str, said: dict[str, Any], id: str, remedy: str, connector: Callable[..., None]
) -> None:
    connector(provider, **said)

    (message,) = check_rules(connectors.CONNECTOR_RULES)
    assert message.id == id
    assert remedy in str(message.hint)


def test_one_variable_chooses_mcp_for_each_provider_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def transports(**variables: str) -> dict[str, str]:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return {provider: config["transport"] for provider, config in provider_settings(Env()).items()}

    assert set(transports().values()) == {"rest"}
    assert transports(INTEGRATIONS_TRANSPORT="mcp") == {
        "hubspot": "mcp", "google_drive": "mcp", "quickbooks": "rest", "gmail": "mcp",
    }  # fmt: skip
    assert transports(GMAIL_TRANSPORT="rest", QUICKBOOKS_MCP_URL="https://mcp.example") == {
        "hubspot": "mcp", "google_drive": "mcp", "quickbooks": "mcp", "gmail": "rest",
    }  # fmt: skip


def test_an_invalid_vault_key_is_reported_without_its_value(settings: Any) -> None:
    settings.INTEGRATIONS_VAULT_KEY_IS_LOCAL = False
    settings.INTEGRATIONS_VAULT_KEYS = ["A" * 43 + "=", "too short a key"]

    (message,) = check_rules(connectors.CONNECTOR_RULES)
    assert (message.id, "Key number 2" in message.msg) == ("accessa.E240", True)
    assert "too short" not in str(message)


@pytest.mark.parametrize(
    ("name", "value", "id"),
    [
        ("TOKEN_REFRESH_SKEW_SECONDS", 1800, "accessa.W242"),
        ("INGESTION_WORKERS", 2, "accessa.W243"),
        ("INGESTION_VT_SECONDS", 60, "accessa.W228"),
        ("INGESTION_PAGE_SIZE", 0, "accessa.E225"),
    ],
)
def test_a_number_that_connectors_cannot_work_with_is_found(name: str, value: int, id: str, settings: Any) -> None:
    setattr(settings, name, value)

    assert [message.id for message in check_settings(app_configs=None)] == [id]


def test_a_deployment_has_no_recorded_answers(settings: Any, connector: Callable[..., None]) -> None:
    settings.INTEGRATIONS_VAULT_KEY_IS_LOCAL = False
    assert list(check_rules(connectors.CONNECTOR_DEPLOYMENT_RULES)) == []

    settings.INTEGRATIONS_USE_FIXTURES = True
    assert [message.id for message in check_rules(connectors.CONNECTOR_DEPLOYMENT_RULES)] == ["accessa.E109"]
    connector("hubspot", client_id="id", client_secret="secret")
    assert "accessa.W241" in [message.id for message in check_rules(connectors.CONNECTOR_RULES)]


def test_a_provider_wants_a_key_of_ones_own_and_https(settings: Any, connector: Callable[..., None]) -> None:
    connector("hubspot", client_id="id", client_secret="secret")
    settings.INTEGRATIONS_VAULT_KEY_IS_LOCAL = True

    assert [message.id for message in check_rules(connectors.CONNECTOR_DEPLOYMENT_RULES)] == [
        "accessa.E110",
        "accessa.E111",
    ]

    settings.INTEGRATIONS_VAULT_KEY_IS_LOCAL, settings.PUBLIC_URL = False, "https://accessa.example.org"
    assert list(check_rules(connectors.CONNECTOR_DEPLOYMENT_RULES)) == []


def test_provider_urls_must_be_https_or_local(settings: Any, connector: Callable[..., None]) -> None:
    settings.INTEGRATIONS_VAULT_KEY_IS_LOCAL, settings.PUBLIC_URL = False, "https://accessa.example.org"
    connector("hubspot", api_url="http://hubspot.example.org")  # is not configured
    connector("gmail", client_id="id", client_secret="secret", api_url="http://127.0.0.1:9/gmail")
    assert list(check_rules(connectors.CONNECTOR_DEPLOYMENT_RULES)) == []

    connector("gmail", token_url="http://tokens.example.org")

    (message,) = check_rules(connectors.CONNECTOR_DEPLOYMENT_RULES)
    assert (message.id, "GMAIL_TOKEN_URL" in message.msg) == ("accessa.E112", True)


@pytest.mark.parametrize(
    "said", [{"hubspot": "integrations.providers.hubspto"}, {"hubspot": "no.such.thing"}, {"hubspot": ""},
             {"hubspot": "json"}, {"salesforce": "integrations.providers.hubspot"}],
)  # fmt: skip
def test_a_provider_that_cannot_be_imported_is_found(said: dict[str, str], settings: Any) -> None:
    settings.INTEGRATIONS_PROVIDERS = settings.INTEGRATIONS_PROVIDERS | said

    (message,) = check_rules(connectors.CONNECTOR_RULES)

    assert (message.id, next(iter(said)) in message.msg) == ("accessa.E244", True)


def test_provider_variables_are_known_and_typos_reported() -> None:
    known = {name for name in Env.requested if name.startswith(("HUBSPOT_", "GOOGLE_", "QUICKBOOKS_", "GMAIL_"))}
    assert {"GOOGLE_CLIENT_ID", "HUBSPOT_API_URL", "QUICKBOOKS_TRANSPORT", "GMAIL_REQUESTS_PER_MINUTE"} <= known

    assert dict(find_unread_variables(dict.fromkeys([*known, "GMAIL_TRANSPROT"], "value"))) == {}
    assert dict(find_unread_variables({"GMAIL_TRANSPROT": "mcp"})) == {"GMAIL_TRANSPROT": "GMAIL_TRANSPORT"}


def test_client_secrets_and_vault_keys_are_redacted(settings: Any, connector: Callable[..., None]) -> None:
    connector("hubspot", client_id="id", client_secret="a-clients-own-secret")
    settings.INTEGRATIONS_VAULT_KEYS = ["a-vaults-own-key-0123456789"]
    redaction.secrets_pattern.cache_clear()

    redacted = redaction.redact_secrets("a-clients-own-secret and a-vaults-own-key-0123456789")

    redaction.secrets_pattern.cache_clear()
    assert "own" not in redacted
