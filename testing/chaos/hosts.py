"""Hosts as network namespaces: three with workers, two with the API behind HAProxy, one database, one S3 server.

Each host has an address, a host name and a small disk of its own, and reaches the database through a relay. As root.
"""

import asyncio
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import boto3
import requests

from accessa.server.supervisor import Child, Program
from testing.chaos.failover import Caller
from testing.chaos.kill_loop import Uploader, check_intake, undisturbed
from testing.chaos.verdict import Verdict, verdict
from testing.chaos.world import ACTIVE, LEASE, ROOT, Snapshot, World, sample_documents
from testing.cluster import MANAGE, wait_until
from testing.ports import free_port

ADDRESS = "10.77.255.1"  # of database, S3 and HAProxy, which stand in the namespace of the test
WORKER_HOSTS, API_HOSTS, WORKERS = ("work1", "work2", "work3"), ("api1", "api2"), 2
API_PORT = 8000
DISK_KB, MAX_FILE_BYTES = 65_536, 2_000_000  # an API process is ready with room for a few files
AT_A_TIME = 24
CUT_SECONDS = 4 * LEASE
HELD_SECONDS = 2 * LEASE
STOP_SECONDS = 60.0
RETRANSMISSION_SECONDS = 0.4  # what a lost segment is late, since the relay cannot lose one
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
# As deploy.md advises: a host that is away answers nothing.
DATABASE_OPTIONS = "connect_timeout=3&tcp_user_timeout=10000&keepalives_idle=5&keepalives_interval=2&keepalives_count=3"
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
IN_NAMESPACE = ("unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"')
HAPROXY = """
global
    stats socket {socket} level admin
defaults
    mode http
    timeout connect 1s
    timeout client 60s
    timeout server 60s
    option redispatch
frontend web
    bind {address}:{port}
    default_backend api
backend api
    option httpchk
    http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host 127.0.0.1
{servers}
"""
HELD = "SELECT claim_token || stage FROM upload_jobs WHERE state = 'working' AND claimed_by LIKE %s"
STILL_HELD = "SELECT count(*) FROM upload_jobs WHERE state = 'working' AND claim_token || stage = ANY(%s)"
DONE = "SELECT count(*) FROM upload_jobs WHERE state = 'done'"


def missing_programs() -> str:
    """Return why no hosts can be made here; empty if they can."""
    if os.geteuid() != 0:
        return "Network namespaces need root."
    missing = [name for name in ("ip", "unshare", "mount", "haproxy") if not shutil.which(name, path=PATH)]
    missing += [] if Path(FAKETIME).exists() else ["libfaketime"]
    return f"Not installed: {', '.join(missing)}." if missing else ""


def run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True)


class Relay:
    """TCP relay from a port to the database's socket, which can delay both directions and be late at random."""

    def __init__(self, loop: asyncio.AbstractEventLoop, target: str) -> None:
        self.target, self.port, self.delay, self.loss = target, free_port(), 0.0, 0.0
        self.dice = random.Random(self.port)
        asyncio.run_coroutine_threadsafe(asyncio.start_server(self._accept, ADDRESS, self.port), loop).result(10)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(self.target)
        await asyncio.gather(self._copy(reader, to_server), self._copy(from_server, writer), return_exceptions=True)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                if self.delay:
                    is_lost = self.dice.random() < self.loss
                    await asyncio.sleep(self.delay / 2 + is_lost * RETRANSMISSION_SECONDS)
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()


