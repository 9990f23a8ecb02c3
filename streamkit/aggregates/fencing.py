"""Fencing: the segments of a build's scan, and of its sweep, belong to one build of one consumer.

In: what the consumer's item said when it was decided to scan. Out: segments that are made and
deleted only while it still says so: else one who froze would bring back those of a scan that is
over, or delete those of a consumer that was founded later under the same name. On failure:
`LeaseLost`.
"""

from dataclasses import dataclass

from streamkit.actions import Action, GuardSource
from streamkit.control import Cursor, cursor_attributes
from streamkit.effects import Guard
from streamkit.fleet.fenced import TOGETHER, Fenced
from streamkit.migrate.segments import Segments
from streamkit.model.conditions import Condition, absent, present


@dataclass
class FencedSegments(Segments):
    """Segments of a pass that is over once the consumer is not `still` so, or they are gone."""

    still: Condition = present
    ends_when_gone: bool = True

    @property
    def _fenced(self) -> Fenced:
        return Fenced(self.store, self.still, self.rng)

    async def create(self) -> None:
        """Create the cursors that are not there yet.

        Raises:
            LeaseLost: the pass is over.
        """
        while True:
            there = await self.cursors()
            missing = [name for name in self.names if name not in there]
            if not missing:
                return
            await self._fenced.apply([self._creation(name) for name in missing[:TOGETHER]])

    def deletions(self) -> list[Action]:
        """Return what deletes the cursors of the pass."""
        return [self.store.space.delete("cursor", name) for name in self.names]

    async def delete(self) -> None:
        """Delete the cursors of the pass that are there.

        Raises:
            LeaseLost: the consumer is not so any more.
        """
        keys = [self.store.space.key("cursor", name) for name in self.names]
        await self._fenced.delete_there(keys)

    def _creation(self, name: str) -> Action:
        fresh = Cursor(name=name, generation=1)
        action = self.store.space.put(cursor_attributes(fresh), "cursor", name)
        action.guards.append((Guard(absent), GuardSource("", name, 0)))
        return action
