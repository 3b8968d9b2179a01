"""CPU times of a process tree, and what is made of them: an overloaded job, a cluster that only seems to hang."""

import os
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from jobs import claims
from jobs.claim_batches import ClaimBatch
from jobs.cluster import cpu_meter, heartbeat, maintenance, shared_state
from jobs.cluster.cpu_meter import CpuMeter
from jobs.cluster.heartbeat import Lease
from jobs.models import UploadJob
from testing.factories import JobFactory

LONG = 3_600_000_000_000  # ns: an hour, longer than any test lasts


class FakeProc:
    """A ``/proc`` with this process and children of it, as Linux writes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.set_times()

    def set_times(self, ran: int = 0, waited: int = 0, *, pid: int | None = None, children: str = "") -> None:
        name = str(pid or os.getpid())
        thread = self.folder / name / "task" / name
        thread.mkdir(parents=True, exist_ok=True)
        (thread / "schedstat").write_text(f"{ran} {waited} 7\n")
        (thread / "children").write_text(children)


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProc:
    monkeypatch.setattr(cpu_meter, "PROC", tmp_path)
    return FakeProc(tmp_path)


@pytest.fixture
def meter(proc: FakeProc) -> CpuMeter:
    meter = CpuMeter()
    meter.restart()
    return meter


@pytest.mark.parametrize(
    ("ran", "waited", "overloaded"),
    [
        (0, LONG, True),
        (0, 0, False),  # asleep, or waiting for a vendor
        (LONG, 2 * LONG, False),  # more threads than cores: it got more than half a core
    ],
)
def test_a_process_is_overloaded_that_wants_a_core_and_gets_less_than_half(
    ran: int, waited: int, overloaded: bool, meter: CpuMeter, proc: FakeProc
) -> None:
    proc.set_times(ran, waited)

    meter.sample()

    assert meter.is_overloaded() == overloaded


def test_children_are_included_and_may_die(meter: CpuMeter, proc: FakeProc) -> None:
    proc.set_times(children="101 ")
    proc.set_times(pid=101, children="102 ")
    proc.set_times(0, LONG, pid=102)
    meter.sample()
    proc.set_times(children="")

    meter.sample()

    assert meter.is_overloaded()
    meter.restart()
    meter.sample()
    assert not meter.is_overloaded()


def test_what_happened_before_the_restart_does_not_count(proc: FakeProc) -> None:
    proc.set_times(0, LONG)
    meter = CpuMeter()

    meter.restart()
    meter.sample()

    assert not meter.is_overloaded()


def test_without_scheduler_statistics_nothing_is_overloaded(meter: CpuMeter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_meter, "PROC", Path("/nowhere"))

    meter.sample()

    assert not meter.is_overloaded()


def test_this_kernel_counts_the_time_that_this_process_runs() -> None:
    meter = CpuMeter()
    meter.restart()

    sum(range(1_000_000))

    times = dict(cpu_meter._thread_times(os.getpid()))
    assert times[os.getpid()][0] > 0


@pytest.mark.django_db
def test_the_heartbeat_writes_overload_with_the_lease(
    ana: UUID, meter: CpuMeter, proc: FakeProc, settings: Any
) -> None:
    heartbeat.CPU.restart()
    job = JobFactory.create(user_id=ana, pipeline="noop")
    claim = claims.claim_next("w")
    assert claim is not None
    proc.set_times(0, LONG)
    heartbeat.CPU.sample()

    Lease(claim, ClaimBatch()).extend()
    overloaded = UploadJob.objects.get(pk=job.pk).overloaded
    Lease(claim, ClaimBatch()).extend()  # nothing has been waited for since

    assert overloaded
    assert not UploadJob.objects.get(pk=job.pk).overloaded


@pytest.mark.django_db
@pytest.mark.parametrize(("idle", "waited", "killed"), [(4.0, 0, 1), (4.0, LONG, 0), (31.0, LONG, 1)])
def test_a_cluster_that_waits_for_a_core_does_not_hang_yet(
    idle: float, waited: int, killed: int, proc: FakeProc, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.JOBS_HANG_SECONDS = 3.0
    kills: list[None] = []
    monkeypatch.setattr(maintenance, "kill_cluster", lambda: kills.append(None))
    monkeypatch.setattr(shared_state, "seconds_since_claim_attempt", lambda: idle)
    JobFactory.create(pipeline="noop")
    loop = maintenance.MaintenanceLoop()
    loop._kill_hanging_cluster(is_due=True)
    proc.set_times(0, waited)
    loop._due_since = -10.0  # long ago

    loop._kill_hanging_cluster(is_due=True)

    assert len(kills) == killed
