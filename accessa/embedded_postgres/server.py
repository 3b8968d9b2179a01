"""EmbeddedServer: start, stop and crash recovery of the PostgreSQL of one data directory, shared by all processes."""

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import psutil

from accessa.embedded_postgres import data_directory, installation, os_user, roles_and_extensions
from accessa.embedded_postgres.installation import EmbeddedError

STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
START_SECONDS = 120  # recovery after a power cut replays the log first
MAX_LOG_BYTES = 10_000_000


def default_data() -> Path:
    """`var/postgres` in the repository, or under ACCESSA_VAR."""
    var = os.environ.get("ACCESSA_VAR") or Path(__file__).resolve().parents[2] / "var"
    return Path(var) / "postgres"


class EmbeddedServer:
    def __init__(self, data: Path | None = None) -> None:
        self.data = (data or default_data()).resolve()
        self.log = self.data.with_name(self.data.name + ".log")
        self.socket_folder = data_directory.socket_folder(self.data)

    @property
    def is_running(self) -> bool:
        """Tell whether it accepts connections and is bootstrapped. Takes about 0.1 ms."""
        postmaster = self._postmaster()
        return postmaster is not None and postmaster[1] == "ready" and roles_and_extensions.is_done(self.data)

    def params(self, database: str = roles_and_extensions.DATABASE) -> dict[str, str]:
        return {"host": str(self.socket_folder), "port": "5432", "user": roles_and_extensions.OWNER, "dbname": database}

    def ensure_running(self) -> bool:
        """Start it unless it runs; return whether this call did. Raises EmbeddedError."""
        if self.is_running:
            return False
        with self._lock():
            started = self._ready_process() is None
            if started:
                self._start()
            if not roles_and_extensions.is_done(self.data):
                roles_and_extensions.prepare(self.socket_folder)
                os_user.account_for(self.data).write(self.data / "accessa.bootstrap", roles_and_extensions.VERSION)
        return started

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast", timeout: float = 60) -> bool:
        if not self.data.exists():
            return False
        with self._lock():
            process = self._ready_process()
            if process is None:
                return False
            process.send_signal(STOP_SIGNALS[mode])
            deadline = time.monotonic() + timeout
            while self._is_own_process(process):
                if time.monotonic() > deadline:
                    raise EmbeddedError(f"PostgreSQL (process {process.pid}) is still stopping.")
                time.sleep(0.01)
            if self.socket_folder != self.data:
                self.socket_folder.rmdir()
        return True

    def _postmaster(self) -> tuple[psutil.Process, str] | None:
        """Return the server process of this data and its status, from postmaster.pid."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            process = psutil.Process(abs(int(lines[0])))
            # A number in a file left by a power cut may be anybody's by now.
            if not self._is_own_process(process):
                return None
        except PermissionError:
            raise EmbeddedError(f"{self.data} belongs to another user: run as that user, or remove it.") from None
        except (FileNotFoundError, IndexError, ValueError, psutil.NoSuchProcess):
            return None
        return process, lines[7].strip() if len(lines) > 7 else "starting"

    def _is_own_process(self, process: psutil.Process) -> bool:
        try:
            return str(self.data) in process.cmdline()  # a zombie has none
        except psutil.NoSuchProcess:
            return False

    def _ready_process(self) -> psutil.Process | None:
        deadline = time.monotonic() + START_SECONDS
        while postmaster := self._postmaster():
            process, status = postmaster
            if status == "ready":
                return process
            if time.monotonic() > deadline:
                raise EmbeddedError(f"PostgreSQL (process {process.pid}) has been {status} for {START_SECONDS} s.")
            time.sleep(0.05)
        return None

    def _start(self) -> None:
        user = os_user.account_for(self.data)
        user.let_execute(installation.binaries().parent)
        user.let_reach(self.data)
        if not (self.data / "PG_VERSION").exists():
            data_directory.create(self.data, user, self.log)
        self._clean_up_crash()
        data_directory.configure(self.data, user)
        data_directory.open_socket_folder(self.data, user)
        try:
            with self.log.open("ab") as output:
                user.run("pg_ctl", "-D", str(self.data), "-w", "-t", str(START_SECONDS), "start", output=output)
        except subprocess.CalledProcessError as error:
            last = "\n".join(self.log.read_text(errors="replace").splitlines()[-8:])
            raise EmbeddedError(f"PostgreSQL did not start. The end of {self.log}:\n{last}") from error

    def _clean_up_crash(self) -> None:
        """Kill the backends of a killed server and remove its lock files, whose pid may be another's by now."""
        title = f"postgres: {data_directory.cluster_name(self.data)}: "
        orphans = [p for p in psutil.process_iter(["cmdline"]) if (p.info["cmdline"] or [""])[0].startswith(title)]
        for orphan in orphans:
            with suppress(psutil.NoSuchProcess):  # it has ended by itself
                orphan.kill()
        while not all(_is_dead(orphan) for orphan in orphans):
            time.sleep(0.01)
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        (self.socket_folder / ".s.PGSQL.5432.lock").unlink(missing_ok=True)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        try:
            self.data.parent.mkdir(exist_ok=True)
            descriptor = os.open(self.data.with_name(self.data.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except PermissionError:
            raise EmbeddedError(f"{self.data.parent} belongs to another user: run as that user.") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if self.log.exists() and self.log.stat().st_size > MAX_LOG_BYTES:
                self.log.replace(self.log.with_name(self.log.name + ".1"))
            yield
        finally:
            os.close(descriptor)


def _is_dead(process: psutil.Process) -> bool:
    """Count zombies as dead: a container's PID 1 may reap them late or never."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
