"""`python -m tests.benchmarks.replay`: changes per CPU second of a worker, from pages that lie ready.

Three processes: a server that sends prepared pages over loopback, the consumer, which is the real
worker as `streamkit worker` runs it, and this one, which reads the same pages the usual way between
the consumer's rounds, for a ratio that does not depend on the machine. Only CPU time counts, so
that other work on the machine changes little. At the end the table is compared with what it must
be.
"""

import argparse
import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Self

from tests.benchmarks.consuming import HANDLERS, consuming
from tests.benchmarks.deals import FULL, views_of
from tests.benchmarks.processes import Remote
from tests.benchmarks.serving import serving
from tests.benchmarks.usual import Usual

WARM_PAGES = 8
"""Pages of all shards together before the first round: what is compiled and cached then is warm."""
USUAL_RECORDS = 2_000
"""Records that the yardstick reads in a round."""


@dataclass
class Case:
    """What is replayed to what.

    Attributes:
        kind: of the handlers, see `consuming`.
        records: of a page.
        shards: of the stream; every one has the same pages.
        times: how many handlers the app has.
        changes: in a round, over all shards.
        workers: processes that share the shards; their CPU time is added up.
    """

    kind: str = "aggregate"
    records: int = FULL
    shards: int = 1
    times: int = 1
    changes: int = 14_000
    workers: int = 1

    @property
    def pages(self) -> int:
        """Return how many pages a shard gives in a round."""
        return max(1, round(self.changes / self.records / self.shards))

    @property
    def warm_pages(self) -> int:
        """Return how many pages a shard gives before the first round."""
        return max(1, self.changes // 4 // self.records // self.shards)


@dataclass(frozen=True)
class Round:
    """One round: changes per CPU second of the consumer, and of the usual way right beside it."""

    rate: float
    usual: float

    @property
    def ratio(self) -> float:
        """Return how many times the usual way the consumer is."""
        return self.rate / self.usual


@dataclass
class Replay:
    """A server and a consumer; `rounds` measures."""

    case: Case
    profile: bool = False
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        case = self.case
        self.server = self._stack.enter_context(Remote(serving, case.shards, case.records))
        url = self.server.call("address")
        self.fleet = [
            self._stack.enter_context(Remote(consuming, url, case.kind, case.times))
            for _ in range(case.workers)
        ]
        self._usual = Usual(url)
        self._given = 0
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def rounds(self, number: int) -> Iterator[Round]:
        """Warm up, measure so many rounds, and compare the table with what it must be."""
        case = self.case
        self.drain(case.warm_pages)
        for _ in range(number):
            yield self.round(case.pages)
        self.compare()

    def round(self, pages: int) -> Round:
        """Give each shard so many pages, and read some the usual way before and after."""
        before = self._usually()
        seconds = self.drain(pages, profile=self.profile)
        rate = pages * self.case.records * self.case.shards / seconds
        return Round(rate, 2 / (before + self._usually()))

    def _usually(self) -> float:
        """Return the CPU seconds of a record that is read the usual way."""
        pages = max(1, USUAL_RECORDS // self.case.records)
        return self._usual.read(pages, self._given) / (pages * self.case.records)

    def drain(self, pages: int, *, profile: bool = False) -> float:
        """Give each shard so many pages; return the CPU seconds until they are committed."""
        for one in self.fleet:
            one.call("mark", profile)
        self._given = self.server.call("release", pages)
        return sum(one.call("finish") for one in self.fleet)

    def compare(self) -> None:
        """Check that every change has had its effect, and had it once.

        Raises:
            AssertionError: it has not.
        """
        case, given = self.case, self._given
        changes = given * case.records * case.shards
        if case.kind == "count":
            assert sum(one.call("seen") for one in self.fleet) == changes
        elif case.kind in ("aggregate", "grouped"):
            prefix = "BRAND#" if case.kind == "aggregate" else "SHELF#"
            views = views_of(given, case.records) * case.shards
            assert self.server.call("total", prefix, "views") == views


def main() -> None:
    """Measure what the command line says, and print it."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.replay")
    parser.add_argument("--handlers", choices=HANDLERS, default="aggregate")
    parser.add_argument("--page", type=int, default=FULL, help=f"records a page; {FULL} is full")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--times", type=int, default=1, help="how many handlers the app has")
    parser.add_argument("--changes", type=int, default=14_000, help="in a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--profile", action="store_true", help="also print where the time goes")
    parser.add_argument("--lines", type=int, default=40, help="of the profile")
    parser.add_argument("--workers", type=int, default=1, help="that share the shards")
    given = parser.parse_args()
    case = Case(given.handlers, given.page, given.shards, given.times, given.changes, given.workers)
    found = []
    with Replay(case, given.profile) as replay:
        for one in replay.rounds(given.rounds):
            found.append(one)
            print(f"{one.rate:10,.0f} changes/CPU s {one.ratio:8.2f} times the usual way")
        if given.profile:
            print(replay.fleet[0].call("profile", given.lines))
    rate = statistics.median(one.rate for one in found)
    times = statistics.median(one.ratio for one in found)
    best = max(one.rate for one in found)
    print(
        f"median {rate:,.0f}, best {best:,.0f} changes/CPU s; {times:.2f} times the usual way:"
        f" {case.kind}, {case.records} a page, {case.shards} shards, {case.times} handlers"
    )


if __name__ == "__main__":
    main()
