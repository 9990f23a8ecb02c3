"""How costs grow: changes per CPU second over shards, handlers, backlog and fleet.

Each point is the median of some rounds of the replay, as so many times the usual way to read right
beside it. The curves are recorded with the table, and drawn for the page.
"""

import statistics
from collections.abc import Callable
from dataclasses import replace

from tests.benchmarks.replay import Case, Replay

Curve = list[tuple[int, float]]

PAGE = 100
"""Records of a page where many are needed: behind so many the next one is read at once."""


def median_of(case: Case, rounds: int = 2) -> float:
    """Return the median of some rounds, in times the usual way."""
    with Replay(case) as replay:
        return statistics.median(one.ratio for one in replay.rounds(rounds))


def over_shards() -> Curve:
    """An aggregate, pages of 100; a thousand shards have a page each."""
    counts = (1, 10, 100, 1000)
    return [
        (
            count,
            median_of(
                Case("aggregate", PAGE, count, changes=max(7_000, count * PAGE)),
                2 if count < 1000 else 1,
            ),
        )
        for count in counts
    ]


def over_handlers() -> Curve:
    """Handlers that write nothing, full pages."""
    return [(count, median_of(Case("count", times=count))) for count in (1, 2, 5, 10, 20)]


def over_backlog() -> Curve:
    """An aggregate on one shard; so many pages of 100 wait when it begins."""
    found = []
    with Replay(Case("aggregate", PAGE)) as replay:
        replay.drain(20)
        for pages in (1, 10, 100, 1000):
            rounds = [replay.round(pages) for _ in range(max(1, 10 // pages))]
            found.append((pages, statistics.median(one.ratio for one in rounds)))
        replay.compare()
    return found


def over_fleet() -> Curve:
    """An aggregate, 16 shards, full pages; the CPU time of all workers counts.

    A short round would measure what workers do beside: to begin, to beat, and to look for quiet.
    """
    case = Case("aggregate", shards=16, changes=110_000)
    return [(workers, median_of(replace(case, workers=workers))) for workers in (1, 2, 4, 8)]


CURVES: dict[str, Callable[[], Curve]] = {
    "shards": over_shards,
    "handlers": over_handlers,
    "backlog": over_backlog,
    "fleet": over_fleet,
}
"""The curves by name."""
