"""The client against a transport that answers as the API does: uploads, paging, retries, errors."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from accessa_client import AccessaError, Client

URL, TOKEN = "https://accessa.example.org", "acc_test"
Respond = Callable[[httpx.Request], httpx.Response]


def client(respond: Respond, pauses: list[float] | None = None) -> Client:
    transport = httpx.MockTransport(respond)
    return Client(URL, TOKEN, transport=transport, sleep=(pauses if pauses is not None else []).append)


def in_turn(*responses: httpx.Response) -> tuple[Respond, list[httpx.Request]]:
    left, requests = list(responses), list[httpx.Request]()

    def respond(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return left.pop(0)

    return respond, requests


def job(job_id: str, state: str = "working", percent: float = 50.0, **columns: Any) -> dict[str, Any]:
    progress = {"total_pct": percent}
    row = {"job_id": job_id, "document_id": f"d{job_id}", "stage": "chunking", "state": state, "status": "chunking"}
    return {**row, "progress": progress, "last_error": None, **columns}


def listing(*rows: dict[str, Any], next: str | None = None) -> httpx.Response:
    return httpx.Response(200, json={"next": next, "previous": None, "results": list(rows)})


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("token=1", {"content-type", "x-amz-checksum-sha256", "x-amz-server-side-encryption"}),
        ("X-Amz-SignedHeaders=content-type%3Bhost", {"content-type"}),
    ],
)
def test_an_upload_sends_the_bytes_with_the_signed_headers_and_no_token(
    query: str, headers: set[str], tmp_path: Path
) -> None:
    file = tmp_path / "plan.pdf"
    file.write_bytes(b"%PDF-1.7")
    signed = f"https://bucket.example.com/raw/x?{query}"
    declared = {"document_id": "d", "job_id": "j", "signed_url": signed, "upload_expires_at": "…"}
    respond, requests = in_turn(httpx.Response(200, json=declared), httpx.Response(200))

    uploaded = client(respond).upload(file, headers={"X-Amz-Server-Side-Encryption": "AES256"})

    assert (uploaded.document_id, uploaded.job_id, uploaded.filename) == ("d", "j", "plan.pdf")
    declare, put = requests
    assert json.loads(declare.content) == {
        "filename": "plan.pdf",
        "bytes_len": 8,
        "mime": "application/pdf",
        "sha256": hashlib.sha256(b"%PDF-1.7").hexdigest(),
        "ocr": False,
    }
    assert declare.headers["authorization"] == f"Bearer {TOKEN}"
    assert (put.method, str(put.url), put.content) == ("PUT", signed, b"%PDF-1.7")
    assert "authorization" not in put.headers
    assert {name for name in put.headers if name == "content-type" or name.startswith("x-amz")} == headers


def test_a_file_that_cannot_be_read_is_an_error_with_a_code(tmp_path: Path) -> None:
    with pytest.raises(AccessaError, match="FILE_UNREADABLE"):
        client(in_turn()[0]).upload(tmp_path / "none.pdf")


def test_lists_are_read_page_after_page() -> None:
    second = f"{URL}/documents?cursor=abc%3D&page_size=200"
    respond, requests = in_turn(listing({"n": 1}, next=second), listing({"n": 2}))

    assert [row["n"] for row in client(respond).documents()] == [1, 2]
    assert requests[1].url.params["cursor"] == "abc="


def test_a_get_is_repeated_after_the_time_that_the_server_names() -> None:
    busy = {"code": "UNAVAILABLE", "detail": "Try again."}
    respond, requests = in_turn(
        httpx.Response(503, json=busy, headers={"Retry-After": "5"}),
        httpx.Response(429, json=busy),
        listing(),
    )
    pauses: list[float] = []

    assert list(client(respond, pauses).documents()) == []

    assert (len(requests), pauses) == (3, [5.0, 2.0])


@pytest.mark.parametrize(("retry_after", "tries"), [("1", 5), ("61", 1)])
def test_a_server_that_stays_busy_is_given_up(retry_after: str, tries: int) -> None:
    calls: list[httpx.Request] = []

    def respond(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        body = {"code": "POLL_LIMIT_REACHED", "detail": "Too often."}
        return httpx.Response(429, json=body, headers={"Retry-After": retry_after})

    with pytest.raises(AccessaError, match="POLL_LIMIT_REACHED") as error:
        client(respond).document("d")

    assert (type(error.value), error.value.status, len(calls)) == (AccessaError, 429, tries)


def test_a_post_is_never_repeated() -> None:
    respond, requests = in_turn(httpx.Response(503, json={"code": "UNAVAILABLE", "detail": "Try again."}))

    with pytest.raises(AccessaError, match="UNAVAILABLE"):
        client(respond).search("deductible")

    assert len(requests) == 1


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (httpx.Response(400, json={"code": "EMPTY_QUERY", "detail": "Empty.", "field": "query"}), "EMPTY_QUERY"),
        (httpx.Response(502, html="<h1>Bad gateway</h1>"), "UNKNOWN"),
        (httpx.Response(500, json=["x"]), "UNKNOWN"),
        (httpx.Response(200, html="<h1>A login page</h1>"), "UNKNOWN"),
        (httpx.Response(200, json=[]), "UNKNOWN"),
    ],
)
def test_every_bad_answer_is_an_error_with_a_code(response: httpx.Response, code: str) -> None:
    with pytest.raises(AccessaError) as error:
        client(in_turn(response)[0]).search("x")

    assert error.value.code == code


@pytest.mark.parametrize(
    ("error", "code"), [(httpx.ConnectError("x"), "UNREACHABLE"), (httpx.ReadTimeout("x"), "TIMEOUT")]
)
def test_a_server_that_is_away_is_an_error_with_a_code(error: Exception, code: str) -> None:
    def respond(request: httpx.Request) -> httpx.Response:
        raise error

    with pytest.raises(AccessaError, match=code):
        client(respond).search("x")


def test_without_a_token_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ACCESSA_TOKEN", raising=False)

    with pytest.raises(AccessaError, match="NO_TOKEN"):
        Client(URL)


def test_watching_yields_changes_until_all_jobs_have_ended() -> None:
    failed = job("2", "deadletter", last_error={"code": "NOT_A_PDF"})
    respond, _ = in_turn(
        listing(job("9"), job("1"), job("2")),
        listing(job("9"), job("1"), failed),
        listing(job("1", "done", 100.0)),
    )
    pauses: list[float] = []

    changes = list(client(respond, pauses).watch(["1", "2"], every=0.5))

    assert [[(each.job_id, each.state, each.error) for each in changed] for changed in changes] == [
        [("1", "working", None), ("2", "working", None)],
        [("2", "deadletter", "NOT_A_PDF")],
        [("1", "done", None)],
    ]
    assert pauses == [0.5, 0.5]


def test_watching_ends_with_its_time_and_with_unknown_jobs() -> None:
    with pytest.raises(AccessaError, match="TIMEOUT"):
        list(client(lambda request: listing(job("1"))).watch(["1"], seconds=-1))
    with pytest.raises(AccessaError, match="NOT_FOUND"):
        list(client(lambda request: listing()).watch(["1"]))
