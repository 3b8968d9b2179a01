"""The command: what it prints for people and scripts, its exit codes and progress; and what the package imports."""

import ast
import io
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from accessa_client import cli
from accessa_client.client import AccessaError, Client, Job
from standardwebhooks import Webhook

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PASSAGE = {"filename": "plan\x1b[2J.pdf", "pages": [3, 4], "snippet_text": "40 visits\na plan year."}
SENTENCE = {"text": "40 visits a plan year.", "citations": [{"title": "plan.pdf", "page": 3}] * 2}
Responses = dict[str, Any]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def call(*arguments: str, responses: Responses | None = None, err: io.StringIO | None = None) -> tuple[int, str, str]:
    """Run a command against ``responses`` by "METHOD /path"; return its exit code and what it printed."""

    def respond(request: httpx.Request) -> httpx.Response:
        answer = (responses or {})[f"{request.method} {request.url.path}"]
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)

    def connect(url: str | None) -> Client:
        return Client(url, "acc_test", transport=httpx.MockTransport(respond), sleep=lambda seconds: None)

    out, err = io.StringIO(), err or io.StringIO()
    code = cli.run(cli.build_parser().parse_args(arguments), out, err, connect)
    return code, out.getvalue(), err.getvalue()


def rows(*found: dict[str, Any]) -> dict[str, Any]:
    return {"next": None, "previous": None, "results": list(found)}


def job(job_id: str, state: str, error: str | None = None) -> dict[str, Any]:
    last_error = {"code": error} if error else None
    row = {"job_id": job_id, "document_id": f"d-{job_id}", "stage": "embedded", "state": state, "status": "complete"}
    return {**row, "progress": {"total_pct": 100.0}, "last_error": last_error}


def test_an_export_is_a_whole_file_or_none(tmp_path: Path) -> None:
    file = tmp_path / "data.zip"
    refused = httpx.Response(403, json={"code": "INSUFFICIENT_SCOPE", "detail": "This takes the scope export."})

    with pytest.raises(AccessaError, match="INSUFFICIENT_SCOPE"):
        call("export", str(file), responses={"POST /export": refused})
    assert list(tmp_path.iterdir()) == []
    code, out, _ = call("export", str(file), responses={"POST /export": httpx.Response(200, content=b"PK..")})

    assert (code, out, file.read_bytes()) == (0, f"{file}  4 bytes\n", b"PK..")
    assert list(tmp_path.iterdir()) == [file]
    with pytest.raises(AccessaError, match="cannot be written"):
        call("export", str(tmp_path / "none" / "data.zip"))


@pytest.mark.parametrize("token", ["añadir", "acc_1\n"])
def test_a_token_that_no_header_takes_is_refused_with_a_sentence(token: str) -> None:
    with pytest.raises(AccessaError, match="INVALID_TOKEN"):
        Client("http://127.0.0.1", token)


def test_search_prints_passages_without_control_characters() -> None:
    found = {"passages": [PASSAGE], "laws": [], "records": [], "nearest": []}

    code, out, _ = call("search", "visits", responses={"POST /search": found})

    assert (code, out) == (0, "plan [2J.pdf, p. 3-4\n    40 visits\n    a plan year.\n")


def test_search_for_scripts_is_one_line_of_json() -> None:
    found = {"passages": [PASSAGE], "laws": [], "records": [], "nearest": []}

    code, out, _ = call("search", "visits", "--json", responses={"POST /search": found})

    assert (code, json.loads(out)) == (0, found)
    assert out.count("\n") == 1


def test_nothing_found_has_an_exit_code_of_its_own() -> None:
    nothing: Responses = {"passages": [], "laws": [], "records": [], "nearest": []}
    assert call("search", "x", responses={"POST /search": nothing}) == (4, "", "Not found in your documents.\n")
    unanswered = {"answered": False, "sentences": []}
    assert call("answer", "x", responses={"POST /answer": unanswered}) == (4, "", "Your documents do not say.\n")
    assert call("answer", "x", "--json", responses={"POST /answer": unanswered})[0] == 4


def test_an_answer_names_its_citations_once() -> None:
    answered = {"answered": True, "sentences": [SENTENCE]}

    code, out, _ = call("answer", "How many visits?", responses={"POST /answer": answered})

    assert (code, out) == (0, "40 visits a plan year.\n    [plan.pdf p. 3]\n")


