"""List the fan-outs that are under way, and cancel one.

In: an app and its parked queues. Out: the progress of each fan-out, and how long it still takes:
its audience is counted from its place on, and its pace is measured by what it has served.
A cancelled fan-out stops: recipients that were served stay served, and the next change of its item
is fanned out next.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.dispatch import Dispatcher
from streamkit.core.parked.payload import whole_record
from streamkit.core.parked.queues import ParkedQueue, list_parked, parked_queues, read_head
from streamkit.core.parking import Failure, Parked
from streamkit.core.tables import AppTables, open_store, survey
from streamkit.model.json_fields import JsonFields
from streamkit.operate.redrive import discard_queue
from streamkit.progress.clock import Clock, SystemClock
from streamkit.stream.decode import Page

_COUNTED = 5
"""So many fan-outs are counted at a look; those that wait behind them are counted later."""
_CALLS = 20
"""A count ends after so many calls of 1 MB: some 100,000 small recipients."""

State = Literal["serving", "failed", "stuck"]


@dataclass(frozen=True, slots=True)
class FanOutStatus(JsonFields):
    """One fan-out; `waiting` counts later changes of the item, `since` is in epoch seconds.

    `parked` counts the `served` recipients for which the change was parked in queues of their own.
    `failed`: it is retried later without help; `stuck`: it waits for a person. `share` is the part
    of the recipients that are served, 0 to 1; `speed` is how many are served in a second; `left` is
    about how many seconds the rest takes. They are None where that is not known: `share` and `left`
    if the audience is a generator or a mirror's copies, or takes many calls to count; `speed` and
    `left` if the change has waited behind others of its item.
    """

    queue: str
    handler: str
    state: State
    served: int
    parked: int
    waiting: int
    since: int
    share: float | None = None
    speed: float | None = None
    left: float | None = None


def fan_outs(
    app: App, queues: Sequence[ParkedQueue], parked: Sequence[Parked]
) -> tuple[FanOutStatus, ...]:
    """Return the fan-outs among parked queues; a recipient's own queue is not a fan-out."""
    names = {handler.name for handler in app.handlers if handler.broadcast is not None}
    changes: dict[str, list[Parked]] = {}
    for change in parked:
        changes.setdefault(change.queue, []).append(change)
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


def serving(found: Iterable[FanOutStatus]) -> dict[str, int]:
    """Return the queues of fan-outs that no failure holds up, each with how many changes are in it.

    They are parked queues, and end by themselves: nobody has to look at them or to redrive them.
    """
    return {one.queue: 1 + one.waiting for one in found if one.state == "serving"}


async def list_fan_outs(
    app: App, aws: Aws, *, clock: Clock | None = None
) -> tuple[FanOutStatus, ...]:
    """Return the fan-outs that are under way, the oldest first.

    Raises:
        ConfigurationError: a table is missing or has no stream, or may not be described.
    """
    tables = await survey(app, aws)
    store = tables.store(app, aws)
    queues = await parked_queues(store)
    found = fan_outs(app, queues, await list_parked(store, queues))
    return await Audiences(app, aws).measure(tables, found, (clock or SystemClock()).time())


class Audiences:
    """The sizes of the audiences that are served; keep one for many looks: each is counted once."""

    def __init__(self, app: App, aws: Aws) -> None:
        self._app, self._aws = app, aws
        self._sizes = dict[tuple[str, str], int | None]()

    async def measure(
        self, tables: AppTables, found: Sequence[FanOutStatus], now: float
    ) -> tuple[FanOutStatus, ...]:
        """Add how much of each fan-out is done, and when it ends; `now` is in epoch seconds."""
        serving = [one.queue for one in found if one.state == "serving"][:_COUNTED]
        return tuple(
            [
                await self._measured(tables, one, now) if one.queue in serving else one
                for one in found
            ]
        )

    async def _measured(self, tables: AppTables, one: FanOutStatus, now: float) -> FanOutStatus:
        head = await read_head(tables.store(self._app, self._aws), one.queue)
        if head is None:
            return one
        queue, first = head
        place = (queue.name, queue.head)
        if place not in self._sizes:
            left = await self._left(tables, queue, first)
            self._sizes[place] = None if left is None else queue.served + left
        size = self._sizes[place]
        seconds = now - queue.since if first.at == queue.since else 0.0
        speed = queue.served / seconds if seconds > 0 else None
        if not size:
            return replace(one, served=queue.served, speed=speed)
        rest = max(0, size - queue.served)  # more may have joined the audience meanwhile
        left_seconds = rest / speed if speed else None
        share = queue.served / (queue.served + rest) if queue.served + rest else None
        return replace(one, served=queue.served, share=share, speed=speed, left=left_seconds)

    async def _left(self, tables: AppTables, queue: ParkedQueue, first: Parked) -> int | None:
        """Count the recipients of a change that are not served; None if that cannot be done."""
        handler = next(one for one in self._app.handlers if one.name == queue.handler)
        if handler.broadcast is None or handler.broadcast.left is None:
            return None
        routes = self._app.routes(tables.schemas)
        dispatcher = Dispatcher([handler], routes, lambda *_: {}, SystemClock(), random.Random(0))
        dynamodb, table = self._aws.dynamodb, tables.table
        try:
            record = await whole_record(self._aws, table.stream_arn or "", first)
            if isinstance(record, Failure):
                return None
            pending, _, _ = await dispatcher.dispatch(Page((record,)), first.shard)
            change = dispatcher.change_of(pending[0], handler, first.shard)
            return await handler.broadcast.left(change, queue.token, dynamodb, table, _CALLS)
        except Exception:  # noqa: BLE001 - the audience is user code; its worker reports it
            return None


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
    chosen = [found for found in await parked_queues(store) if found.name == queue]
    if not fan_outs(app, chosen, await list_parked(store, chosen)):
        return False
    # Discard the queue as it was read: by now the next fan-out of its item may be the first in it.
    report = await discard_queue(store, chosen[0], random.Random(), clock or SystemClock())
    return bool(report.done)


def _state(queue: ParkedQueue, first: Parked) -> State:
    if queue.stuck:
        return "stuck"
    return "failed" if first.error is not None and queue.tries else "serving"
