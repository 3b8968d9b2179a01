"""Doctor's check of Titan, and the system checks of its settings."""

from collections.abc import Iterator
from typing import Any

import pytest

from accessa.checks.rules import check_rules
from accessa.checks.settings import check_settings
from accessa.checks.statutes import STATUTE_DEPLOYMENT_RULES
from accessa.doctor.embedders import check_titan
from testing.fakes.bedrock import BedrockServer
from testing.fakes.faults import http_error


def deployment_ids() -> list[str | None]:
    return [message.id for message in check_rules(STATUTE_DEPLOYMENT_RULES)]


@pytest.fixture
def server(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[BedrockServer]:
    with BedrockServer() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        settings.STATUTES_EMBEDDER, settings.TITAN_ENDPOINT_URL = "titan", server.url
        yield server


@pytest.mark.django_db
def test_a_working_bedrock_is_reported_with_its_model(server: BedrockServer) -> None:
    assert [finding.message for finding in check_titan()] == ["(amazon.titan-embed-text-v1)"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (403, "AccessDeniedException", "refuses the key"),
        (400, "ServiceQuotaExceededException", "quota"),
        (429, "ThrottlingException", "too many calls"),
        (404, "ResourceNotFoundException", "refuses the model"),
        (500, "InternalServerException", "fault of its own"),
    ],
)
def test_each_fault_has_its_remedy(status: int, code: str, says: str, server: BedrockServer) -> None:
    server.inject_fault("*", http_error(status, code=code))

    (finding,) = check_titan()

    assert says in finding.message
    assert finding.remedy


def test_where_titan_does_not_embed_nothing_is_asked(settings: Any) -> None:
    settings.EMBEDDER, settings.STATUTES_EMBEDDER = "local", ""

    assert [finding.level for finding in check_titan()] == ["skipped"]
    assert deployment_ids() == []


def test_a_deployment_without_keys_is_refused(server: BedrockServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert deployment_ids() == []
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")

    assert deployment_ids() == ["accessa.E113"]


def test_a_model_that_is_none_of_titans_is_named(settings: Any) -> None:
    settings.STATUTES_EMBEDDER, settings.TITAN_MODEL = "titan", "amazon.nova"

    assert "accessa.E250" in {message.id for message in check_settings(app_configs=None)}
