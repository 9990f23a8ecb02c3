"""How costs grow: changes per CPU second over shards, handlers, backlog and fleet.

Each point is one run of the replay; the curves are recorded with the table, and drawn for the page.
"""

from collections.abc import Callable
from contextlib import ExitStack

from tests.benchmarks.consuming import consuming
from tests.benchmarks.deals import FULL
from tests.benchmarks.processes import Remote
from tests.benchmarks.replay import Case, Replay
from tests.benchmarks.serving import serving

Curve = list[tuple[int, float]]

PAGE = 100
"""Records of a page where many are needed: behind so many the next one is read at once."""
FLEET_SHARDS = 16


def best_of(case: Case, rounds: int = 2) -> float:
    """Return the best changes per CPU second of some rounds."""
    with Replay(case) as replay:
        return max(one.rate for one in replay.rounds(rounds))


def over_shards() -> Curve:
    """An aggregate, pages of 100; a thousand shards have a page each."""
    counts = (1, 10, 100, 1000)
    return [
        (count, best_of(Case("aggregate", PAGE, count, changes=max(10_000, count * PAGE)), 1))
        for count in counts
    ]


def over_handlers() -> Curve:
    """Handlers that write nothing, full pages."""
    return [(count, best_of(Case("count", times=count))) for count in (1, 2, 5, 10, 20)]


def over_backlog() -> Curve:
    """An aggregate on one shard; so many pages of 100 wait when it begins."""
    found = []
    with Replay(Case("aggregate", PAGE)) as replay:
        replay.drain(20)
        for pages in (1, 10, 100, 1000):
            times = max(1, 20 // pages)
            found.append((pages, pages * PAGE / min(replay.drain(pages) for _ in range(times))))
        replay.compare()
    return found


def of_fleet(workers: int) -> float:
    """Return changes per CPU second of all processes of a fleet together."""
    pages = 2
    with ExitStack() as stack:
        server = stack.enter_context(Remote(serving, FLEET_SHARDS, FULL))
        url = server.call("address")
        fleet = [stack.enter_context(Remote(consuming, url, "aggregate")) for _ in range(workers)]
        best = float("inf")
        for turn in range(3):
            for one in fleet:
                one.call("mark")
            server.call("release", pages)
            spent = sum(one.call("finish") for one in fleet)
            best = min(best, spent) if turn else best
    return pages * FULL * FLEET_SHARDS / best


def over_fleet() -> Curve:
    """An aggregate, 16 shards, full pages; the CPU time of all workers counts."""
    return [(workers, of_fleet(workers)) for workers in (1, 2, 4, 8)]


CURVES: dict[str, Callable[[], Curve]] = {
    "shards": over_shards,
    "handlers": over_handlers,
    "backlog": over_backlog,
    "fleet": over_fleet,
}
"""The curves by name."""
