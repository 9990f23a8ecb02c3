"""How a large fleet shares many shards, and what that costs: the program behind `make fleet`.

    python -m tests.simulation.balance 1000 20

The workers start together; one more joins; one is killed; all shards roll at once. After each the
fleet has to be even again. In: the size. Out: a `Report`, read off the engine's log alone.
"""

import argparse
import gc
import logging
import sys
import time
import tracemalloc
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio
import pytest
import structlog
from botocore.parsers import JSONParser

from streamkit.fleet import sharing
from streamkit.fleet.assignment import assign
from streamkit.fleet.cursors import LISTER
from streamkit.local.items import get_item
from streamkit.progress.actions import own_attributes
from streamkit.progress.control import read_cursor
from streamkit.settings import Settings
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process, World
from tests.simulation.bill import Bill, told_apart
from tests.simulation.crew import TABLE, Fleet, create_table, make_app

SETTINGS = {"poll_floor": 60.0, "poll_ceiling": 60.0, "look_interval": 2.0, "list_interval": 60.0}
"""As a fleet of this size is run: seldom, because all of it is quiet."""

_VIEWS_MAX = 300
"""Assignments that are kept: while many shards end, each worker sees its own mixture of them."""

STILL_SECONDS = 60.0
"""How long costs are measured."""
EVEN_SECONDS = 20.0
"""How long a fleet has to stay even, each time."""


@dataclass
class Stage:
    """What happened until the fleet was even again, and in the time after."""

    name: str
    seconds: float
    moves: int
    moved: frozenset[str]
    held: Counter[str]

    @property
    def spread(self) -> tuple[int, int]:
        return min(self.held.values()), max(self.held.values())


@dataclass
class Report:
    """A whole run. `calls` and `units` are of the quiet time after the start."""

    shards: int
    workers: int
    stages: dict[str, Stage] = field(default_factory=dict)
    killed: frozenset[str] = frozenset()
    describes: list[tuple[float, int]] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    units: dict[str, Counter[str]] = field(default_factory=dict)
    cpu: float = 0.0

    @property
    def most_describes(self) -> int:
        """How many calls of `DescribeStream` the busiest second had."""
        times = sorted(at for at, _ in self.describes)
        most, first = 0, 0
        for last, at in enumerate(times):
            while times[first] <= at - 1:
                first += 1
            most = max(most, last - first + 1)
        return most

    def lines(self) -> list[str]:
        """Say it for people."""
        hours = STILL_SECONDS / 3600
        found = [f"{self.shards:,} shards, {self.workers} workers; {self.cpu:.0f} s of processor"]
        for stage in self.stages.values():
            low, high = stage.spread
            found.append(
                f"{stage.name:>8}: even after {stage.seconds:.1f} s, {low} to {high} shards a"
                f" worker, {stage.moves} moves"
            )
        found.append(f"DescribeStream: {self.most_describes} in the busiest second")
        found.append("quiet, an hour:   a worker     a shard")
        for name, count in sorted(self.calls.items()):
            rate = count / hours
            found.append(f"{name:>16} {rate / self.workers:10,.0f} {rate / self.shards:11,.2f}")
        for kind in ("read", "write", "stream"):
            rate = sum(units[kind] for units in self.units.values()) / hours
            found.append(
                f"{kind + ' units':>16} {rate / self.workers:10,.0f} {rate / self.shards:11,.2f}"
            )
        return found