class Host:
    """A network namespace with a host name, a disk, a program, and a cable to everybody else."""

    def __init__(self, number: int, name: str, folder: Path, relay: Relay, command: list[str]) -> None:
        self.name, self.relay, self.command = name, relay, command
        self.address, self.gateway = f"10.77.{number}.2", f"10.77.{number}.1"
        self.namespace, self.cable = f"accessa-{name}", f"accessa-{number}"
        self.disk = folder / name
        self.child: Child | None = None
        self.tree = ROOT
        self.is_off = False
        self.clock = ""

    def build(self) -> None:
        self.remove()
        inside = ("ip", "-n", self.namespace)
        run("ip", "netns", "add", self.namespace)
        run("ip", "link", "add", self.cable, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        run("ip", "address", "add", f"{self.gateway}/30", "dev", self.cable)
        run("ip", "link", "set", self.cable, "up")
        run(*inside, "link", "set", "lo", "up")
        run(*inside, "address", "add", f"{self.address}/30", "dev", "eth0")
        run(*inside, "link", "set", "eth0", "up")
        run(*inside, "route", "add", "default", "via", self.gateway)
        self.disk.mkdir(exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", f"size={DISK_KB}k,mode=1777", "tmpfs", self.disk)

    def remove(self) -> None:
        self.kill()
        with suppress(subprocess.CalledProcessError):
            run("umount", "-l", self.disk)
        for command in (("ip", "link", "delete", self.cable), ("ip", "netns", "delete", self.namespace)):
            with suppress(subprocess.CalledProcessError):
                run(*command)

    def start(self, environment: Mapping[str, str]) -> None:
        """Start its program unless it runs or the host is off."""
        if self.is_off or (self.child and self.child.process and self.child.reap() is None):
            return
        own = {"STORAGE_ROOT": str(self.disk / "storage"), "TMPDIR": str(self.disk)}
        if self.clock:
            own |= {"LD_PRELOAD": FAKETIME, "FAKETIME": self.clock, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        command = ["ip", "netns", "exec", self.namespace, *IN_NAMESPACE, self.name, *self.command]
        self.child = Child(Program(self.name, command, self.tree, {**environment, **own}))
        self.child.start()

    def kill(self) -> None:
        """Kill all its processes at once."""
        pids = subprocess.run(["ip", "netns", "pids", self.namespace], capture_output=True, text=True).stdout
        for pid in map(int, pids.split()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.child and self.child.process:
            self.child.process.wait()
            self.child.process = None

    def upgrade(self) -> None:
        """End its program as a supervisor does, and let it be started from this tree."""
        self.is_off = True
        assert self.child
        assert self.child.process
        self.child.terminate()
        self.child.process.wait(STOP_SECONDS)
        self.kill()
        self.tree, self.is_off = ROOT, False

    def cut(self) -> None:
        run("ip", "link", "set", self.cable, "down")

    def reconnect(self) -> None:
        run("ip", "link", "set", self.cable, "up")

    def fill_disk(self) -> None:
        with suppress(OSError), (self.disk / "full").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(65_536))

    def free_disk(self) -> None:
        (self.disk / "full").unlink()


class HostsWorld(World):
    """The product on five hosts, started as docs/operations/deploy.md says."""

    def __init__(self, params: Mapping[str, str], folder: Path, name: str) -> None:
        self.ports = {"s3": free_port(), "proxy": free_port()}
        super().__init__(params, folder, name)
        self.url = f"http://{ADDRESS}:{self.ports['proxy']}"
        self.stack = ExitStack()
        with suppress(subprocess.CalledProcessError):  # it is there already
            run("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
        self.stack.callback(run, "ip", "address", "delete", f"{ADDRESS}/32", "dev", "lo")
        self._start_s3()
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        gunicorn = ["-m", "gunicorn", "accessa.wsgi:application", "-c", "python:accessa.server.gunicorn_conf"]
        api = [sys.executable, *gunicorn, "--bind", f"0.0.0.0:{API_PORT}"]
        (disks := folder / "disks").mkdir(exist_ok=True)
        self.hosts: dict[str, Host] = {}
        for number, host in enumerate((*WORKER_HOSTS, *API_HOSTS), 1):
            relay = Relay(loop, f"{params['host']}/.s.PGSQL.{params['port']}")
            command = api if host in API_HOSTS else [*MANAGE, "qcluster"]
            self.hosts[host] = Host(number, host, disks, relay, command)
            self.stack.callback(self.hosts[host].remove)
            self.hosts[host].build()
        self._start_proxy()

    def _start_s3(self) -> None:
        os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
        os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
        port = self.ports["s3"]
        self._run([sys.executable, "-m", "moto.server", "-H", ADDRESS, "-p", str(port)])
        wait_until(partial(_answers, port), seconds=60)
        s3 = boto3.client("s3", endpoint_url=f"http://{ADDRESS}:{port}", region_name="us-east-1")
        for bucket in ("raw", "parsed"):
            s3.create_bucket(Bucket=bucket)

    def _start_proxy(self) -> None:
        check = "check inter 500ms fall 2 rise 1"
        servers = [f"    server {name} {self.hosts[name].address}:{API_PORT} {check}" for name in API_HOSTS]
        config = self.folder / "haproxy.cfg"
        port, admin = self.ports["proxy"], self.folder / "haproxy.sock"
        config.write_text(HAPROXY.format(address=ADDRESS, port=port, socket=admin, servers="\n".join(servers)))
        self._run([str(shutil.which("haproxy", path=PATH)), "-db", "-f", str(config)])

    def set_proxied(self, host: str, state: str) -> None:
        """Let HAProxy send a host with the API no new requests ("drain"), or all again ("ready")."""
        with socket.socket(socket.AF_UNIX) as admin:
            admin.connect(str(self.folder / "haproxy.sock"))
            admin.sendall(f"set server api/{host} state {state}\n".encode())
            if answer := admin.recv(1000).strip():
                raise RuntimeError(answer.decode())

    def upgrade(self, host: str) -> None:
        """Replace the program of a host as docs/operations/deploy.md says: an API host is drained before it ends."""
        if host in API_HOSTS:
            self.set_proxied(host, "drain")
        self.hosts[host].upgrade()
        apis = [f"http://{self.hosts[api].address}:{API_PORT}" for api in API_HOSTS]
        wait_until(lambda: all(map(_is_ready, apis)), seconds=120)
        if host in API_HOSTS:
            self.set_proxied(host, "ready")

    def _run(self, command: list[str]) -> None:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {
            "WORKERS": str(WORKERS),
            "PUBLIC_URL": f"http://{ADDRESS}:{self.ports['proxy']}",
            "ALLOWED_HOSTS": f"{ADDRESS},127.0.0.1",
            "TRUSTED_PROXIES": "1",
            "MAX_FILE_BYTES": str(MAX_FILE_BYTES),
            "SECRET_KEY": "the-same-on-all-hosts-" * 3,
            "INTEGRATIONS_VAULT_KEYS": "the-same-on-all-hosts-" * 3,
            "STORAGE": "s3",
            "S3_ENDPOINT_URL": f"http://{ADDRESS}:{self.ports['s3']}",
            "S3_ACCESS_KEY_ID": "test",
            "S3_SECRET_ACCESS_KEY": "test",
        }

    def restart_processes(self) -> None:
        for host in self.hosts.values():
            database = f"postgres://{self.params['user']}@{ADDRESS}:{host.relay.port}/{self.name}?{DATABASE_OPTIONS}"
            host.start(self.environment | {"DATABASE_URL": database})

    def close(self) -> None:
        self.stack.close()
        super().close()


def _answers(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex((ADDRESS, port)) == 0


@contextmanager
def killed(host: Host) -> Iterator[None]:
    host.is_off = True
    host.kill()
    yield
    host.is_off = False


@contextmanager
def cut(host: Host) -> Iterator[None]:
    host.cut()
    yield
    time.sleep(max(0.0, CUT_SECONDS - HELD_SECONDS))
    host.reconnect()


@contextmanager
def clock_ahead(host: Host, offset: str = "+10m") -> Iterator[None]:
    host.kill()
    host.clock = offset
    yield
    host.kill()
    host.clock = ""


@contextmanager
def disk_full(host: Host) -> Iterator[None]:
    host.fill_disk()
    yield
    host.free_disk()


@contextmanager
def slow(host: Host) -> Iterator[None]:
    host.relay.delay, host.relay.loss = 0.2, 0.02
    yield
    host.relay.delay, host.relay.loss = 0.0, 0.0


#  fault                         what it does                          times that a worker may lose what it has bought
FAULTS: dict[str, tuple[Callable[[Host], AbstractContextManager[None]], int]] = {
    "host killed": (killed, 1),
    "network cut for four leases": (cut, 1),
    "clock 10 min ahead": (clock_ahead, 2),
    "clock 10 min behind": (partial(clock_ahead, offset="-10m"), 2),
    "disk full": (disk_full, 1),
    "200 ms, 2 % loss": (slow, 1),
}


@dataclass(frozen=True)
class FaultOutcome:
    """``resumed_seconds``: until each job that the host held had moved on: its next stage, another claim, its end."""

    fault: str
    host: str
    held: int
    resumed_seconds: float
    done_meanwhile: int


@dataclass
class HostsReport:
    documents: int = 0
    faults: list[FaultOutcome] = field(default_factory=list)
    seconds: float = 0.0
    seconds_undisturbed: float = 0.0
    verdict: Verdict | None = None

    @property
    def ok(self) -> bool:
        return bool(self.verdict and self.verdict.ok) and all(
            outcome.resumed_seconds <= 2 * LEASE and outcome.done_meanwhile for outcome in self.faults
        )


def trial(params: Mapping[str, str], folder: Path, *, documents: int, seed: int, seconds: float) -> HostsReport:
    """Take ``documents`` or more while each fault happens to a host with workers, the first two to one with the API."""
    report = HostsReport()
    with closing(HostsWorld(params, folder, "hosts")) as world:
        broken = _disturb(world, report, documents=documents, seed=seed, seconds=seconds)
    with closing(World(params, folder, "calm")) as world:
        calm = undisturbed(world, taken=broken.taken, seed=seed, seconds=seconds)
    report.documents, report.seconds_undisturbed = broken.taken, calm.seconds
    report.verdict = verdict(broken, calm)
    return report


def _disturb(world: HostsWorld, report: HostsReport, *, documents: int, seed: int, seconds: float) -> Snapshot:
    began = time.monotonic()
    intake = Uploader(world, sample_documents(seed), at_a_time=AT_A_TIME)
    supervisor = Supervision(world)
    supervisor.start()
    world.stack.callback(supervisor.end)
    wait_until(lambda: _is_ready(world.url), seconds=120)
    intake.start()
    kills: Counter[str] = Counter()
    faults = [(name, host) for host in ("work1", "api1") for name in list(FAULTS)[: 2 if host == "api1" else None]]
    for name, host in faults:
        _await_progress(world, intake, began + seconds)
        report.faults.append(outcome := _strike(world, name, world.hosts[host]))
        print(outcome, file=sys.stderr)
        kills["worker"] += FAULTS[name][1] * WORKERS * (host in WORKER_HOSTS)
    _drain(world, intake, documents, began + seconds)
    supervisor.end()
    report.seconds = time.monotonic() - began
    snapshot = world.snapshot()
    snapshot.taken, snapshot.kills, snapshot.expected = intake.taken, kills, ()
    return snapshot


@dataclass
class UpgradeReport:
    """``answers`` to a member who calls all the time; ``refused``: connections."""

    documents: int
    upgraded: list[str]
    answers: Mapping[str, int]
    refused: int
    verdict: Verdict

    @property
    def ok(self) -> bool:
        return self.verdict.ok and not self.verdict.dead and not self.refused and set(self.answers) == {"200"}


def upgrade(
    params: Mapping[str, str], folder: Path, release: Path, *, documents: int, seed: int, seconds: float
) -> UpgradeReport:
    """Replace the program of the tree ``release`` host by host by this one while ``documents`` or more are taken."""
    with closing(HostsWorld(params, folder, "upgraded")) as world:
        for host in world.hosts.values():
            host.tree = release
        began, upgraded = time.monotonic(), []
        intake, caller = Uploader(world, sample_documents(seed), at_a_time=AT_A_TIME), Caller(world)
        supervisor = Supervision(world)
        supervisor.start()
        world.stack.callback(supervisor.end)
        wait_until(lambda: _is_ready(world.url), seconds=120)
        intake.start()
        caller.start()
        for name in ("work1", "api1", "work2", "api2", "work3"):
            _await_progress(world, intake, began + seconds)
            world.upgrade(name)
            upgraded.append(name)
        _drain(world, intake, documents, began + seconds)
        caller.ended.set()
        caller.join()
        supervisor.end()
        broken = world.snapshot()
        broken.taken, broken.expected = intake.taken, ()
    with closing(World(params, folder, "calm")) as world:
        calm = undisturbed(world, taken=broken.taken, seed=seed, seconds=seconds)
    answers = dict(Counter(caller.outcomes()))
    return UpgradeReport(broken.taken, upgraded, answers, caller.refused, verdict(broken, calm))


def _drain(world: World, intake: Uploader, documents: int, deadline: float) -> None:
    """Take documents until there are enough, then let the work end."""
    while intake.is_alive() or world.value(ACTIVE):
        if intake.taken >= documents:
            intake.enough.set()
        check_intake(intake, deadline)
        time.sleep(0.1)


class Supervision(threading.Thread):
    """Starts what has died, on each host that is not off."""

    def __init__(self, world: World) -> None:
        super().__init__(daemon=True)
        self.world, self.ended = world, threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.2):
            self.world.restart_processes()

    def end(self) -> None:
        self.ended.set()
        self.join()


def _await_progress(world: World, intake: Uploader, deadline: float, *, documents: int = 5) -> None:
    done = world.value(DONE)
    while world.value(DONE) < done + documents:
        check_intake(intake, deadline)
        time.sleep(0.05)


def _strike(world: HostsWorld, name: str, host: Host) -> FaultOutcome:
    """Let a fault happen to a host that holds jobs, if it is one that may; measure until nothing waits for it."""
    if host.name in WORKER_HOSTS:
        wait_until(lambda: world.database.execute(HELD, [f"{host.name}:%"]).fetchall(), seconds=60)
    with FAULTS[name][0](host):
        held = [each for (each,) in world.database.execute(HELD, [f"{host.name}:%"])]
        began, done = time.monotonic(), world.value(DONE)
        while world.value(STILL_HELD, held):
            time.sleep(0.02)
        resumed = time.monotonic() - began
        time.sleep(max(0.0, HELD_SECONDS - resumed))
        wait_until(lambda: world.value(DONE) > done, seconds=60)
    return FaultOutcome(name, host.name, len(held), resumed, world.value(DONE) - done)


def _is_ready(url: str) -> bool:
    with suppress(requests.RequestException):
        return requests.get(f"{url}/readyz", headers={"Host": "127.0.0.1"}, timeout=5).ok
    return False
