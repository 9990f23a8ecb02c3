"""Track which state of its migration a process acts under, and when it read that state.

A process that stood still may know a phase that ended long ago. So nothing is written under a state
that was read more than `FRESH_SECONDS` ago: the state is read again first, and if the migration is
in another phase by now, the write is left out. A write that was under way for longer has happened;
so its items are looked at again, as the present phase requires.

In: how to read the state. Out: permits to write under one. On failure: `PhaseOver`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import anyio

from streamkit.errors import ConfigurationError, LeaseLost
from streamkit.migrate.book.state import State
from streamkit.progress.actions import Wire
from streamkit.progress.clock import Clock

FRESH_SECONDS = 5.0
"""How long in seconds a state may be written under after its read; deletions wait longer."""
FOLLOW_SECONDS = 2.0
"""Seconds between two reads of the state by a process that works under it."""
_LOOK_SECONDS = 10.0

Place = tuple[str, Mapping[str, Wire]]
"""A table, and one of its items, or an item's key."""


class PhaseOver(LeaseLost, ConfigurationError):
    """The migration is in another phase than the one that a write belongs to."""


class MigrationView:
    """What one process knows of one migration.

    `read` reads the state and has it adopted; `look_again` is called with what may have been
    written too late, once the present state is known.
    """

    def __init__(
        self,
        state: State,
        read: Callable[[], Awaitable[object]],
        look_again: Callable[[Sequence[Place]], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self.state = state
        self._read = read
        self.look_again = look_again
        self._clock = clock
        self._at = clock.monotonic()
        self._reading = anyio.Lock()

    def adopt(self, state: State, asked: float) -> None:
        """Store a state, and when its read was sent: the reply may have taken long."""
        self.state = state
        self._at = asked

    @property
    def is_old(self) -> bool:
        """Whether the state was read so long ago that it may have changed."""
        return self._clock.monotonic() - self._at > FRESH_SECONDS

    def lasts(self, state: State) -> bool:
        """Return whether a state's phase is known to last, without another read."""
        return not self.is_old and self.state.course == state.course

    async def is_over(self, state: State) -> bool:
        """Return whether the migration is in another phase than a state's."""
        if self.is_old:
            async with self._reading:
                while self.is_old:
                    await self._read()
        return self.state.course != state.course

    async def renew(self) -> None:
        """Read the state again: a refused write shows that it may have changed."""
        async with self._reading:
            await self._read()


@dataclass(frozen=True, slots=True)
class Permit:
    """Lets calls write under one state of a migration."""

    view: MigrationView
    state: State

    async def require(self) -> None:
        """Check that the phase lasts.

        Raises:
            PhaseOver: it does not.
        """
        if await self.view.is_over(self.state):
            now = self.view.state
            raise PhaseOver(f"migration {now.id} went on, and is {now.phase!r}: look again")

    async def settle(self, places: Sequence[Place]) -> None:
        """Look again at what was written, if the phase ended while the write was under way.

        A task that wakes up is often cancelled at once, because a lease was lost; this is done
        first.
        """
        if self.view.lasts(self.state):
            return  # nothing is to be read: the two scopes would cost more than all the rest of it
        with anyio.CancelScope(shield=True), anyio.move_on_after(_LOOK_SECONDS):
            if await self.view.is_over(self.state):
                await self.view.look_again(places)
