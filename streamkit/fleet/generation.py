"""Generations: which roll-out of the handlers a consumer is in.

The consumer's item holds a number and the fingerprint of the handlers. A fingerprint never seen
before starts a new generation; one equal to the newest joins it. An older known one stands by,
because a left-over worker of the last roll-out must not undo the new one. The write that creates a
generation also marks aggregates that are new, changed or were away as *needs rebuild*: they have
missed changes, and only a rebuild makes them right. A rebuild takes its steps as generations of the
same handlers, see `builds`. A rewind is a generation that discards all cursors, see `rewinding`.
`joining` says how a worker joins a generation.

Each of these writes is conditional on all that the decision was based on: generation, builds, host.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial, reduce
from operator import and_
from typing import Any

from streamkit.core.handler import Handler
from streamkit.fleet.hosting import FROM_KCL, TO_LAMBDA, TO_WORKERS
from streamkit.model.builds import Build, build_mark, builds_text, read_builds, retired
from streamkit.model.conditions import Attr, Condition, ConditionBase, absent
from streamkit.progress.actions import Action, Wire
from streamkit.progress.cursor import CursorStore
from streamkit.progress.operation import Audit, AuditEntry, Operation, noted, read_audit

_KNOWN_MAX = 20
"""The most fingerprints that are remembered: more roll-outs are never alive at once."""
_AUDIT_MAX = 10
"""The most entries of the audit trail: together they stay below a kilobyte."""
_MOMENTS = ("since", "founded", "lost")
_TEXTS = ("host", "incarnation", "mover", "asks")
_TURNS = ("paused", "turns")
_SETS = ("rebuild", "begins", "joins", "held")
"""Texts, numbers and sets that the consumer's item lacks when they are empty."""


@dataclass(frozen=True, slots=True)
class Generation:
    """The newest generation as the consumer's item says.

    `aggregates` are definitions by name, empty for one that is gone: its values may be there.
    `since` is from when on changes are the consumer's (0: all), `founded` when it began to
    read, `lost` when the whole stream may have lost changes; all in epoch seconds. `start` is
    what the app declared at the founding. `rewinding` says that cursors of older generations
    must still be deleted, `begins` where it reads an archive first then: those shards. `joins` has
    the marks of handlers that it takes over from consumers of their own, see `taken`. `builds`
    are the last builds of aggregates, by name. `host` says what runs the consumer, see
    `hosting`. `incarnation` is random, drawn when the consumer is founded: a deleted consumer
    of the same name had another, and what is stored under that no longer counts. `mover` is the
    token of a move to another host, `asks` that of a rewind question. `paused` is since when it
    does nothing (0: not paused), `held` are the marks of its operations that people have
    paused, and `turns` counts the pauses and their ends: a late command that later ones have
    overtaken does nothing. `audit` says who began which operation, and its steps; older
    streamkits leave these as they are.
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
    begins: frozenset[str] = frozenset()
    joins: frozenset[str] = frozenset()
    builds: Mapping[str, Build] = field(default_factory=dict)
    host: str = ""
    incarnation: str = ""
    mover: str = ""
    asks: str = ""
    paused: int = 0
    held: frozenset[str] = frozenset()
    turns: int = 0
    audit: Audit = ()

    @property
    def marks(self) -> Mapping[str, str]:
        """Return the mark of each operation that can be paused now, by its name.

        A mark is never used twice. Otherwise the next operation of the name would begin paused.
        """
        found = {
            f"rebuild {name}": build_mark(name, build.number)
            for name, build in self.builds.items()
            if build.under_way
        }
        if self.mover or self.host in (TO_WORKERS, TO_LAMBDA, FROM_KCL):
            found["move"] = move_mark(self.mover)
        if self.asks:
            found["rewind"] = f"rewind {self.asks}"
        return found

    def is_held(self, operation: str) -> bool:
        """Return whether people have paused one of its operations."""
        return self.marks.get(operation) in self.held

    def without_pauses(self) -> "Generation":
        """Return the generation without what a pause of one of its operations writes."""
        return replace(self, held=frozenset(), turns=0, audit=())

    @property
    def commands(self) -> int:
        """Return how often people have paused or resumed something."""
        return self.turns

    def commanded(self, said: AuditEntry) -> "Generation":
        """Return the generation with one more pause, or end of a pause, counted."""
        return replace(self, turns=self.turns + 1).noted(said)

    def noted(self, entry: AuditEntry | None) -> "Generation":
        """Return the generation with one more line in its audit trail, if a line is given."""
        audit = self.audit if entry is None else noted(self.audit, entry, _AUDIT_MAX)
        return replace(self, audit=audit)


def move_mark(token: str) -> str:
    """Return the name of a move in `held`, by which its mover's transactions see a pause."""
    return f"move {token}"


