"""State: where a migration stands, in one item that only changes IF nobody else has changed it.

`phase` is what was reached, `desired` what people want; whoever runs the migration follows both, so
that a pause needs nobody's answer. The steps are

    capturing   every change from now on will be seen
    scanning    the pass over the items that are there already
    catching up the changes made meanwhile are done
    verifying   a second pass finds nothing to do, or does it
    ready       (rekey, split) targets are in step; the application may read them
    switching   pair by pair, the target becomes the truth
    soaking     writes go to targets; sources follow them, if `reverse` says how
    contracting sources, or what was moved out of them, are deleted; in three stages: `comparing`
                sees that old code has written nothing that targets do not know of, and deletes
                nothing; then they are deleted; `closing` sees that old code has deleted none
    done

and after a rollback capturing to verifying with the reverse function; or, of pairs, `returning`
(sources get all that was written to targets), `following` (a pass over the targets sees that, and
makes sources of those that have none, because their changes were lost), `unturning` and `dropping`;
then `rolled back`.
`blocked`: items could not be migrated, and people must decide.

In: an app and its migrations. Out: states, and the audit trail in them.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal, get_args

from streamkit.actions import OURS, Action, Verb
from streamkit.control import ControlSpace
from streamkit.cursor import CursorStore
from streamkit.effects import Guard
from streamkit.errors import ConfigurationError
from streamkit.model.conditions import Attr, absent
from streamkit.model.schema import TableSchema
from streamkit.operation import Audit, Entry, Operation, Step, noted, read_audit

Phase = Literal[
    "new",
    "capturing",
    "scanning",
    "catching up",
    "verifying",
    "blocked",
    "ready",
    "switching",
    "soaking",
    "contracting",
    "done",
    "returning",
    "following",
    "unturning",
    "dropping",
    "rolled back",
]
Desired = Literal["run", "pause"]
Direction = Literal["forward", "back"]
Stage = Literal["", "comparing", "closing"]

PASSES: Final = frozenset(
    {"scanning", "verifying", "switching", "contracting", "following", "unturning", "dropping"}
)
"""The phases in which the table is read in segments."""
RESTING: Final = frozenset({"new", "ready", "soaking", "done", "rolled back", "blocked"})
"""The phases in which nothing happens until an operator gives a command."""
FOLLOWED: Final = frozenset({"ready", "soaking"})
"""The resting phases in which changes are still followed, while a process runs."""
SWITCHED: Final = frozenset({"switching", "soaking", "contracting", "returning", "following"})
"""The phases in which targets are the truth."""

LABEL = "migrations"
"""Stands where control items name their stream: a migration outlives the stream it began with."""
_AUDIT_MAX = 200
_BESIDE_MAX = 90
"""Other migrations, the newest ones, whose states a transaction holds; it takes 100 actions."""


@dataclass(frozen=True, slots=True)
class State:
    """Where one migration stands. `run` grows when it begins anew, `attempt` with each pass.

    `max_reads` and `max_writes` are units a second of the whole migration, None without a limit.
    `verified` is what the last verification found. `version` counts the changes of this item.
    `switched` is when the switch was begun; `stage` is of `contracting`, "" is that which deletes.
    `refused` is how often a contraction has gone back to `soaking`.
    """

    id: str
    digest: str = ""
    mode: str = ""
    phase: Phase = "new"
    desired: Desired = "run"
    direction: Direction = "forward"
    run: int = 0
    attempt: int = 0
    segments: int = 0
    began: float = 0.0
    updated: float = 0.0
    max_reads: float | None = None
    max_writes: float | None = None
    note: str = ""
    verified: dict[str, int] = field(default_factory=dict)
    audit: Audit = ()
    version: int = 0
    switched: float = 0.0
    stage: Stage = ""
    refused: int = 0

    @property
    def consumer(self) -> str:
        """The part of its capture's consumer name that is its own."""
        return f"{self.id}-{self.run}"

    @property
    def waits(self) -> bool:
        """Whether there is something to do, and people want it to wait."""
        return self.desired == "pause" and self.phase not in RESTING

    @property
    def does(self) -> str:
        """What is done in it: the stage, where a phase has some, else the phase."""
        return self.stage or self.phase

    @property
    def can_return(self) -> bool:
        """Whether every old item is still there."""
        return self.phase != "contracting" or self.stage == "comparing"

    @property
    def course(self) -> tuple[int, str, str]:
        """What decides which writes are right; a pause does not."""
        return self.run, self.direction, self.does

    @property
    def pass_name(self) -> str:
        """The name of the pass that the phase is, for its segments: no other pass ever has it.

        What a killed process leaves of a pass would be taken for what this one has read already.
        """
        name = f"{self.id}.{self.run}.{self.does}.{self.attempt}"
        return f"{name}.{self.refused}" if self.refused else name

    def noted(self, at: float, by: str, what: str) -> "State":
        """Return the state with a line more in its audit trail."""
        return replace(self, updated=at, audit=noted(self.audit, Entry(at, by, what), _AUDIT_MAX))

    def to_dict(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        return asdict(self)


def read_state(text: str, version: int) -> State:
    """Read what was stored."""
    found = json.loads(text)
    found["audit"] = read_audit(found.get("audit", ()))
    found["version"] = version
    known = {name: value for name, value in found.items() if name in State.__slots__}
    state = State(**known)
    if state.phase not in get_args(Phase):
        raise ConfigurationError(
            f"migration {state.id} is in phase {state.phase!r}, which this version does not know"
        )
    return state


class StateBook:
    """The states of an app's migrations."""

    def __init__(self, dynamodb: Any, control: TableSchema, app: str) -> None:
        self.store = CursorStore(dynamodb, ControlSpace.of(control, app, LABEL))

    async def read(self, migration: str) -> State:
        """Return a migration's state; one that was never applied is `new`."""
        item = await self.store.item("migration", migration)
        if item is None:
            return State(migration)
        return read_state(item["state"]["S"], int(item["version"]["N"]))

    async def read_all(self, migrations: Iterable[str]) -> dict[str, State]:
        """Return the states of several, by number."""
        return {one: await self.read(one) for one in migrations}

    async def write(self, before: State, after: State) -> State:
        """Write a state IF it is as it was read; return it with the version that it has then.

        Raises:
            LeaseLost: it is not.
        """
        return await self._operation(before.id).step(before, _next(before, after))

    def _operation(self, migration: str) -> Operation[State]:
        return Operation(self.store, partial(self.read, migration), self._writes)

    def _writes(self, before: State, after: State) -> Action:
        action = self.store.space.update("migration", before.id)
        action.sets |= {
            "state": {"S": json.dumps(after.to_dict(), separators=(",", ":"))},
            "version": {"N": str(after.version)},
        }
        action.guards.append((_as_read(before), OURS))
        return action

    def _still(self, other: State) -> Action:
        check = Action(self.store.space.ref("migration", other.id), Verb.CHECK)
        check.guards.append((_as_read(other), OURS))
        return check

    async def change(self, migration: str, change: Callable[[State], State]) -> State:
        """Change a state, however often somebody else does at the same time.

        Raises:
            ConfigurationError: whatever `change` raises, such as that it cannot be from there.
        """
        return await self.change_beside(migration, (), lambda state, _: change(state))

    async def change_beside(
        self,
        migration: str,
        others: Sequence[str],
        change: Callable[[State, Sequence[State]], State],
    ) -> State:
        """Change a state as the states of others allow it, which hold when it is written, too.

        Raises:
            ConfigurationError: whatever `change` raises.
        """

        async def decide(before: State) -> Step[State] | None:
            beside = [await self.read(other) for other in others]
            after = change(before, beside)
            if after == before:
                return None
            along = [self._still(other) for other in beside[-_BESIDE_MAX:]]
            return Step(_next(before, after), along)

        return await self._operation(migration).change(decide)


def _next(before: State, after: State) -> State:
    return replace(after, version=before.version + 1)


def _as_read(state: State) -> Guard:
    return Guard(Attr("version").eq(state.version) if state.version else absent)
