"""Supervisor and pidfile, with small programs."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from accessa.server import pidfile, supervisor
from accessa.server.supervisor import Child, Program, Supervisor

REPOSITORY = Path(__file__).resolve().parents[2]
SLEEPER = "import time; time.sleep(600)"
DEAF = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""
START_ANOTHER = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', sys.argv[1]]); time.sleep(600)"
LEAVES_A_NOTE = """
import pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path(sys.argv[1]).touch(), sys.exit()))
if sys.argv[2:]:
    subprocess.Popen([sys.executable, "-c", sys.argv[2], sys.argv[1] + "-grandchild"])
else:
    pathlib.Path(sys.argv[1] + "-ready").touch()
time.sleep(600)
"""
HOLDS_A_PIDFILE = """
import pathlib, sys, time
from accessa.server import pidfile
with pidfile.lock_pidfile(pathlib.Path(sys.argv[1])):
    print(1, flush=True)
    time.sleep(600)
"""
SERVE_SLEEPERS = f"""
import sys
from accessa.server.supervisor import Program, Supervisor
sleeper = [sys.executable, "-c", {SLEEPER!r}]
supervisor = Supervisor([Program("one", sleeper), Program("two", sleeper)])
def tell():
    print(*[child.process.pid for child in supervisor.children], flush=True)
    return True
supervisor.run(when_up=tell)
"""


def python(code: str, *arguments: str, name: str = "it") -> Program:
    return Program(name, [sys.executable, "-c", code, *arguments])


def tick_until(runner: Supervisor, true: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        runner.tick()
        time.sleep(0.02)


def gone(process: int) -> bool:
    try:
        return bool(psutil.Process(process).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def wait_until(true: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def number(child: Child) -> int:
    assert child.process is not None
    return child.process.pid


def test_a_killed_program_is_back_within_a_second() -> None:
    reports: list[str] = []
    runner = Supervisor([python(SLEEPER)], report=reports.append)
    runner.tick()
    first = number(runner.children[0])

    os.kill(first, signal.SIGKILL)
    began = time.monotonic()
    tick_until(runner, lambda: runner.children[0].process is not None and number(runner.children[0]) != first)

    assert time.monotonic() - began < 5
    assert reports == ["it ended (killed by SIGKILL); starting again in 0.5 s"]
    runner.stop()


def test_child_processes_of_a_dead_program_are_killed() -> None:
    runner = Supervisor([python(START_ANOTHER, SLEEPER)], report=lambda line: None)
    runner.tick()
    main = psutil.Process(number(runner.children[0]))
    wait_until(lambda: bool(main.children()))
    orphan = main.children()[0].pid

    main.kill()
    tick_until(runner, lambda: gone(orphan))

    runner.stop()


def test_a_program_that_keeps_dying_young_is_started_ever_more_rarely() -> None:
    child = Child(python("raise SystemExit(3)"))
    child.started_at = time.monotonic()

    waits = [child.schedule_restart() for _ in range(9)]

    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_a_program_that_ran_a_while_is_started_at_once_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "SETTLED_SECONDS", 0)
    child = Child(python(SLEEPER))
    child.deaths_in_a_row = 6

    assert child.schedule_restart() == 0.5


def test_stop_terminates_all_and_kills_unresponsive_programs(tmp_path: Path) -> None:
    reports: list[str] = []
    ready = tmp_path / "ready"
    deaf = python(DEAF, str(ready), name="deaf")
    runner = Supervisor([python(SLEEPER), deaf], stop_seconds=0.5, report=reports.append)
    runner.tick()
    numbers = [number(child) for child in runner.children]
    wait_until(ready.exists)

    began = time.monotonic()
    runner.stop()

    assert time.monotonic() - began < 5
    assert all(gone(process) for process in numbers)
    assert reports == ["deaf did not stop within 0.5 s and was killed"]


def test_sigterm_goes_to_the_main_process_only(tmp_path: Path) -> None:
    note = tmp_path / "note"
    runner = Supervisor([python(LEAVES_A_NOTE, str(note), LEAVES_A_NOTE)], report=lambda line: None)
    runner.tick()
    wait_until((tmp_path / "note-grandchild-ready").exists)

    runner.stop()

    assert note.exists()
    assert not (tmp_path / "note-grandchild").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_everything(number: signal.Signals) -> None:
    running = subprocess.Popen([sys.executable, "-c", SERVE_SLEEPERS], cwd=REPOSITORY, text=True, stdout=-1)
    assert running.stdout
    programs = [int(word) for word in running.stdout.readline().split()]

    running.send_signal(number)

    assert running.wait(30) == 0
    running.stdout.close()
    assert len(programs) == 2
    assert all(gone(program) for program in programs)


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux")
def test_programs_do_not_outlive_a_killed_supervisor() -> None:
    running = subprocess.Popen([sys.executable, "-c", SERVE_SLEEPERS], cwd=REPOSITORY, text=True, stdout=-1)
    assert running.stdout
    programs = [int(word) for word in running.stdout.readline().split()]

    running.kill()
    running.communicate()

    wait_until(lambda: all(gone(program) for program in programs))


def test_a_held_pidfile_names_its_holder_and_refuses_a_second(tmp_path: Path) -> None:
    path = tmp_path / "serve.pid"

    with pidfile.lock_pidfile(path):
        assert pidfile.read_pid(path) == os.getpid()
        with pytest.raises(pidfile.AlreadyRunning, match=str(os.getpid())), pidfile.lock_pidfile(path):
            pass

    assert pidfile.read_pid(path) is None


def test_a_pidfile_of_a_crashed_process_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "serve.pid"
    path.write_text(str(os.getpid()))

    assert not pidfile.stop_process(path, timeout=1)
    with pidfile.lock_pidfile(path):
        assert pidfile.read_pid(path) == os.getpid()


def test_stopping_by_pidfile_waits_for_the_end(tmp_path: Path) -> None:
    path = tmp_path / "serve.pid"
    command = [sys.executable, "-c", HOLDS_A_PIDFILE, str(path)]
    holder = subprocess.Popen(command, cwd=REPOSITORY, text=True, stdout=-1)
    assert holder.stdout
    holder.stdout.readline()

    assert pidfile.stop_process(path, timeout=10)

    assert holder.wait(5) == -signal.SIGTERM
    holder.stdout.close()
