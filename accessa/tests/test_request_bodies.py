"""Request bodies: charsets, part headers and bodies without Content-Length. The slow tests use a real gunicorn."""

import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from django.test import Client

from documents.models import Document
from documents.storage import buckets
from testing.api_server import ApiServer, running_api_server
from testing.personas import Person, plan_pdf, upload_request
from webhooks.tests.signers import RUNNING_EVENT, SECRET, StandardSigner

PUNYCODE = b"-" + b"b" * 250_000  # decoding it takes 16 s
SEMICOLONS = 'text/plain; "' + ";" * 7_000  # Django's parser of the header takes a quarter of a second
PART = b"--X\r\nContent-Disposition: form-data; name=\"a\"; filename*=punycode''-" + b"b" * 900 + b"\r\n\r\nv\r\n"
CSRF = {"Cookie": f"csrftoken={'a' * 32}"}  # without one the CSRF check reads no form
UNSUPPORTED = (415, "UNSUPPORTED_MEDIA_TYPE")

PATHS = [
    ("POST", "/sign-in"), ("POST", "/admin/login/"), ("POST", "/search"), ("POST", "/upload"),
    ("POST", "/webhooks/llamaparse"), ("POST", "/internal/embed"), ("PUT", "/storage/raw/a/b.pdf"), ("GET", "/find"),
    ("GET", "/readyz"), ("POST", "/nowhere"), ("GET", "/static/portal/portal.css"),
]  # fmt: skip


def status_and_code(answer: Any) -> tuple[int, str]:
    return answer.status_code, json.loads(answer.content)["code"]


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize(
    "content_type",
    ["application/json; charset=punycode", "application/x-www-form-urlencoded;charset=utf-16",
     'text/plain; x=y; Charset = "iso-8859-1"', "application/pdf; charset=unknown-8", "text/plain; charset=",
     "text/plain; charset*=utf-8''punycode", "text/plain; charset*0=puny; charset*1=code",
     "text/plain; charset=utf-8; charset=idna", "multipart/form-data; boundary=X", SEMICOLONS],
)  # fmt: skip
def test_another_charset_than_utf_8_is_refused_at_every_path(content_type: str, method: str, path: str) -> None:
    # pytest-django refuses a query in a test that has asked for no database.
    answer = Client().generic(method, path, b"-bbbb", content_type)

    assert status_and_code(answer) == UNSUPPORTED
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert "X-Correlation-ID" in answer


@pytest.mark.parametrize("charset", ["", "; charset=utf-8", '; charset="UTF-8"', ";charset=utf8", "; charset=us-ascii"])
def test_utf_8_is_read_by_any_name(charset: str, ana: Person) -> None:
    form = Client().generic("POST", "/sign-in", "username=%C3%BC", f"application/x-www-form-urlencoded{charset}")
    declared = upload_request(plan_pdf("drugs")) | {"filename": "Überfällig.pdf"}
    body = json.dumps(declared, ensure_ascii=False).encode()
    declaration = ana.client.generic("POST", "/upload", body, f"application/json{charset}")

    assert "ü" in form.content.decode()
    assert declaration.status_code == 200
    assert Document.objects.get().filename == "Überfällig.pdf"


def test_a_server_that_cannot_end_a_body_of_unknown_length_asks_for_its_length() -> None:
    answer = Client().post("/upload", b"{}", content_type="application/json", headers={"transfer-encoding": "chunked"})

    assert status_and_code(answer) == (411, "LENGTH_REQUIRED")


@pytest.fixture(scope="module")
def module_server(django_db_setup: None) -> Iterator[ApiServer]:
    with running_api_server(LLAMAPARSE_WEBHOOK_SECRETS=SECRET) as running:
        yield running


@pytest.fixture
def server(module_server: ApiServer, transactional_db: None) -> ApiServer:
    return module_server


def pieces(body: bytes) -> Iterator[bytes]:
    """Let requests send a chunked body."""
    for start in range(0, len(body), 10_000):
        yield body[start : start + 10_000]


