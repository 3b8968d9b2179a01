"""The AWS Lambda function: invoked after the manifest, never blocking search."""

import json
from collections.abc import Iterator
from typing import Any, Self

import pytest

from jobs.outcomes import Retryable, Wait
from statutes import stages
from statutes.models import LawVersion
from testing.fakes.faults import http_error
from testing.fakes.http_messages import Request, Response, json_response
from testing.fakes.server import Server
from vendors import aws_client

pytestmark = pytest.mark.django_db
LAW = LawVersion(law_id="ISR/2024", version="2024-01")
ARN = "arn:aws:lambda:eu-west-1:123456789012:function:persist"


class Lambda(Server):
    name = "lambda"

    def __init__(self) -> None:
        super().__init__()
        self.told_: list[tuple[str, str | None, Any]] = []

    def __enter__(self) -> Self:
        aws_client._client.cache_clear()  # one that was made for another's address
        return super().__enter__()

    def respond(self, request: Request) -> Response:
        kind = request.headers.get("X-Amz-Invocation-Type")
        self.told_.append((request.path, kind, json.loads(request.body)))
        return Response(202)

    def error_response(self, status: int, code: str | None = None) -> Response:
        return json_response({"Message": "no"}, status, {"x-amzn-ErrorType": code or "ServiceException"})


@pytest.fixture(scope="module")
def opened() -> Iterator[Lambda]:
    with Lambda() as server:
        yield server


@pytest.fixture
def server(opened: Lambda, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Lambda:
    monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", opened.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    settings.STATUTES_LAMBDA, settings.STATUTES_BUCKET = ARN, "laws"
    opened.told_.clear()
    return opened


@pytest.mark.slow
def test_the_function_receives_the_current_manifest(server: Lambda) -> None:
    assert stages.invoke_lambda(LAW, "ab" * 32)

    ((path, kind, event),) = server.told_
    assert path == f"/2015-03-31/functions/{ARN}/invocations"
    assert kind == "Event"
    assert event == {
        "bucket": "laws",
        "law_id": "ISR/2024",
        "version": "2024-01",
        "manifest_key": "normalized/ISR%2F2024/manifest.json",
        "manifest_sha256": "ab" * 32,
    }


def test_without_a_function_nothing_is_invoked(server: Lambda, settings: Any) -> None:
    settings.STATUTES_LAMBDA = ""

    assert not stages.invoke_lambda(LAW, "ab")
    assert server.told_ == []


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, "ResourceNotFoundException", Wait),
        (403, "AccessDeniedException", Wait),
        (429, "TooManyRequestsException", Wait),
        (500, "ServiceException", Retryable),
    ],
)
def test_a_failing_function_makes_the_job_wait_or_retry(
    status: int, code: str, kind: type[Exception], server: Lambda
) -> None:
    server.inject_fault("*", http_error(status, code=code))

    with pytest.raises(kind):
        stages.invoke_lambda(LAW, "ab")
