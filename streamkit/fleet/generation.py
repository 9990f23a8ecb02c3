"""Generations: which roll-out of the handlers a consumer is in.

The consumer's item holds a number and the fingerprint of the handlers. A fingerprint never seen
before starts a new generation; one equal to the newest joins it; an older known one stands by,
because a left-over worker of the last roll-out must not wipe out the new one. In the very write
that creates a generation, aggregates that are new, changed or were away are marked *needs
rebuild*: they have missed changes, and only a rebuild makes them right. A rebuild takes its steps
as generations of the same handlers, see `builds`.

The first generation is the consumer's founding: where it starts is resolved there and then and is
in the table before anything is read. A consumer whose stream was replaced is founded again under
the new stream's label, with what it knew under the old one; changes in between may be lost.

A rewind is a generation that throws all cursors away. Its one write is the whole decision; whoever
comes next, worker or operator, deletes what older generations left before anything is read.
"""

import random
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import anyio

from streamkit.actions import OURS, Action
from streamkit.clock import Clock
from streamkit.cursor import CursorStore
from streamkit.effects import Guard
from streamkit.errors import LeaseLost, RetentionLost
from streamkit.fleet.cursors import drop_cursors, every_cursor
from streamkit.fleet.directory import enter, predecessors
from streamkit.fleet.hosting import LAMBDA, check_host
from streamkit.handler import Handler
from streamkit.model.builds import Build, builds_text, read_builds, retired
from streamkit.model.conditions import Attr, Condition, ConditionBase, absent
from streamkit.processing.transaction import transact
from streamkit.source.loss import Losses
from streamkit.start import Start, since_of, start_text

_KNOWN_MAX = 20
"""Fingerprints remembered: more roll-outs than are ever alive at once; the item stays small."""
_ZERO = {"N": "0"}


@dataclass(frozen=True, slots=True)
class Generation:
    """The newest generation as the consumer's item says.

    `since` is from when on changes are the consumer's (0: all), `founded` when it began to read,
    `lost` when the whole stream may have lost changes; all in epoch seconds. `start` is what the
    app declared then. `rewinding`: cursors of older generations are still to be deleted. `builds`
    are the last builds of aggregates, by name. `host` says who runs the consumer, see `hosting`.
    `incarnation` is drawn when the consumer is founded: one of the same name that was deleted had
    another, and what is kept under that does not count any more.
    """

    number: int
    fingerprint: str
    known: tuple[str, ...]
    aggregates: Mapping[str, str]
    rebuild: frozenset[str]
    since: int = 0
    founded: int = 0
    lost: int = 0
    start: str = "trim_horizon"
    rewinding: bool = False
    builds: Mapping[str, Build] = field(default_factory=dict)
    host: str = ""
    incarnation: str = ""


@dataclass(frozen=True)
class Founding:
    """What a consumer's first generation needs to know: its table, and where it starts."""

    table: str
    start: Start
    clock: Clock
    losses: Losses


def read_generation(item: Mapping[str, Any]) -> Generation:
    """Read the consumer's item."""
    return Generation(
        number=int(item["generation"]["N"]),
        fingerprint=item["fingerprint"]["S"],
        known=tuple(part["S"] for part in item["known"]["L"]),
        aggregates={name: part["S"] for name, part in item["aggregates"]["M"].items()},
        rebuild=frozenset(item["rebuild"]["SS"]) if "rebuild" in item else frozenset(),
        since=int(item.get("since", _ZERO)["N"]),
        founded=int(item.get("founded", _ZERO)["N"]),
        lost=int(item.get("lost", _ZERO)["N"]),
        start=item.get("start", {"S": "trim_horizon"})["S"],
        rewinding="rewinding" in item,
        builds=read_builds(item["builds"]["S"]) if "builds" in item else {},
        host=item["host"]["S"] if "host" in item else "",
        incarnation=item["incarnation"]["S"] if "incarnation" in item else "",
    )