@pytest.mark.slow
def test_no_header_makes_the_api_work_in_quadratic_time(server: ApiServer, ana: Person) -> None:
    field = b'--X\r\nContent-Disposition: form-data; name="a"\r\n\r\n' + PUNYCODE + b"\r\n--X--\r\n"
    attacks = [
        ("/sign-in", "multipart/form-data; boundary=X; charset=punycode", field),
        ("/admin/login/", "multipart/form-data; boundary=X; charset=punycode", field),
        ("/sign-in", "multipart/form-data; boundary=X", PART * 250 + b"--X--\r\n"),
        ("/search", "application/json; charset=punycode", PUNYCODE),
        ("/sign-in", SEMICOLONS, b""),
        ("/sign-in", "text/plain; charset*=punycode''-" + "b" * 7_000, b""),
        ("/sign-in", "text/plain; charset*=unknown-8''x", b""),  # an unhandled error of Django's own
    ]
    for path, content_type, body in attacks:
        headers = CSRF | {"Content-Type": content_type, "Authorization": f"Bearer {ana.token}"}

        answer = requests.post(server.url + path, body, headers=headers, timeout=60)

        assert status_and_code(answer) == UNSUPPORTED, content_type[:60]  # answered before anything is parsed


@pytest.mark.slow
def test_a_body_without_content_length_is_read_everywhere(server: ApiServer, ana: Person) -> None:
    ana.user.set_password("correct horse battery")
    ana.user.save()
    pdf, bearer = plan_pdf("drugs"), {"Authorization": f"Bearer {ana.token}"}
    to_json = bearer | {"Content-Type": "application/json"}

    declaration = requests.post(
        f"{server.url}/upload", pieces(json.dumps(upload_request(pdf)).encode()), headers=to_json, timeout=30
    )
    signed_url, mime = declaration.json()["signed_url"], {"Content-Type": "application/pdf"}
    longer = requests.put(signed_url, pieces(pdf + b"x"), headers=mime, timeout=30)
    put = requests.put(signed_url, pieces(pdf), headers=mime, timeout=30)
    found = requests.post(f"{server.url}/search", pieces(b'{"query": "tier"}'), headers=to_json, timeout=30)
    signed = StandardSigner().send(RUNNING_EVENT | {"note": "n" * 300_000})
    callback = requests.post(
        f"{server.url}/webhooks/llamaparse", pieces(signed.body), headers=signed.headers, timeout=30
    )
    form = f"username={ana.user.email}&password=correct+horse+battery&csrfmiddlewaretoken={'a' * 32}".encode()
    signed_in = requests.post(
        f"{server.url}/sign-in", pieces(form), timeout=30, allow_redirects=False,
        headers=CSRF | {"Content-Type": "application/x-www-form-urlencoded"},
    )  # fmt: skip

    assert declaration.status_code == put.status_code == found.status_code == callback.status_code == 200
    assert status_and_code(longer) == (422, "LENGTH_MISMATCH")
    bucket, name = buckets.locate(Document.objects.get().raw_path)
    assert bucket.read(name) == pdf
    assert (signed_in.status_code, signed_in.headers["Location"]) == (302, "/")


@pytest.mark.slow
def test_a_body_without_content_length_is_bounded(server: ApiServer, settings: Any) -> None:
    long = b" " * (settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1)
    for path in ("/search", "/sign-in"):
        answer = requests.post(
            server.url + path, pieces(long), headers=CSRF | {"Content-Type": "application/json"}, timeout=30
        )
        assert status_and_code(answer) == (413, "BODY_TOO_LARGE")

    signed = StandardSigner().sign(b" " * (16 * 1024 * 1024 + 1))
    answer = requests.post(f"{server.url}/webhooks/llamaparse", pieces(signed.body), headers=signed.headers, timeout=30)

    assert status_and_code(answer) == (413, "BODY_TOO_LARGE")


def by_socket(url: str, request: bytes) -> bytes:
    address = urlsplit(url)
    with socket.create_connection((address.hostname or "", address.port or 80), timeout=30) as wire:
        wire.sendall(request)
        wire.shutdown(socket.SHUT_WR)
        received = b""
        while part := wire.recv(65536):
            received += part
    return received


HEAD = b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"


@pytest.mark.slow
def test_gunicorn_passes_on_no_header_that_changes_the_path(server: ApiServer) -> None:
    prefixed = by_socket(server.url, b"GET /x/metrics" + HEAD + b"SCRIPT_NAME: /x\r\n\r\n")
    foreign = by_socket(server.url, b"GET /healthz" + HEAD + b"SCRIPT_NAME: /y\r\nPATH_INFO: /metrics\r\n\r\n")

    assert prefixed.split()[1] == b"404"
    assert (foreign.split()[1], foreign.rpartition(b"\r\n")[2]) == (b"200", b'{"status": "ok"}')


@pytest.mark.slow
def test_a_chunked_body_that_breaks_off_is_a_client_error(server: ApiServer) -> None:
    head = HEAD + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"

    answer = by_socket(server.url, b"POST /search" + head + b"5\r\n{}")

    assert (answer.split()[1], b"BODY_INTERRUPTED" in answer) == (b"400", True)
