"""List the fan-outs that are under way, and cancel one.

In: an app and its parked queues. Out: the progress of each fan-out.
A cancelled fan-out stops: recipients that were served stay served, and the next change of its item
is fanned out next.
"""

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.parked.queues import ParkedQueue, list_parked, parked_queues
from streamkit.core.parking import Parked
from streamkit.core.tables import open_store
from streamkit.operate.redrive import discard_queue
from streamkit.progress.clock import Clock, SystemClock

State = Literal["serving", "failed", "stuck"]


@dataclass(frozen=True, slots=True)
class FanOutStatus:
    """One fan-out; `waiting` counts later changes of the item, `since` is in epoch seconds.

    `parked` counts the `served` recipients for which the change was parked in queues of their own.
    `failed`: it is retried later without help; `stuck`: it waits for a person.
    """

    lane: str
    handler: str
    state: State
    served: int
    parked: int
    waiting: int
    since: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return asdict(self)


def fan_outs(
    app: App, queues: Sequence[ParkedQueue], parked: Sequence[Parked]
) -> tuple[FanOutStatus, ...]:
    """Return the fan-outs among parked queues; a recipient's own queue is not a fan-out."""
    names = {handler.name for handler in app.handlers if handler.broadcast is not None}
    changes: dict[str, list[Parked]] = {}
    for change in parked:
        changes.setdefault(change.lane, []).append(change)
    return tuple(
        FanOutStatus(
            queue.name,
            queue.handler,
            _state(queue, changes[queue.name][0]),
            queue.served,
            queue.apart,
            len(changes[queue.name]) - 1,
            queue.since,
        )
        for queue in queues
        if queue.handler in names and changes.get(queue.name) and not changes[queue.name][0].to
    )


async def list_fan_outs(app: App, aws: Aws) -> tuple[FanOutStatus, ...]:
    """Return the fan-outs that are under way, the oldest first.

    Raises:
        ConfigurationError: a table is missing or has no stream, or may not be described.
    """
    store = await open_store(app, aws)
    queues = await parked_queues(store)
    return fan_outs(app, queues, await list_parked(store, queues))


async def cancel_fan_out(app: App, aws: Aws, queue: str, *, clock: Clock | None = None) -> bool:
    """Stop a fan-out where it is; return whether it was under way.

    Args:
        app: the app whose fan-out it is.
        aws: open clients.
        queue: the queue it waits in, as `list_fan_outs` names it.
        clock: time, for simulations.

    Raises:
        ConfigurationError: a table is missing or has no stream, or may not be described.
    """
    store = await open_store(app, aws)
    held = [found for found in await parked_queues(store) if found.name == queue]
    if not fan_outs(app, held, await list_parked(store, held)):
        return False
    # Discard the queue as it was read: by now the next fan-out of its item may be the first in it.
    report = await discard_queue(store, held[0], random.Random(), clock or SystemClock())
    return bool(report.done)


def _state(queue: ParkedQueue, first: Parked) -> State:
    if queue.stuck:
        return "stuck"
    return "failed" if first.error is not None and queue.tries else "serving"