def read_generation(item: Mapping[str, Any]) -> Generation:
    """Read the consumer's item."""
    fields: dict[str, Any] = {n: int(item.get(n, {"N": "0"})["N"]) for n in (*_MOMENTS, *_TURNS)}
    fields |= {name: item.get(name, {"S": ""})["S"] for name in _TEXTS}
    fields |= {name: frozenset(item[name]["SS"]) if name in item else frozenset() for name in _SETS}
    known = tuple(part["S"] for part in item["known"]["L"])
    return Generation(
        number=int(item["generation"]["N"]),
        fingerprint=known[-1] if "asks" in item else item["fingerprint"]["S"],
        known=known,
        aggregates={name: part["S"] for name, part in item["aggregates"]["M"].items()},
        start=item.get("start", {"S": "trim_horizon"})["S"],
        rewinding="rewinding" in item,
        builds=read_builds(item["builds"]["S"]) if "builds" in item else {},
        audit=read_audit(json.loads(item["audit"]["S"])) if "audit" in item else (),
        **fields,
    )


def next_generation(
    newest: Generation | None, fingerprint: str, handlers: Iterable[Handler]
) -> Generation:
    """Return the generation that these handlers start."""
    aggregates = {h.name: h.definition for h in handlers if h.is_aggregate}
    if newest is None:
        return Generation(1, fingerprint, (fingerprint,), aggregates, frozenset())
    missed = {name for name, made in aggregates.items() if newest.aggregates.get(name) != made}
    gone = newest.aggregates.keys() - aggregates.keys()
    before = [known for known in newest.known if known != fingerprint]
    return replace(
        newest,
        number=newest.number + 1,
        fingerprint=fingerprint,
        known=(*before, fingerprint)[-_KNOWN_MAX:],
        aggregates=aggregates | dict.fromkeys(gone, ""),
        rebuild=(newest.rebuild | missed) - gone,
        rewinding=False,
        builds={
            name: retired(build) if name in missed | gone else build
            for name, build in newest.builds.items()
        },
        mover="",
        asks="",
    )


async def newest_generation(store: CursorStore) -> Generation | None:
    """Read the newest generation; None if there is none yet."""
    item = await store.item("consumer")
    return None if item is None else read_generation(item)


async def begin_move(
    store: CursorStore, newest: Generation, host: str, said: AuditEntry | None = None
) -> Generation:
    """Start a generation without workers, whose host lets no process begin.

    Raises:
        LeaseLost: another generation was started meanwhile.
    """
    moved = replace(newest, number=newest.number + 1, host=host, asks="")
    moved = moved.noted(said)
    await write_generation(store, newest, moved)
    return moved


async def write_generation(
    store: CursorStore,
    newest: Generation | None,
    started: Generation,
    along: Sequence[Action] = (),
) -> None:
    """Write a consumer's generation, IF everything is as it was read.

    Up to 99 actions without conditions may go `along`, in the same transaction.

    Raises:
        LeaseLost: something has changed.
    """
    await consumer_operation(store).step(newest, started, along)


