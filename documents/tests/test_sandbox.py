"""The sandbox: the child is limited, the fork server is replaceable, and both die with the worker."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from documents.parsers import pdf_parser
from documents.parsers.sandbox.client import CPU_SECONDS, MEMORY_MB, ROOT, pdf_sandbox
from jobs.outcomes import Permanent, Retryable, StageFailure
from testing import pdf_bombs
from testing.pdfs import SavePdf, build_pdf, content_stream, page_objects, text_operators, text_pdf

WHOLE = text_pdf("hello world")


def parses_hello(path: Path) -> bool:
    return pdf_parser.parse_pdf(path, pages=1).markdown == ["hello world"]


# What is capped


def sandbox_failure(path: Path, **limits: int) -> StageFailure:
    with pytest.raises(StageFailure) as failure:
        pdf_sandbox.request({"ask": "parse", "path": str(path), **limits}, wall_seconds=20)
    return failure.value


def test_the_memory_limit_is_the_childs(save_pdf: SavePdf) -> None:
    path = save_pdf(pdf_bombs.one_page(content_stream(pdf_bombs.deflated(64 << 20, 1), b"/Filter /FlateDecode")))

    failure = sandbox_failure(path, memory_mb=160)

    assert isinstance(failure, Permanent)
    assert failure.code == "PARSER_OUT_OF_MEMORY"
    assert pdf_parser.parse_pdf(path, pages=1).markdown == [""]


def test_too_much_text_is_not_handed_to_the_worker(save_pdf: SavePdf) -> None:
    failure = sandbox_failure(save_pdf(text_pdf("more than ten bytes")), answer_bytes=10)

    assert isinstance(failure, Permanent)
    assert failure.code == "PARSER_OUT_OF_MEMORY"


@pytest.mark.slow
def test_computing_time_that_runs_out_is_final(save_pdf: SavePdf) -> None:
    failure = sandbox_failure(save_pdf(pdf_bombs.much_text()), cpu_seconds=1, memory_mb=4096)

    assert isinstance(failure, Permanent)
    assert failure.code == "PARSE_TIMEOUT"


def test_a_missed_deadline_is_worth_another_try(save_pdf: SavePdf) -> None:
    path = save_pdf(pdf_bombs.much_text())

    with pytest.raises(Retryable) as failure:
        pdf_sandbox.request({"ask": "parse", "path": str(path)}, wall_seconds=0.3)

    assert failure.value.code == "PARSE_TIMEOUT"
    assert parses_hello(save_pdf(WHOLE))


def test_the_child_can_open_neither_file_nor_socket_once_it_reads_pages(save_pdf: SavePdf) -> None:
    code = "import sys, socket; from documents.parsers.pdf_fork_server import respond\n"
    code += "respond({'ask': 'parse', 'path': sys.argv[1]}); socket.socket()"

    run = subprocess.run([sys.executable, "-c", code, str(save_pdf(WHOLE))], cwd=ROOT, capture_output=True, text=True)

    assert "Too many open files" in run.stderr


def test_active_content_is_neither_run_nor_fetched(save_pdf: SavePdf) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = b"(http://127.0.0.1:%d/)" % server.getsockname()[1]
        script = b"<< /S /JavaScript /JS (app.launchURL\\(%s\\)) >>" % url.strip(b"()")
        catalog = b"/OpenAction %s /AA << /WC << /S /Launch /F (/bin/touch) >> >>" % script
        outside = b"<< /Length 0 /F << /FS /URL /F %s >> >>\nstream\n\nendstream" % url
        page = b"/AA << /O << /S /URI /URI %s >> >>" % url
        path = save_pdf(
            build_pdf(page_objects([content_stream(text_operators("harmless")), outside], page=page, catalog=catalog))
        )

        assert pdf_parser.parse_pdf(path, pages=2).markdown == ["harmless", ""]
        with pytest.raises(BlockingIOError):
            server.accept()


# What survives


def only_child(process: int, *, after: int = 0) -> int:
    """Wait for the fork server to fork, once more ``after`` an earlier child."""
    children = Path(f"/proc/{process}/task/{process}/children")
    until = time.monotonic() + 10
    while not (pids := set(map(int, children.read_text().split())) - {after}):
        assert time.monotonic() < until
        time.sleep(0.001)
    return pids.pop()


def has_ended(process: int) -> bool:
    until = time.monotonic() + 5  # well before the CPU limit would end it anyway
    while time.monotonic() < until:
        with contextlib.suppress(FileNotFoundError):
            if Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                time.sleep(0.01)
                continue
        return True
    return False


@contextlib.contextmanager
def background_parse(path: Path) -> Iterator[list[StageFailure | pdf_parser.ParsedPdf]]:
    """Run a parse in another thread until the block ends."""
    results: list[StageFailure | pdf_parser.ParsedPdf] = []

    def parse() -> None:
        try:
            results.append(pdf_parser.parse_pdf(path, pages=1))
        except StageFailure as failure:
            results.append(failure)

    thread = threading.Thread(target=parse)
    thread.start()
    try:
        yield results
    finally:
        thread.join()  # a parse has a time limit


def fork_server_pid() -> int:
    assert pdf_sandbox._process is not None
    return pdf_sandbox._process.pid


@pytest.mark.parametrize("victim", ["child", "zygote"])
def test_a_parser_killed_midway_costs_an_attempt_and_nothing_else(save_pdf: SavePdf, victim: str) -> None:
    path = save_pdf(pdf_bombs.much_text())
    pdf_parser.inspect_pdf(path)
    mother = fork_server_pid()

    with background_parse(path) as results:
        child = only_child(mother)
        os.kill(child if victim == "child" else mother, signal.SIGKILL)

    assert is_crash(results)
    assert has_ended(child)
    assert parses_hello(save_pdf(WHOLE))


def is_crash(results: list[StageFailure | pdf_parser.ParsedPdf]) -> bool:
    (failure,) = results
    return isinstance(failure, Retryable) and failure.code == "PARSER_CRASHED"


@pytest.mark.parametrize("fault", [signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGTRAP])
def test_a_document_that_crashes_the_first_engine_is_read_by_the_others(save_pdf: SavePdf, fault: int) -> None:
    path = save_pdf(text_pdf(*[f"page {number}" for number in range(200)]))
    pdf_parser.inspect_pdf(path)

    with background_parse(path) as results:
        os.kill(only_child(fork_server_pid()), fault)

    (parsed,) = results
    assert isinstance(parsed, pdf_parser.ParsedPdf)
    assert parsed.markdown == [f"page {number}" for number in range(200)]
    assert not parsed.has_layout
    assert pdf_parser.parse_pdf(path, pages=200).has_layout


def test_a_document_that_crashes_every_engine_costs_an_attempt(save_pdf: SavePdf) -> None:
    path = save_pdf(pdf_bombs.much_text())
    pdf_parser.inspect_pdf(path)
    mother = fork_server_pid()

    with background_parse(path) as results:
        first = only_child(mother)
        os.kill(first, signal.SIGSEGV)
        os.kill(only_child(mother, after=first), signal.SIGSEGV)

    assert is_crash(results)
    assert fork_server_pid() == mother
    assert parses_hello(save_pdf(WHOLE))


def test_an_idle_fork_server_that_died_is_restarted(save_pdf: SavePdf) -> None:
    path = save_pdf(WHOLE)
    pdf_parser.inspect_pdf(path)
    os.kill(fork_server_pid(), signal.SIGKILL)
    # /proc calls it a zombie before the last of its threads is gone, when it cannot be waited for yet.
    os.waitid(os.P_PID, fork_server_pid(), os.WEXITED | os.WNOWAIT)

    assert parses_hello(path)


def test_fork_server_and_child_die_with_the_worker(save_pdf: SavePdf) -> None:
    path = save_pdf(pdf_bombs.much_text())
    code = (
        "import sys, pathlib; from documents.parsers import pdf_parser; path = pathlib.Path(sys.argv[1])\n"
        "pdf_parser.inspect_pdf(path); print(pdf_parser.pdf_sandbox._process.pid, flush=True)\n"
        "pdf_parser.parse_pdf(path, pages=1)"
    )
    worker = subprocess.Popen([sys.executable, "-c", code, str(path)], cwd=ROOT, stdout=subprocess.PIPE)
    assert worker.stdout is not None
    with worker.stdout:
        mother = int(worker.stdout.readline())
        child = only_child(mother)

        worker.kill()
        worker.wait()

    assert has_ended(child)
    assert has_ended(mother)


def test_a_forked_worker_starts_its_own_fork_server(save_pdf: SavePdf) -> None:
    path = save_pdf(WHOLE)
    pdf_parser.inspect_pdf(path)
    mother = fork_server_pid()

    fork = os.fork()
    if fork == 0:
        fresh = pdf_sandbox._process is None and parses_hello(path) and fork_server_pid() != mother
        pdf_sandbox.close()
        os._exit(0 if fresh else 1)

    assert os.waitpid(fork, 0)[1] == 0
    assert parses_hello(path)
    assert fork_server_pid() == mother


def test_threads_share_one_fork_server(save_pdf: SavePdf) -> None:
    path = save_pdf(text_pdf("shared"))
    pages: list[list[str]] = []
    threads = [
        threading.Thread(target=lambda: pages.append(pdf_parser.parse_pdf(path, pages=1).markdown)) for _ in range(4)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert pages == [["shared"]] * 4


def test_signals_for_the_workers_group_spare_the_parser(save_pdf: SavePdf) -> None:
    pdf_parser.inspect_pdf(save_pdf(WHOLE))

    assert os.getpgid(fork_server_pid()) == fork_server_pid() != os.getpgid(0)


def test_the_child_knows_no_secrets_and_no_django(save_pdf: SavePdf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SECRET_KEY", "do not tell")
    pdf_sandbox.close()
    pdf_parser.inspect_pdf(save_pdf(WHOLE))

    assert b"do not tell" not in Path(f"/proc/{fork_server_pid()}/environ").read_bytes()
    code = "import sys, documents.parsers.pdf_fork_server; sys.exit('django' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_worker_leaks_no_descriptor(save_pdf: SavePdf) -> None:
    path = save_pdf(WHOLE)
    parses_hello(path)
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(5):
        parses_hello(path)
        pdf_sandbox.close()
    parses_hello(path)

    assert len(os.listdir("/proc/self/fd")) == before


def test_the_limits_are_those_that_were_measured() -> None:
    assert (MEMORY_MB, CPU_SECONDS) == (768, 25)
