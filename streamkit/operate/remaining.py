"""Read what an idle consumer has still not done, and whether a worker of it is alive.

In: an app and clients. Out: how many changes are parked, whether the consumer is paused, whether a
worker of it sends heartbeats. All is read from the table: any process may have parked or paused.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.parked.queues import list_parked, parked_queues
from streamkit.core.tables import open_store
from streamkit.fleet.liveness import live_workers
from streamkit.fleet.members import MemberList
from streamkit.progress.clock import SystemClock

_BEHIND_SECONDS = 60.0
"""Less is what any consumer is behind at times."""


def catches_up_in(lags: Sequence[tuple[float, float]]) -> float | None:
    """Return in how many seconds a consumer, or an archive's writer, has read all, at its pace.

    Args:
        lags: seconds behind with their times, the oldest first.

    Returns:
        None if it is not behind by a minute, or does not come nearer.
    """
    if len(lags) < 2 or not lags[-1][1] >= _BEHIND_SECONDS:
        return None
    (began, first), (now, last) = lags[0], lags[-1]
    return last * (now - began) / (first - last) if first > last else None


@dataclass(frozen=True, slots=True)
class Remaining:
    """What one consumer has left.

    `parked` counts changes, `stuck` counts items whose changes wait for a person. `paused` is since
    when it reads nothing (epoch seconds), 0 if it is not paused.
    """

    app: str
    parked: int
    stuck: int
    paused: int


async def read_remaining(app: App, aws: Aws) -> Remaining:
    """Read what an app's consumer has left.

    Raises:
        ConfigurationError: the table is missing or has no stream, or may not be described.
    """
    store = await open_store(app, aws)
    queues = await parked_queues(store)
    parked = await list_parked(store, queues)
    seen = await MemberList(store).look()
    return Remaining(app.name, len(parked), sum(queue.stuck for queue in queues), seen.paused)


async def is_alive(app: App, aws: Aws, lease_seconds: float) -> bool:
    """Return whether a worker of an app's consumer sends heartbeats; watch for a lease at most.

    Raises:
        ConfigurationError: the table is missing or has no stream, or may not be described.
    """
    return bool(await live_workers(await open_store(app, aws), SystemClock(), lease_seconds))