@pytest.mark.parametrize(("state", "error", "code"), [("done", None, 0), ("deadletter", "NOT_A_PDF", 3)])
def test_upload_and_watch_ends_with_the_documents_state(
    state: str, error: str | None, code: int, tmp_path: Path
) -> None:
    (tmp_path / "plan.pdf").write_bytes(b"%PDF")
    declared = {"document_id": "d-1", "job_id": "1", "signed_url": "https://store.example.com/x"}
    responses = {"POST /upload": declared, "PUT /x": {}, "GET /jobs": rows(job("1", state, error))}

    done, out, err = call("upload", str(tmp_path / "plan.pdf"), "--watch", "--json", responses=responses)

    assert done == code
    uploaded, ended = (json.loads(line) for line in out.splitlines())
    assert uploaded == {"filename": "plan.pdf", "document_id": "d-1", "job_id": "1"}
    assert ended == {"job_id": "1", "document_id": "d-1", "state": state, "error": error}
    assert err == f"plan.pdf: {error or 'searchable'}\n"


def test_a_refused_file_does_not_keep_the_others_away(tmp_path: Path) -> None:
    (tmp_path / "plan.pdf").write_bytes(b"%PDF")
    declared = {"document_id": "d-1", "job_id": "1", "signed_url": "https://store.example.com/x"}

    code, out, err = call(
        "upload", str(tmp_path / "none.pdf"), str(tmp_path / "plan.pdf"),
        responses={"POST /upload": declared, "PUT /x": {}},
    )  # fmt: skip

    assert (code, out) == (1, "1  plan.pdf\n")
    assert "none.pdf: FILE_UNREADABLE" in err


def test_watch_without_ids_follows_what_is_active_and_may_have_nothing_to_do() -> None:
    assert call("watch", responses={"GET /jobs": rows()}) == (0, "", "")


def test_a_terminal_gets_one_line_that_is_drawn_over_itself() -> None:
    err = Terminal()
    bar = cli.ProgressBar(err, {"1": "plan.pdf", "2": "other.pdf"})
    half = Job("1", "d", "chunking", "working", "chunking", 50.0)

    bar.show([half])
    bar.close()

    assert err.getvalue() == f"\r\x1b[K[{'#' * 6:<24}]  25 %  0 of 2  plan.pdf: chunking\n"


def test_documents_are_listed_shown_and_deleted() -> None:
    row = {"document_id": "d", "processing_status": "complete", "filename": "plan.pdf"}
    responses = {
        "GET /documents": rows(row), "GET /documents/d": row, "DELETE /documents/d": httpx.Response(204),
    }  # fmt: skip

    assert call("documents", "list", responses=responses)[1] == "d  complete  plan.pdf\n"
    assert "filename: plan.pdf\n" in call("documents", "show", "d", responses=responses)[1]
    assert call("documents", "delete", "d", responses=responses)[1] == "d  deleted\n"


def test_webhooks_are_created_listed_and_deleted() -> None:
    row = {"id": "w", "url": "https://h.example.com/", "events": ["sync.failed"], "enabled": False}
    row |= {"disabled_code": "WEBHOOK_GONE"}
    responses: Responses = {"GET /webhook-endpoints": rows(row), "POST /webhook-endpoints": row | {"secret": "whsec_1"}}
    responses["DELETE /webhook-endpoints/w"] = httpx.Response(204)

    assert "off WEBHOOK_GONE" in call("webhooks", "list", responses=responses)[1]
    assert "whsec_1" in call("webhooks", "create", "https://h.example.com/", responses=responses)[1]
    assert call("webhooks", "delete", "w", responses=responses)[0] == 0


@pytest.mark.parametrize(("forged", "code"), [(False, 0), (True, 5)])
def test_a_webhook_is_verified_from_stdin(
    forged: bool, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    body, at = '{"type":"sync.failed","data":{}}', int(time.time())
    signature = Webhook(SECRET).sign("m", datetime.fromtimestamp(at, UTC), body)
    monkeypatch.setenv("ACCESSA_WEBHOOK_SECRET", SECRET)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((body + " " * forged).encode())))

    done = cli.main(["webhooks", "verify", "--json", "--id", "m", "--timestamp", str(at), "--signature", signature])

    out, err = capsys.readouterr()
    assert done == code
    assert (err if forged else json.loads(out)) == (
        "accessa: The signature does not match.\n" if forged else json.loads(body)
    )


def test_errors_go_to_stderr_with_their_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ACCESSA_TOKEN", raising=False)

    assert cli.main(["documents", "list"]) == 1

    assert capsys.readouterr().err.startswith("accessa: NO_TOKEN: ")


@pytest.mark.parametrize("arguments", [[], ["upload"], ["nothing"], ["search"], ["upload", "x", "--header", "y"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)

    assert ended.value.code == 2


def imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names}


def test_the_package_imports_httpx_and_the_standard_library_only() -> None:
    files = Path(cli.__file__).parent.glob("*.py")

    assert set().union(*map(imported, files)) - sys.stdlib_module_names == {"httpx", "accessa_client"}