def next_generation(
    newest: Generation | None, fingerprint: str, handlers: Iterable[Handler]
) -> Generation:
    """Return the generation that these handlers start."""
    aggregates = {h.name: h.definition for h in handlers if h.is_aggregate}
    if newest is None:
        return Generation(1, fingerprint, (fingerprint,), aggregates, frozenset())
    missed = {name for name, made in aggregates.items() if newest.aggregates.get(name) != made}
    gone = {name for name in newest.aggregates if name not in aggregates}
    return Generation(
        newest.number + 1,
        fingerprint,
        (*[known for known in newest.known if known != fingerprint], fingerprint)[-_KNOWN_MAX:],
        aggregates,
        (newest.rebuild | missed) - gone,
        newest.since,
        newest.founded,
        newest.lost,
        newest.start,
        builds={
            name: retired(build) if name in missed | gone else build
            for name, build in newest.builds.items()
        },
        host=newest.host,
        incarnation=newest.incarnation,
    )


async def newest_generation(store: CursorStore) -> Generation | None:
    """Read the newest generation; None before the first."""
    item = await store.item("consumer")
    return None if item is None else read_generation(item)


async def join_generation(
    store: CursorStore,
    fingerprint: str,
    handlers: Iterable[Handler],
    *,
    take_over: bool,
    founding: Founding | None = None,
    host: str = "",
) -> Generation | None:
    """Join the newest generation or start one; None means: stand by, this is an older roll-out.

    Args:
        store: the consumer's control items.
        fingerprint: of the handlers.
        handlers: what the app registers.
        take_over: let a known older fingerprint start a generation, because no worker of the
            newest is alive or an operator said so.
        founding: what to do if there is none yet; without it all records there are count.
        host: who is going to run the consumer; empty if nobody is.

    Raises:
        RetentionLost: the stream was replaced, and the app's policy is to halt.
        ConfigurationError: the app's start is still to come, or the consumer has another host.
    """
    handlers = list(handlers)
    while True:
        newest = await newest_generation(store)
        if newest is not None:
            check_host(store.space.consumer, newest.host, host)
        if newest is not None and newest.rewinding:
            await finish_rewind(store, newest)
            continue
        if newest is not None and newest.fingerprint == fingerprint:
            return newest
        if newest is not None and fingerprint in newest.known and not take_over:
            return None
        started = next_generation(newest, fingerprint, handlers)
        started = replace(started, host=host or started.host)
        if newest is None and founding is not None:
            found = await _found(store, started, handlers, founding)
            if found is not None:
                return found
            continue
        try:
            await store.write(_action(store, newest, started))
        except LeaseLost:
            continue  # another worker started one at the same moment: look again
        return started


async def _found(
    store: CursorStore, first: Generation, handlers: list[Handler], founding: Founding
) -> Generation | None:
    """Found the consumer of this stream; None if another worker was faster, or a hook failed."""
    now = int(founding.clock.time())
    first = replace(first, incarnation=uuid.uuid4().hex[:8])
    aggregates = frozenset(handler.name for handler in handlers if handler.is_aggregate)
    before = await _predecessor(store, founding.table, now)
    if before is None:
        since = since_of(founding.start, now)
        started = replace(first, since=since, start=start_text(founding.start), founded=now)
        if since:  # they count from the start only, and the table may have held items before
            started = replace(started, rebuild=aggregates)
    else:
        old, lost = before
        pause = await founding.losses.settle(lost)
        if pause is not None:
            await anyio.sleep(pause)
            return None
        started = next_generation(old, first.fingerprint, handlers)
        started = replace(started, rebuild=aggregates, founded=now, lost=now, builds={})
        started = replace(started, host=first.host, incarnation=first.incarnation)
    actions = [_action(store, None, started), enter(store.space, founding.table)]
    schemas = {store.space.schema.name: store.space.schema}
    refused = await transact(store.dynamodb, schemas, actions, random.Random())
    return started if refused is None else None


async def _predecessor(
    store: CursorStore, table: str, now: int
) -> tuple[Generation, RetentionLost] | None:
    """Return what the consumer was under the table's last stream, and what that may have lost."""
    for old in await predecessors(store, table):
        generation = await newest_generation(old)
        if generation is not None:
            cursors = await every_cursor(old)
            seen = [c.seen for c in cursors.values() if not c.finished]
            lost = RetentionLost(
                f"possible loss: the stream of table {table} is a new one; changes that were not"
                f" read from {old.space.label}, or were made while there was none, are lost",
                since=min(seen, default=0),
                until=now,
            )
            return generation, lost
    return None


