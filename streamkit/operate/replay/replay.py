"""Replay: run handlers again for the changes of some time, from an archive, into the live table.

    bounded      `replayer`: some changes, each IF its item is still as the change left it
    to the end   `to_end`: all changes since a moment, in order, until it has done all that
                 the app has done; beside the live handlers

In: an app with an archive, handlers, a range of time. Out: counts, and a list of what was passed
over. On failure: a refusal names every reason; then nothing was changed.
"""

import math
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.routes import Channels
from streamkit.core.tables import AppTables
from streamkit.core.tracing import Tracing
from streamkit.kinds.injection import injector
from streamkit.kinds.preflight import findings, require
from streamkit.operate.past.past import open_past
from streamkit.operate.replay.parts import ReplayParts, keys_of
from streamkit.operate.replay.replayable import not_replayed
from streamkit.operate.replay.replayer import Replayer
from streamkit.operate.replay.report import Replayed, ReplayRefused, ReplayWish, replay_name
from streamkit.operate.replay.to_end import ReplayToEnd
from streamkit.progress.activity import first_error
from streamkit.progress.clock import Clock, SystemClock, utc
from streamkit.progress.machine import Machine
from streamkit.progress.paced import counted_rate
from streamkit.sinks.outlets import open_outlets

_WITHOUT = "and a replay to the end must not stop half way; replay it without --to-end"
_CLAIMS = f"an older change may claim an item that another source has by now and fail, {_WITHOUT}"
_MANY = f"its recipients may be too many for one transaction, {_WITHOUT}"


async def replay(
    app: App,
    aws: Aws,
    wish: ReplayWish,
    *,
    rng: random.Random | None = None,
    clock: Clock | None = None,
) -> Replayed:
    """Run some handlers again for the changes of some time.

    Args:
        app: the app, or a listener of it that reads its archive.
        aws: open clients.
        wish: what to replay.
        rng: jitter, for simulations.
        clock: time, for simulations.

    Raises:
        ReplayRefused: a handler must not run again, the archive begins later, or a replay to the
            end cannot begin, or go on.
        RetentionLost: the archive lacks changes of that time.
        ConfigurationError: there is no archive, or the app does not fit its table.
    """
    machine = Machine(aws, clock or SystemClock(), rng or random.Random())
    ReplayRefused.raise_for(_refused(app, wish))
    async with open_past(app, aws, machine.clock, allow_loss=wish.allow_loss) as (past, tables):
        machine = replace(machine, clock=past.clock)  # the table's: this machine's may be wrong
        now = machine.clock.time()
        wish = replace(wish, until=now) if wish.until == math.inf else wish
        wish = replace(wish, since=int(wish.since))  # changes are stamped to the second
        if wish.since > now:
            raise ReplayRefused([f"{utc(wish.since).isoformat()} is in the future"])
        if wish.since < past.began and not wish.allow_loss:
            begins = f"the archive begins at {utc(past.began).isoformat()}"
            raise ReplayRefused([f"{begins}; --allow-loss replays what there is since then"])
        async with _opened(app, machine, tables, wish) as parts:
            if wish.to_end and wish.mode == "write":
                return await ReplayToEnd(parts, past).run()
            return await Replayer(parts).run(past)


def _refused(app: App, wish: ReplayWish) -> list[str]:
    known = {handler.name: handler for handler in app.handlers}
    unknown = {*wish.handlers, *wish.allow} - known.keys()
    reasons = [
        f"{name} is a consumer of its own: say --listener {name}"
        if name in app.listeners
        else f"there is no handler {name!r}"
        for name in sorted(unknown)
    ]
    if not wish.handlers:
        reasons.append("name the handlers")
    if wish.since >= wish.until:
        reasons.append("the time ends before it begins")
    for name in wish.handlers:
        if name in known:
            handler, allowed = known[name], name in wish.allow
            found = not_replayed(
                handler,
                allowed=allowed,
                revision=bool(wish.revision) or wish.to_end,
                writes=wish.mode == "write",
            )
            if wish.to_end and handler.converges and not handler.is_mirror:
                reasons.append(f"{handler.declared}: {_CLAIMS}")
            elif wish.to_end and handler.broadcast is not None and not handler.converges:
                reasons.append(f"{handler.declared}: {_MANY}")
            reasons += [f"{handler.declared}: {reason}" for reason in found]
    return reasons


@asynccontextmanager
async def _opened(
    app: App, machine: Machine, tables: AppTables, wish: ReplayWish
) -> AsyncIterator[ReplayParts]:
    """Open what the app's handlers need, for a replay.

    Raises:
        ConfigurationError: the app does not fit its table, or may not use it.
        ReplayRefused: the keys that are asked for cannot be keys of the table.
    """
    aws, keys = machine.aws, keys_of(tables.table, wish.keys)
    try:
        async with app.resources() as resources, open_outlets(app.sinks, machine.clock) as outlets:
            require(findings(app, tables, resources))
            space = tables.space(app)
            tools = injector(aws.dynamodb, tables.table, resources, tables.schemas, space)
            channels = Channels(outlets, tracing=Tracing.of(app.telemetry, app.name))
            with counted_rate(aws, replay_name(app.name), wish.units, machine.clock) as rate:
                yield ReplayParts(app, machine, tables, tools, channels, wish, rate, keys)
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors
