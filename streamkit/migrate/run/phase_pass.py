"""Take part in the pass of a phase, and decide what comes after it.

In: a state whose phase reads the table in segments. Out: every segment is read, by this process and
others, and one of them has taken the next step: another pass, the next phase, or a stop that people
have to see. On failure: an item's failure is an error of the item; too many of them stop the pass.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import anyio

from streamkit.migrate.book.course import PhaseStep, after_pass, given_up, once_more
from streamkit.migrate.book.overlap import new_code_objection, objection
from streamkit.migrate.book.state import PASSES, Phase, State
from streamkit.migrate.run.capture import Capture
from streamkit.migrate.run.opening import Opened
from streamkit.migrate.run.passing import FirstDone, Passing, TooManyErrors
from streamkit.progress.activity import task_group
from streamkit.progress.scan.scan import TableScan

_WATCH_SECONDS = 2.0
_SETTLE_SECONDS = 6.0
"""Seconds until every process knows a phase; one that does not may write what the phase deletes."""
_ENDING = frozenset({"contracting", "closing"})
_DELETING = frozenset({"unturning", "dropping"}) | _ENDING
_LEFT = "{} items could not be migrated; see `streamkit migrate errors list`"
_ALL_RIGHT = PASSES - {"scanning", "verifying"}
"""The phases that go on to the next one only when every item is right, or waived."""

StepHook = Callable[[State, PhaseStep], Awaitable[None]]
"""Takes the step from a state, unless another process has done so."""


@dataclass(frozen=True)
class PhasePass:
    """One process's part of one pass of a phase; `interrupt` ends it early, in order."""

    part: Passing
    opened: Opened
    capture: Capture
    interrupt: anyio.Event
    step: StepHook

    async def run(self, state: State) -> None:
        """Take part in the pass of a state's phase, and take the step after it."""
        if state.phase in _ENDING and (left := await self._left(state)) != 0:
            if left is not None:
                await self.step(state, given_up(state, await self._said_of(left)))
            return
        first = state.phase in {"switching", *_ENDING} and not state.attempt
        # An item that was deleted at its old place would be left as a copy.
        if first and not await self.capture.catches_up(state, self.interrupt):
            return
        if first and self.part.present() != state:
            return
        if await self.opened.must_watch(state):
            return
        opened, rng = self.opened, self.part.rng
        about = opened.book.store, state.pass_name, state.segments, opened.clock, rng
        scan = TableScan(*about, paced=opened.rate.paced)
        if not await self._scan(state, scan) or self.part.present() != state:
            return
        left = await self._left(state) if state.phase in {"verifying", *_ALL_RIGHT} else 0
        if left is None:
            return
        if state.phase == "verifying" and not self.part.has_more(state):
            await self._verified(state, left)
        elif left and state.phase != "verifying":
            await self.step(state, given_up(state, await self._said_of(left)))
        elif _takes_away(state) and (found := await self._objection()):
            await self.step(state, given_up(state, found))
        elif await self.part.must_repeat(state):
            await self.step(state, once_more(state))
        else:
            await self.step(state, after_pass(state))
        await scan.delete()

    async def _scan(self, state: State, scan: TableScan) -> bool:
        """Visit what is left of a pass, beside other processes; return whether all is done."""
        if state.does in _DELETING and not state.attempt:
            with anyio.move_on_after(_SETTLE_SECONDS):
                await self.interrupt.wait()
        part = self.part
        at_once = 1 if part.pauses_early else part.pace.segments
        try:
            async with part.pages() as pages, task_group() as group:
                if state.phase == "closing":
                    group.start_soon(self._watch, state)
                given = pages, part.visit, self.opened.owner
                complete = await scan.run(*given, at_once=at_once, stopping=self.interrupt)
                group.cancel_scope.cancel()
        except TooManyErrors as error:
            complete = False
            await self.step(state, given_up(state, str(error)))
        except FirstDone as done:
            complete = False
            # The stream does the work of a touch: before that, people would see nothing of it.
            if part.work.migration.mode != "touch" or await self.capture.caught_up(state):
                paused = {"note": str(done), "paused": True}
                await self.step(state, PhaseStep(state.phase, str(done), paused))
        if self.part.present().pass_name != state.pass_name:
            await scan.delete()  # this process may have made them again since others deleted them
        return complete

    async def _watch(self, state: State) -> None:
        """End a pass in which stubs go once old code writes again: it may take hours."""
        while not self.interrupt.is_set():
            if await self.opened.must_watch(state):
                self.interrupt.set()
            with anyio.move_on_after(_WATCH_SECONDS):
                await self.interrupt.wait()

    async def _objection(self) -> str | None:
        opened, state = self.opened, self.part.present()
        if state.direction == "back":
            now = await opened.book.store.time(opened.clock)
            return await new_code_objection(opened.old_writes, now, state)
        return await objection(opened.errors, opened.old_writes, opened.clock, state)

    async def _said_of(self, left: int) -> str:
        said = self.part.present().phase in _ENDING and await self._objection()
        return said or _LEFT.format(left)

    async def _left(self, state: State) -> int | None:
        """Return how many items are not right; None if this process cannot know that yet.

        A change that is followed twice, because a process was killed, can raise an error that later
        changes resolve: an error counts only once those are followed, too. Where items were chosen,
        all changes are followed before the end: `verify` does not look at other items.
        """
        ends = state.phase == "verifying" and bool(state.keys_from)
        if not ends and not await self.part.work.failing():
            return 0
        # Nothing is followed any more while new items go.
        follows = state.phase != "dropping"
        if follows and not await self.capture.catches_up(state, self.interrupt):
            return None
        return await self.part.work.failing()

    async def _verified(self, state: State, left: int) -> None:
        """Continue after the verification, or wait until a person decides."""
        found = (await self.part.tallies.read(state.pass_name)).to_dict() | {"errors": left}
        end: Phase = "ready" if self.opened.migration.moves else "done"
        step = PhaseStep("rolled back" if state.direction == "back" else end, facts={"note": ""})
        if left:
            step = given_up(state, _LEFT.format(left))
        await self.step(state, replace(step, facts={**step.facts, "verified": found}))


def _takes_away(state: State) -> bool:
    """Return whether items are deleted after a pass, although other code may still write them."""
    return bool(state.stage or state.at_once) or state.phase == "following"