async def begin_rewind(store: CursorStore, newest: Generation, since: int, now: int) -> Generation:
    """Start the generation that reads again from a moment on.

    Before this write nothing has changed; after it the old cursors do not count any more.

    Args:
        store: the consumer's control items.
        newest: the generation as read.
        since: epoch second from which on changes are read again; 0 for all there are.
        now: epoch seconds.

    Raises:
        LeaseLost: another generation was started meanwhile.
    """
    rewound = replace(newest, number=newest.number + 1, since=since, founded=now, rewinding=True)
    if newest.host == LAMBDA:  # marks of before do not count any more
        rewound = replace(rewound, incarnation=uuid.uuid4().hex[:8])
    await store.write(_action(store, newest, rewound))
    return rewound


async def begin_move(store: CursorStore, newest: Generation, host: str) -> Generation:
    """Start a generation that no worker is in, whose host lets none begin.

    Raises:
        LeaseLost: another generation was started meanwhile.
    """
    moved = replace(newest, number=newest.number + 1, host=host)
    await store.write(_action(store, newest, moved))
    return moved


async def finish_rewind(store: CursorStore, newest: Generation) -> int:
    """Delete what older generations left, however often it is begun; return how many cursors."""
    dropped = await drop_cursors(store, below=newest.number)
    action = store.space.update("consumer")
    action.removes.add("rewinding")
    action.guards.append((Guard(Attr("generation").eq(newest.number)), OURS))
    try:
        await store.write(action)
    except LeaseLost:
        return dropped  # another one has finished it, and a newer generation started
    return dropped


def _action(store: CursorStore, newest: Generation | None, started: Generation) -> Action:
    action = store.space.update("consumer")
    action.sets |= {
        "generation": {"N": str(started.number)},
        "fingerprint": {"S": started.fingerprint},
        "known": {"L": [{"S": known} for known in started.known]},
        "aggregates": {"M": {name: {"S": made} for name, made in started.aggregates.items()}},
        "since": {"N": str(started.since)},
        "founded": {"N": str(started.founded)},
        "lost": {"N": str(started.lost)},
        "start": {"S": started.start},
    }
    if started.rewinding:
        action.sets["rewinding"] = {"BOOL": True}
    if started.rebuild:
        action.sets["rebuild"] = {"SS": sorted(started.rebuild)}
    elif newest is not None and newest.rebuild:
        action.removes.add("rebuild")
    if started.host:
        action.sets["host"] = {"S": started.host}
    if started.incarnation:
        action.sets["incarnation"] = {"S": started.incarnation}
    if started.builds:
        action.sets["builds"] = {"S": builds_text(started.builds)}
    elif newest is not None and newest.builds:
        action.removes.add("builds")
    condition: Condition = absent
    if newest is not None:
        marks = Attr("rebuild")  # a loss may mark aggregates at any time
        as_read = marks.eq(set(newest.rebuild)) if newest.rebuild else marks.not_exists()
        condition = Attr("generation").eq(newest.number) & as_read & builds_are(newest.builds)
    action.guards.append((Guard(condition), OURS))
    return action


def builds_are(builds: Mapping[str, Build]) -> ConditionBase:
    """Return the condition that the builds of a consumer are as they were read."""
    text = Attr("builds")
    return text.eq(builds_text(builds)) if builds else text.not_exists()


async def step_builds(
    store: CursorStore,
    newest: Generation,
    builds: Mapping[str, Build],
    *,
    right: Collection[str] = (),
    advance: bool = False,
) -> Generation:
    """Let builds take a step.

    Args:
        store: the consumer's control items.
        newest: the generation as read.
        builds: all builds as they are from now on.
        right: aggregates that are not marked *needs rebuild* any more.
        advance: every shard has to take the step: it begins with a new number.

    Raises:
        LeaseLost: the generation is another one by now, or somebody else took a step.
    """
    number = newest.number + 1 if advance else newest.number
    rebuild = newest.rebuild - frozenset(right)
    stepped = replace(newest, number=number, builds=builds, rebuild=rebuild)
    await store.write(_action(store, newest, stepped))
    return stepped