def consumer_operation(store: CursorStore, name: str = "") -> Operation[Generation | None]:
    """Return the operation of a consumer's builds, moves and rewinds: they share its item.

    `name` is one of `Generation.marks`: it waits while people have paused that one.
    """
    read, write = partial(newest_generation, store), partial(transition, store)
    return Operation(store, read, write, held=lambda now: now is not None and now.is_held(name))


def transition(store: CursorStore, newest: Generation | None, started: Generation) -> Action:
    """Return the action that writes a consumer's generation, IF everything is as it was read."""
    action = store.space.update("consumer")
    action.sets |= {
        "generation": {"N": str(started.number)},
        # An older streamkit would join its fingerprint without withdrawing the question.
        "fingerprint": {"S": started.asks or started.fingerprint},
        "known": {"L": [{"S": known} for known in started.known]},
        "aggregates": {"M": {name: {"S": made} for name, made in started.aggregates.items()}},
        "since": {"N": str(started.since)},
        "founded": {"N": str(started.founded)},
        "lost": {"N": str(started.lost)},
        "start": {"S": started.start},
    }
    audit = json.dumps([asdict(entry) for entry in started.audit], separators=(",", ":"))
    optional: dict[str, Wire | None] = {
        "rewinding": {"BOOL": True} if started.rewinding else None,
        "builds": {"S": builds_text(started.builds)} if started.builds else None,
        "audit": {"S": audit} if started.audit else None,
        **{n: {"SS": sorted(s)} if (s := getattr(started, n)) else None for n in _SETS},
        **{name: {"N": str(n)} if (n := getattr(started, name)) else None for name in _TURNS},
        **{name: {"S": text} if (text := getattr(started, name)) else None for name in _TEXTS},
    }
    action.sets |= {name: value for name, value in optional.items() if value is not None}
    if newest is not None:
        action.removes |= {name for name, value in optional.items() if value is None}
    return action.only_if(absent if newest is None else _as_read(newest))


def _as_read(newest: Generation) -> Condition:
    """Return the condition that nothing has changed on which a decision was based."""
    conditions: list[ConditionBase] = [builds_are(newest.builds)]
    # Nothing is included that a loss marks, because a loss may be noticed at any time.
    for name in (*_SETS, "rewinding", *_TURNS, *_TEXTS):
        value, there = getattr(newest, name), Attr(name)
        as_read = set(value) if isinstance(value, frozenset) else value
        conditions.append(there.eq(as_read) if value else there.not_exists())
    return reduce(and_, conditions, Attr("generation").eq(newest.number))


def builds_are(builds: Mapping[str, Build]) -> ConditionBase:
    """Return the condition that the builds of a consumer are as they were read."""
    text = Attr("builds")
    return text.eq(builds_text(builds)) if builds else text.not_exists()


def same_consumer(newest: Generation) -> ConditionBase:
    """Return the condition that a consumer is the one that was read, not one founded later."""
    incarnation = Attr("incarnation")
    return incarnation.eq(newest.incarnation) if newest.incarnation else incarnation.not_exists()


def same_builds(newest: Generation) -> ConditionBase:
    """Return the condition that a consumer is the one that was read, with the same builds."""
    return builds_are(newest.builds) & same_consumer(newest)


def stepped(
    newest: Generation,
    builds: Mapping[str, Build],
    *,
    right: Collection[str] = (),
    advance: bool = False,
    said: AuditEntry | None = None,
) -> Generation:
    """Return the generation in which builds have taken a step.

    Args:
        newest: the generation as read.
        builds: all builds as they are from now on.
        right: aggregates that are not marked *needs rebuild* any more.
        advance: every shard must take the step, so the generation gets a new number.
        said: the entry for the audit trail.
    """
    number = newest.number + int(advance)
    rebuild = newest.rebuild - frozenset(right)
    after = replace(newest, number=number, builds=builds, rebuild=rebuild, asks="")
    if advance:  # A move that is under way does not know this step: its mover is shut out.
        after = replace(after, mover="")
    return after.noted(said)
