"""Being idle: CPU time, memory and read units of shards in which nothing happens."""

from typing import Any

from streamkit.settings import Settings
from tests.benchmarks.consuming import consuming
from tests.benchmarks.processes import Remote
from tests.benchmarks.serving import serving
from tests.benchmarks.usual import Usual
from tests.benchmarks.yardstick import Figure, median_of, row
from tests.simulation.test_costs import Fleet, measured

SHARDS = 1000
SECONDS = 10.0
POLLS = 300
RAW = "the client's raw GetRecords"


def idle_shards(seconds_between: float) -> dict[str, float]:
    """Return the CPU of a poll with all that belongs to it, its ratio to a raw one, and the memory."""
    pace = {"poll_floor": seconds_between, "poll_ceiling": seconds_between}
    with Remote(serving, SHARDS) as server:
        url = server.call("address")
        with Remote(consuming, url, "aggregate", 1, pace) as consumer:
            consumer.call("mark")
            consumer.call("finish")
            consumer.call("idle", seconds_between)  # the first polls come all at once
            rounds = []
            for _ in range(3):
                before = server.call("spent")["polls"]
                spent = consumer.call("idle", max(SECONDS, 2 * seconds_between))
                polls = server.call("spent")["polls"] - before
                raw = Usual(url).read(POLLS, POLLS) / POLLS
                rounds.append((spent / polls, raw))
            found = median_of(rounds)
            memory = float(consumer.call("memory"))
            return {"poll": 1 / found.value, "ratio": 1 / found.judged, "memory": memory}


def of_a_core(seconds_between: float) -> Figure:
    """Return the part of a core that 1,000 idle shards take, and that of raw calls for a poll."""
    found = idle_shards(seconds_between)
    return Figure(found["poll"] * SHARDS / seconds_between * 100, found["ratio"])


@row("1,000 idle shards, a poll a second", unit="% of a core", of=RAW, bar=0.50, less=True)
def polled_each_second() -> Figure:
    return of_a_core(1.0)


@row("1,000 idle shards, a poll each 5 s", unit="% of a core", of=RAW, bar=0.52, less=True)
def polled_seldom() -> Figure:
    return of_a_core(5.0)


@row("1,000 idle shards: memory of the process", unit="MB", bar=107, less=True)
def memory() -> Figure:
    return Figure(idle_shards(1.0)["memory"] / 1e6)


def read_units(workers: int) -> Figure:
    """Return the units a minute that each worker of a fleet reads of the table, in virtual time."""
    fleet: Any = Fleet(workers, 1, Settings(), seconds=600.0)
    bill = measured(fleet)
    total = sum(units["read"] for units in bill.units.values())
    return Figure(total / workers / (fleet.seconds / 60))


@row("one idle shard, a worker alone: table reads a minute", unit="units", bar=15, less=True)
def alone() -> Figure:
    return read_units(1)


@row("one idle shard, each of two workers: table reads a minute", unit="units", bar=75, less=True)
def two() -> Figure:
    return read_units(2)
