"""Kill loop of the pipeline: documents processed under SIGKILL, then the same ones undisturbed, for comparison.

Everything is real: the API under gunicorn, `qcluster`, PostgreSQL, SIGKILL. The disturbed run comes first and takes
documents until every death has been died; the undisturbed run then takes the same ones.
"""

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import psutil

from testing.chaos.world import (
    ACTIVE,
    AT_A_TIME,
    DECK,
    LAST_TRY,
    USERS,
    WORKERS,
    SampleDocument,
    Snapshot,
    World,
    sample_documents,
    world,
)


class Uploader(threading.Thread):
    """Uploads one document after the other, as long as it may and no more than the workers keep up with."""

    def __init__(self, world: World, pile: Iterator[SampleDocument], *, at_a_time: int) -> None:
        super().__init__(daemon=True)
        self.world, self.pile, self.at_a_time = world, pile, at_a_time
        self.enough = threading.Event()
        self.taken = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.world.subscribe()
            for paper in self.pile:
                while not self.enough.is_set() and self.world.value(ACTIVE) >= self.at_a_time:
                    time.sleep(0.05)
                if self.enough.is_set():
                    return
                self.world.upload(paper)
                self.taken += 1
        except BaseException as failure:
            self.failure = failure


class Killer:
    """Deaths at the named points, each ``rounds`` times, and ``extra`` at random moments."""

    def __init__(self, world: World, *, rounds: int, extra: int, dice: random.Random) -> None:
        self.world, self.dice = world, dice
        self.rounds, self.extra = rounds, extra
        self.kills: Counter[str] = Counter()
        self.round = 0
        self.next_at = time.monotonic() + 4.0

    @property
    def satisfied(self) -> bool:
        return not self.extra and self.round == self.rounds and not self._left()

    def _left(self) -> list[Path]:
        return list(self.world.armed.glob("*~*"))

    def tick(self) -> None:
        if self.round < self.rounds and not self._left():
            self.round += 1
            for point in self.world.points:
                (self.world.armed / f"{point}~{self.round}").touch()
        if self.world.queues:
            self.world.queues.feed()
        if self.extra and time.monotonic() > self.next_at and not self.world.value(LAST_TRY):
            self.extra -= self._kill_process()
            self.next_at = time.monotonic() + self.dice.uniform(0.5, 2.5)

    def _kill_process(self) -> bool:
        kind = DECK[self.kills.total() % len(DECK)]
        child = self.world.web if kind == "web" else self.world.cluster
        if child.process is None:
            return False
        with suppress(psutil.NoSuchProcess):
            main = psutil.Process(child.process.pid)
            below = main.children(recursive=True)
            if not below:
                return False  # it is only just starting
            # Below a cluster's main process is django-q2's guard: when either dies, so does everybody.
            whom = {"worker": below[1:], "cluster": [main, below[0]], "web": [main, *below]}[kind]
            self.dice.choice(whom or [main]).send_signal(signal.SIGKILL)
            self.kills[kind] += 1
            return True
        return False

    def points(self) -> Counter[str]:
        return Counter(path.name.partition(".")[0] for path in self.world.armed.glob("*.*.*"))


def disturbed(here: World, *, rounds: int, extra: int, seed: int, seconds: float) -> Snapshot:
    """Take documents, and kill, until every death has been died; then let the work end."""
    killer = Killer(here, rounds=rounds, extra=extra, dice=random.Random(seed))
    intake = Uploader(here, sample_documents(seed), at_a_time=AT_A_TIME)
    began, overdue = time.monotonic(), 0.0
    deadline = began + seconds
    here.restart_processes()
    intake.start()
    while intake.is_alive() or here.has_work() or not (here.queues is None or here.queues.is_idle()):
        here.restart_processes()
        killer.tick()
        if killer.satisfied:
            intake.enough.set()
        overdue = max(overdue, here.overdue_seconds())
        check_intake(intake, deadline)
        time.sleep(0.05)
    ended = time.monotonic() - began
    snapshot = here.snapshot()
    snapshot.seconds, snapshot.kills, snapshot.points, snapshot.overdue = ended, killer.kills, killer.points(), overdue
    snapshot.taken = intake.taken
    deaths = killer.points()["outbox:claimed"] + killer.points()["outbox:sent"] + killer.kills["worker"]
    # A worker sends a message of each user at once.
    snapshot.deliveries.received_again_bound = USERS * (deaths + WORKERS * killer.kills["cluster"])
    return snapshot


def undisturbed(here: World, *, taken: int, seed: int, seconds: float) -> Snapshot:
    intake = Uploader(here, islice(sample_documents(seed), taken), at_a_time=1000)
    began = time.monotonic()
    here.restart_processes()
    intake.start()
    while intake.is_alive() or here.has_work():
        here.restart_processes()  # a cluster that is too slow ends itself
        check_intake(intake, began + seconds)
        time.sleep(0.1)
    ended = time.monotonic() - began
    snapshot = here.snapshot()
    snapshot.seconds, snapshot.taken = ended, intake.taken
    return snapshot


def check_intake(intake: Uploader, deadline: float) -> None:
    if intake.failure:
        raise intake.failure
    if time.monotonic() > deadline:
        raise TimeoutError("The work did not end in time.")


def trial(
    params: Mapping[str, str],
    folder: Path,
    *,
    rounds: int,
    extra: int,
    seed: int = 1,
    seconds: float = 300,
    vendors: bool = False,
    has_queues: bool = False,
    sentence_model: str = "none",
) -> tuple[Snapshot, Snapshot]:
    """Return what the disturbed run left, and what the undisturbed one did; ``has_queues``: with batches, webhooks."""
    options: Any = {"vendors": vendors, "sentence_model": sentence_model}
    with world(params, folder, "broken", has_queues=has_queues, **options) as here:
        broken = disturbed(here, rounds=rounds, extra=extra, seed=seed, seconds=seconds)
    with world(params, folder, "calm", **options) as here:
        calm = undisturbed(here, taken=broken.taken, seed=seed, seconds=seconds)
    return broken, calm
