"""Store the state of each migration in one item, which changes only IF it is as it was read.

In: an app and its migrations. Out: their states; each change is one conditional write, together
with the gates of pairs, and with checks of the migrations that it depends on. The first one also
puts the migration's name into the set of all that were begun, which a release without its file
reads. On failure: `LeaseLost` or `ConfigurationError`; nothing is changed.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.core.tables import survey
from streamkit.kinds.migration import rank
from streamkit.migrate.book.state import ENDED, GATES, State, read_state
from streamkit.model.conditions import Attr, Condition, absent
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import Action, Verb
from streamkit.progress.clock import Clock, SystemClock
from streamkit.progress.control import ControlSpace, names_in
from streamkit.progress.cursor import CursorStore
from streamkit.progress.operation import AuditEntry, Operation, Step, said_of

TO_DO: Final = (
    "this release does not have its file: deploy the release that has it, or roll the migration"
    " back with that one"
)
"""What people do about a migration that is under way and not known to their release."""
SQUASHED: Final = (
    "whose code was squashed: apply it with an earlier release, or say `streamkit migrate stamp`"
    " where it was never needed"
)
"""What people do about a migration that was squashed, and that the table has not had."""
LABEL = "migrations"
"""The stream's name in control items of migrations, which outlive the stream they began with."""
ChangeBeside = Callable[[State, Sequence[State]], State]
"""Returns the next state, as those of other migrations allow; or raises `ConfigurationError`."""
_ALONG_MAX = 99
"""Actions beside the write of a state: gates, and checks of other migrations, the newest ones."""


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

    async def read_all(self, migrations: Iterable[str]) -> list[State]:
        """Return the states of several, in their order."""
        return [await self.read(one) for one in migrations]

    async def begun(self) -> frozenset[str]:
        """Return the migrations that were begun, or stamped, also those that have ended."""
        return frozenset(names_in(await self.store.item("begun")))

    async def said(self, clock: Clock | None, what: str) -> AuditEntry:
        """Return an audit entry for what is done at this terminal now, by the table's clock."""
        return said_of(await self.store.clock(clock or SystemClock()), what)

    async def write(self, before: State, after: State) -> State:
        """Write a state IF it is as it was read; return it with its new version.

        Raises:
            LeaseLost: it is not.
        """
        after, along = self._listed(before, after)
        return await self.operation(before.id).step(before, _next(before, after), along)

    def operation(
        self, migration: str, held: Callable[[State], bool] = lambda _: False
    ) -> Operation[State]:
        """Return a migration's operation; `held` says when a pause makes it wait."""
        return Operation(self.store, partial(self.read, migration), self._writes, held)

    def _writes(self, before: State, after: State) -> Action:
        action = self.store.space.update("migration", before.id)
        return next_version(action, before.version, after.version, after.to_dict())

    def _gates(self, before: State, after: State) -> list[Action]:
        """Return the writes of all copies of what pairs are made under, where it changes."""
        if before.gate == after.gate:
            return []
        space, names = self.store.space, [("gate", after.id, f"{n}") for n in range(GATES)]
        if not after.gate:
            return [space.delete(*one) for one in names]
        return [space.put({"state": {"S": after.gate}}, *one) for one in names]

    def _listed(self, before: State, after: State) -> tuple[State, list[Action]]:
        """Return the next state, and the writes along with it; the first enters its name."""
        along = self._gates(before, after)
        if not before.listed:
            along.append(self.store.space.with_name(after.id, "begun"))
        return replace(after, listed=True), along

    def _still(self, other: State) -> Action:
        check = Action(self.store.space.ref("migration", other.id), Verb.CHECK)
        return check.only_if(as_read(other.version))

    async def change(self, migration: str, change: Callable[[State], State]) -> State:
        """Change a state, however often other processes change it at the same time.

        Raises:
            ConfigurationError: any error of `change`, for example that the phase does not allow it.
        """
        return await self.change_beside(migration, (), lambda state, _: change(state))

    async def change_beside(
        self, migration: str, others: Sequence[str], change: ChangeBeside
    ) -> State:
        """Change a state as the states of other migrations allow, which the write checks, too.

        Raises:
            ConfigurationError: any error of `change`.
        """

        async def decide(before: State) -> Step[State] | None:
            step = await self._beside(before, others, change)
            return None if step.after == before else replace(step, after=_next(before, step.after))

        return await self.operation(migration).change(decide)

    async def command(
        self, migration: str, others: Sequence[str], change: ChangeBeside, said: AuditEntry
    ) -> State:
        """Change a state like `change_beside`, unless another command comes between.

        Raises:
            ConfigurationError: any error of `change`, or another command came between.
        """
        decide = partial(self._beside, others=others, change=change)
        return await self.operation(migration).command(decide, said)

    async def _beside(
        self, before: State, others: Sequence[str], change: ChangeBeside
    ) -> Step[State]:
        beside = await self.read_all(others)
        after = change(before, beside)
        if after == before:
            return Step(after)
        after, along = self._listed(before, after)
        checked = beside[-(_ALONG_MAX - len(along)) :]
        return Step(after, [*along, *(self._still(other) for other in checked)])


def _next(before: State, after: State) -> State:
    return replace(after, version=before.version + 1)


def next_version(action: Action, before: int, after: int, fields: Mapping[str, Any]) -> Action:
    """Return an action that also writes a state, IF the version is still the one before."""
    action.sets |= {
        "state": {"S": json.dumps(fields, separators=(",", ":"))},
        "version": {"N": str(after)},
    }
    return action.only_if(as_read(before))


def as_read(version: int) -> Condition:
    """Return the condition that a state has the version that was read; 0 is that of no state."""
    return Attr("version").eq(version) if version else absent


async def open_book(app: App, aws: Aws) -> StateBook:
    """Return the states of an app's migrations.

    Raises:
        ConfigurationError: the table is missing, or may not be described.
    """
    tables = await survey(app, aws)
    return StateBook(aws.dynamodb, tables.control, app.name)


def known_to(app: App) -> frozenset[str]:
    """Return the migrations that an app declares, or that were squashed."""
    return frozenset((*app.migrations, *app.done_everywhere))


async def absent_migrations(book: StateBook, known: Collection[str]) -> list[State]:
    """Return the states of migrations that are under way and not `known`, in order.

    A release that was rolled back behind a migration would say that there is none. A migration that
    an earlier release of streamkit began is found from its next step on.
    """
    states = await book.read_all(sorted(await book.begun() - {*known}, key=rank))
    return [state for state in states if state.phase not in ("new", *ENDED)]
