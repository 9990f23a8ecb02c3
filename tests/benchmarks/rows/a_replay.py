"""The path of a change: pages that lie ready, replayed to the real worker; see `replay`."""

from tests.benchmarks.deals import FULL
from tests.benchmarks.replay import Case, Replay
from tests.benchmarks.yardstick import Figure, median_of, row

ROUNDS = 5
USUAL = "the usual way to read"
RATE = "changes/CPU s"


def replayed(case: Case) -> Figure:
    """Return changes per CPU second of a worker, and its ratio to the usual way to read them."""
    with Replay(case) as replay:
        rounds = list(replay.rounds(ROUNDS))
    return median_of([(1 / one.rate, 1 / one.usual) for one in rounds])


@row("count only: nothing is written", unit=RATE, of=USUAL, bar=9)
def count_only() -> Figure:
    return replayed(Case("count"))


@row("exactly-once aggregate of 20 groups", unit=RATE, of=USUAL, bar=8.5)
def aggregate() -> Figure:
    return replayed(Case("aggregate"))


@row("aggregate with a function for its groups", unit=RATE, of=USUAL, bar=4.3)
def grouped() -> Figure:
    return replayed(Case("grouped"))


@row("aggregate, 16 shards", unit=RATE, of=USUAL, bar=7.0)
def sixteen_shards() -> Figure:
    return replayed(Case("aggregate", shards=16, changes=22_000))


@row("aggregate, 16 shards, pages of 50", unit=RATE, of=USUAL, bar=2.8)
def small_pages() -> Figure:
    return replayed(Case("aggregate", records=50, shards=16, changes=16_000))


@row("aggregate, pages of 50", unit=RATE, of=USUAL, bar=1.4)
def small_pages_of_one_shard() -> Figure:
    return replayed(Case("aggregate", records=50, changes=2_500))


@row("on, with one Put each", unit=RATE, of=USUAL, bar=2.2)
def on() -> Figure:
    return replayed(Case("on", changes=7_000))


@row("on, with one Put each, beside an aggregate", unit=RATE, of=USUAL, bar=1.7)
def on_beside_an_aggregate() -> Figure:
    return replayed(Case("both", changes=7_000))


@row("on, async, with one Put each", unit=RATE, of=USUAL, bar=1.35)
def on_async() -> Figure:
    return replayed(Case("async", changes=7_000))


@row("write units of 1,000 changes: the aggregate, full pages", unit="units", bar=62, less=True)
def write_units() -> Figure:
    with Replay(Case("aggregate", changes=10 * FULL)) as replay:
        replay.drain(2)
        before = replay.server.call("spent")
        replay.drain(10)
        after = replay.server.call("spent")
    return Figure((after["units.write"] - before["units.write"]) / (10 * FULL) * 1000)