class Ledger:
    """Who owns which unfinished shard, from the calls that write cursors.

    It reads the items that a call names: looking for new records in every shard takes too long.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.owners: dict[str, str | None] = {}
        self.moves: list[tuple[float, str]] = []
        self.describes: list[tuple[float, int]] = []
        self._last: dict[str, str] = {}
        fleet.world.watchers.clear()
        fleet.world.engine.observers.append(self._see)

    def _see(self, call) -> None:
        if call.operation == "DescribeStream":
            self.describes.append((self.fleet.now, call.status))
        if call.status != 200 or call.operation not in ("UpdateItem", "TransactWriteItems"):
            return
        for key in keys_of(call):
            if "#cursor#" in key["PK"]["S"]:
                found = get_item(self.fleet.world.engine, {"TableName": TABLE, "Key": key})
                cursor = read_cursor(own_attributes(found["Item"]))
                if cursor.name != LISTER:
                    self._note(cursor)

    def _note(self, cursor) -> None:
        if cursor.finished:
            self.owners.pop(cursor.name, None)
            return
        self.owners[cursor.name] = cursor.owner
        if cursor.owner is None:
            return
        before = self._last.get(cursor.name) or self._last.get(cursor.parent or "")
        if before != cursor.owner:
            self.moves.append((self.fleet.now, cursor.name))
        self._last[cursor.name] = cursor.owner

    def held(self) -> Counter[str]:
        names = {
            life.worker.name: life.name
            for life in self.fleet.lives.values()
            if life.worker is not None
        }
        return Counter(names.get(owner, "nobody") for owner in self.owners.values())

    def shards_of(self, name: str) -> frozenset[str]:
        owner = self.fleet.lives[name].worker.name
        return frozenset(shard for shard, mine in self.owners.items() if mine == owner)

    def even(self, alive: set[str]) -> bool:
        """Return whether the live workers, and no others, hold all open shards, evenly."""
        held = self.held()
        if set(held) != alive or max(held.values()) - min(held.values()) > 1:
            return False
        return self.owners.keys() == self.fleet.open_shards()


def keys_of(call):
    """Return the keys that a call writes to."""
    if call.operation == "UpdateItem":
        return [call.payload["Key"]]
    actions = [next(iter(entry.values())) for entry in call.payload["TransactItems"]]
    items = [action.get("Key") or action["Item"] for action in actions if "Delete" not in action]
    return [{name: item[name] for name in ("PK", "SK")} for item in items]


class Run:
    """One fleet through all stages."""

    def __init__(self, shards: int, workers: int) -> None:
        self.report = Report(shards, workers)
        self.fleet = Fleet(shards, app=make_app(), refereed=False, **SETTINGS)
        self.ledger = Ledger(self.fleet)
        self.bill = Bill(self.fleet.world)
        self.alive = {f"w{number:03d}" for number in range(workers)}

    async def through(self) -> Report:
        """Go through the stages; raises TimeoutError if the fleet does not get even."""
        began, fleet = time.process_time(), self.fleet
        async with fleet.running(*sorted(self.alive)):
            await self._until_even("start", 0.0)
            await self._quiet()
            fleet.start("new")
            self.alive.add("new")
            await self._until_even("join", fleet.now)
            victim = max(name for name in self.alive if name not in (fleet.leader(), "new"))
            self.report.killed = self.ledger.shards_of(victim)
            since = fleet.now
            fleet.lives[victim].process.kill()
            self.alive.discard(victim)
            await self._until_even("kill", since)
            since = fleet.now
            fleet.world.control.roll(TABLE)
            await self._until_even("roll", since)
        self.report.describes = self.ledger.describes
        self.report.cpu = time.process_time() - began
        return self.report

    async def _until_even(self, name: str, since: float) -> None:
        fleet = self.fleet
        with anyio.fail_after(600):
            while not self.ledger.even(self.alive):
                await anyio.sleep(0.5)
        took = fleet.now - since
        await anyio.sleep(EVEN_SECONDS)
        moves = [shard for at, shard in self.ledger.moves if at >= since]
        held = self.ledger.held()
        self.report.stages[name] = Stage(name, took, len(moves), frozenset(moves), held)
        log(f"{name}: even after {took:.1f} s; {time.process_time():.0f} s of processor so far")

    async def _quiet(self) -> None:
        self.bill.clear()
        await anyio.sleep(STILL_SECONDS)
        self.report.calls = self.bill.operations()
        self.report.units = {name: Counter(units) for name, units in self.bill.units.items()}


def measure(shards: int, workers: int) -> Report:
    """Run a fleet of a size in virtual time."""

    async def main() -> Report:
        return await Run(shards, workers).through()

    with quietly(), repeatable(1), told_apart(), cheaply():
        return run_virtually(main)


def log(text: str) -> None:
    """Say how far it is: a large fleet takes minutes."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def cheaply():
    """Leave out what costs most of a simulation's time and changes nothing in it.

    That is the SDK's checks of each call and its walk through each reply, of which there are no
    binary values here; and that a hundred workers in one process make the same assignment each.
    """
    made: dict[tuple[frozenset[str], frozenset[tuple[str, int]]], dict[str, str]] = {}

    def assign_once(roots, weights):
        view = (frozenset(roots), frozenset(weights.items()))
        if view not in made:
            if len(made) >= _VIEWS_MAX:
                made.clear()
            made[view] = assign(roots, weights)
        return made[view]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "assign", assign_once)
        patch.setattr(
            JSONParser, "_handle_json_body", lambda self, raw, _: self._parse_body_as_json(raw)
        )
        yield


def bytes_of(shards: int) -> int:
    """Return the bytes of one worker that reads so many quiet shards: what its death frees."""

    async def main() -> int:
        world = World.create(1, shards=shards)
        create_table(world)
        process, app, settings = Process("worker"), make_app(), Settings(**SETTINGS)
        taken = Counter()

        async def watch(worker) -> None:
            with anyio.fail_after(300):
                while len(worker.shards) < shards:
                    await anyio.sleep(1)
            await anyio.sleep(90)  # each is polled
            world.calls.clear()
            gc.collect()
            taken["with"], _ = tracemalloc.get_traced_memory()
            process.kill()

        await world.run_worker(
            app, process=process, settings=settings, until_idle=False, started=watch
        )
        world.calls.clear()
        await anyio.sleep(1)
        gc.collect()
        without, _ = tracemalloc.get_traced_memory()
        return taken["with"] - without

    tracemalloc.start()
    try:
        with quietly(), repeatable(1):
            return run_virtually(main)
    finally:
        tracemalloc.stop()


class quietly:
    """Log warnings only: a fleet of this size says a lot."""

    def __enter__(self) -> None:
        self._before = structlog.get_config()
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))

    def __exit__(self, *_: object) -> None:
        structlog.configure(**self._before)


def main() -> int:
    """Measure a fleet of the size on the command line."""
    parser = argparse.ArgumentParser(description="Measure how a large fleet shares many shards.")
    parser.add_argument("shards", type=int)
    parser.add_argument("workers", type=int)
    arguments = parser.parse_args()
    report = measure(arguments.shards, arguments.workers)
    print("\n".join(report.lines()))
    few, many = bytes_of(100), bytes_of(1000)
    print(f"memory of a quiet shard: {(many - few) / 900 / 1024:.1f} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
