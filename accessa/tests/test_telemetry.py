"""Sentry and OpenTelemetry: received events and spans have the allowed fields only."""

import gzip
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import requests
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from accessa.observability import receivers
from testing import log_leaks
from testing.api_server import running_api_server
from testing.cluster import create_jobs, running_cluster, wait_until
from testing.log_leaks import CANARIES, SECRETS
from testing.personas import Person

pytestmark = pytest.mark.slow

CORRELATION = "5d0c2c6e-7a55-4f0e-9d6a-0f6f3f1f7a12"


class Receiver(ThreadingHTTPServer):
    """Takes whatever is posted to it, and says that all is well."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taking)
        self.taken: list[tuple[str, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def dsn(self) -> str:
        return f"http://public@127.0.0.1:{self.server_address[1]}/1"

    def to(self, path: str) -> list[bytes]:
        return [body for taken, body in list(self.taken) if path in taken]


class Taking(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.taken.append((self.path, body))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def events(receiver: Receiver) -> list[dict[str, Any]]:
    """Return what Sentry would show: the items of the envelopes that are events."""
    collected = []
    for body in receiver.to("/envelope/"):
        lines = body.split(b"\n")
        collected += [
            json.loads(payload)
            for head, payload in zip(lines[1::2], lines[2::2], strict=False)
            if json.loads(head).get("type") == "event"
        ]
    return collected


def spans(receiver: Receiver) -> list[Any]:
    service: Any = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    exports = [service.ExportTraceServiceRequest.FromString(body) for body in receiver.to("/v1/traces")]
    return [
        span for request in exports for group in request.resource_spans for scope in group.scope_spans
        for span in scope.spans
    ]  # fmt: skip


def attributes(span: Any) -> dict[str, str]:
    return {each.key: each.value.string_value or str(each.value.int_value) for each in span.attributes}


def receiver_environment(receiver: Receiver) -> dict[str, Any]:
    """Return the variables that enable both receivers."""
    return {
        **SECRETS,
        "SENTRY_DSN": receiver.dsn,
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "JOBS_PIPELINES": "testing.log_leaks.pipelines.PIPELINES",
        "JOBS_RETRY_BASE_SECONDS": 0.05,
        "STORAGE_ROOT": settings.STORAGE_ROOT,
        "LOG_LEVEL": "DEBUG",
        "LOG_FORMAT": "json",
    }


@pytest.mark.django_db(transaction=True)
def test_errors_and_traces_of_both_processes_arrive_without_any_canary(ana: Person, receiver: Receiver) -> None:
    pytest.importorskip("sentry_sdk")
    pytest.importorskip("opentelemetry.sdk")
    ask = {"Authorization": f"Bearer {ana.token}", "X-Correlation-ID": CORRELATION, "X-Note": log_leaks.POLICY}
    with running_cluster(workers=1, **receiver_environment(receiver)) as workers:
        with connection.cursor() as cursor:
            create_jobs(cursor, 1, "leaky")
            create_jobs(cursor, 1, "leaky-constraint")
        with running_api_server(
            application="testing.log_leaks.leaking_wsgi:application", **receiver_environment(receiver)
        ) as api:
            for query in (f"q={log_leaks.QUESTION}&token=canary-token-6612", f"database=1&q={log_leaks.QUESTION}"):
                requests.get(f"{api.url}/leak?{query}", headers=ask, timeout=20)
            requests.post(f"{api.url}/upload", json={"filename": log_leaks.ALL}, headers=ask, timeout=20)
            wait_until(lambda: {"request /leak", "stage"} <= {span.name for span in spans(receiver)}, seconds=30)
            wait_until(lambda: any("stage" in event["tags"] for event in events(receiver)), seconds=20)
            wait_until(lambda: any(event["tags"].get("route") == "/leak" for event in events(receiver)), seconds=20)
        workers.stop()

    for path, body in receiver.taken:
        written = body.decode("utf-8", "replace")
        assert [canary for canary in (*CANARIES, ana.token, "Failing row") if canary in written] == [], path
    _reads_well(events(receiver), spans(receiver))


def _reads_well(events: list[dict[str, Any]], spans: list[Any]) -> None:
    raised = [event for event in events if "exception" in event]
    in_stage = next(event for event in raised if "stage" in event["tags"])
    assert {"correlation", "job", "document", "stage", "attempt"} <= in_stage["tags"].keys()
    in_view = [event for event in raised if event["tags"].get("route") == "/leak"]
    assert {event["tags"]["correlation"] for event in in_view} == {CORRELATION}
    assert "view" in {_frames(event)[-1]["function"] for event in in_view}
    assert not [frame for event in raised for frame in _frames(event) if "vars" in frame]
    assert not [event for event in events if {"request", "user", "extra", "modules"} & event.keys()]
    stage = attributes(next(span for span in spans if span.name == "stage"))
    assert {"accessa.correlation", "accessa.job", "accessa.stage", "accessa.outcome"} <= stage.keys()
    request = attributes(next(span for span in spans if span.name == "request /upload"))
    assert (request["http.route"], request["accessa.correlation"]) == ("/upload", CORRELATION)
    assert request["http.response.status_code"] == "400"


def _frames(event: dict[str, Any]) -> list[dict[str, Any]]:
    return [frame for value in event["exception"]["values"] for frame in value["stacktrace"]["frames"]]


@pytest.mark.parametrize("receiver", receivers.RECEIVERS, ids=lambda receiver: receiver.setting)
def test_a_package_that_is_missing_is_named_with_its_remedy(
    receiver: receivers.Receiver, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SENTRY_DSN = settings.OTEL_EXPORTER_OTLP_ENDPOINT = ""
    setattr(settings, receiver.setting, "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, receiver.package.partition(".")[0], None)

    (collected,) = receivers.check_packages(app_configs=None)

    assert receiver.setting in collected.msg
    assert collected.hint is not None
    assert "requirements/optional.txt" in collected.hint
    with pytest.raises(ImproperlyConfigured, match=r"requirements/optional\.txt"):
        receivers.LazyReceiver(receiver).start()


def test_without_a_receiver_nothing_is_loaded() -> None:
    code = (
        "import django, sys; django.setup()"
        "; print(*{'sentry_sdk', 'accessa.observability.opentelemetry'} & sys.modules.keys())"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "accessa.settings"}

    ran = subprocess.run([sys.executable, "-c", code], cwd=settings.BASE_DIR, env=environment, capture_output=True)

    assert (ran.returncode, ran.stdout.decode().strip()) == (0, "")
