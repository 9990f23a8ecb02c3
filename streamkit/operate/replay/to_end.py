"""Replay to the end: all changes since a moment run again, in order, beside the live handlers.

    begin    a consumer of its own, with a cursor for each shard; a process that goes on raises
             its generation and takes the cursors, so that what an earlier one has sent is refused
    run      each shard's changes in order, parents first; effects and cursor in one transaction
    end      a shard is done once its cursor is nowhere behind the app's, which is read after the
             replay's last commit; when all are done, the consumer is deleted

On the way a target may go back to what an older change made of it. It is right again at the end,
because the last change of each item then ran here after it ran live, or will still run live. So it
must not be given up half way (model `old_changes`): the consumer stays until the end is reached,
`status` shows it, and the same command goes on with it. It may go on from any change: it ends
right, as long as it gets to the end.

In: handlers that say what is to be, and an app that workers run, in this version. Out: counts. On
failure: see `run`, which runs the changes. Only two kinds of changes are passed over:
records that cannot be read, and mirrors' changes with too many copies, which mirrors do not need
to be right.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

from streamkit.core.handler import fingerprint_of
from streamkit.errors import LeaseLost
from streamkit.fleet.directory import ConsumerEntry, enter
from streamkit.fleet.generation import Generation, newest_generation, write_generation
from streamkit.fleet.hosting import DELETING, REPLAYING, WORKERS
from streamkit.fleet.rewinding import finish_rewind
from streamkit.operate.deletion import erase_consumer
from streamkit.operate.past.past import PastChanges
from streamkit.operate.replay.parts import ReplayParts
from streamkit.operate.replay.report import Replayed, ReplayRefused, asked_for, replay_name
from streamkit.operate.replay.run import ReplayRun
from streamkit.progress.control import ControlSpace
from streamkit.progress.cursor import CursorStore
from streamkit.progress.operation import said_of


@dataclass
class ReplayToEnd:
    """One process that runs a replay to the end, or goes on with it."""

    parts: ReplayParts
    past: PastChanges

    def __post_init__(self) -> None:
        """Prepare the handlers."""
        parts = self.parts
        self.live = parts.tables.store(parts.app, parts.machine.aws)
        self.own = CursorStore(self.live.dynamodb, own_space(self.live))
        self.report = parts.report()

    async def run(self) -> Replayed:
        """Replay to the end; a report that is `under_way` says that a change has failed.

        Raises:
            ReplayRefused: it cannot begin, or go on.
            RetentionLost: the archive lacks changes.
        """
        try:
            await self._require_live()
            begun = await self._begin()
            run = ReplayRun(self.parts, self.past, self.live, self.own, begun, self.report)
            if await run.run():
                await self._end(begun)
                # A process before this one may have read what this one did not have to.
                self.report.missing.extend(self.parts.unseen() if begun.number == 1 else ())
            else:
                self.report.stop()
        except LeaseLost:
            raise ReplayRefused(["another process goes on with this replay; this one ends"]) from (
                None
            )
        self.report.losses.extend(self.past.losses)
        return self.report

    async def _require_live(self) -> None:
        """Refuse unless workers run the app in this version: they would undo what runs here.

        Raises:
            ReplayRefused: they do not.
        """
        newest, app = await newest_generation(self.live), self.parts.app
        if newest is None:
            raise ReplayRefused([f"{app.name} has never run on this stream"])
        if newest.host not in ("", WORKERS):
            raise ReplayRefused([f"{app.name} is not run by workers, whose cursors say the end"])
        if newest.fingerprint != app.fingerprint():
            raise ReplayRefused(
                [f"{app.name} is deployed with other handlers; replay with the code that is"]
            )
        if newest.rewinding or newest.asks:
            raise ReplayRefused([f"{app.name} is being rewound, which runs all of it again"])

    async def _begin(self) -> Generation:
        """Found the consumer of this replay, or go on with it under the next generation."""
        newest = await newest_generation(self.own)
        if newest is not None and newest.host == DELETING:
            await self._erase(newest)  # one that had ended, or was forgotten
            newest = None
        wanted, asked = fingerprint_of(self.parts.handlers), asked_for(self.parts.wish)
        said = said_of(self.parts.machine.clock, f"replay to the end: {asked}")
        if newest is None:
            founded = Generation(1, wanted, (wanted,), {}, frozenset(), host=REPLAYING)
            since, now = int(self.parts.wish.since), int(self.parts.machine.clock.time())
            founded = replace(founded, since=since, founded=now, start=asked)
            founded = replace(founded, incarnation=uuid.uuid4().hex[:8]).noted(said)
            await write_generation(
                self.own, None, founded, [enter(self.own.space, self.parts.app.table)]
            )
            return founded
        if newest.host != REPLAYING or newest.start != asked:
            raise ReplayRefused(self._other(newest))
        # Other code begins again: change by change, it overwrites what the code before has done.
        anew = newest.rewinding or newest.fingerprint != wanted
        begun = replace(newest, number=newest.number + 1, fingerprint=wanted, known=(wanted,))
        begun = replace(begun, rewinding=anew).noted(said)
        await write_generation(self.own, newest, begun)
        if anew:
            await finish_rewind(self.own, begun)
        return replace(begun, rewinding=False)

    def _other(self, newest: Generation) -> Iterator[str]:
        name, table = self.own.space.consumer, self.parts.app.table
        if newest.host != REPLAYING:
            yield f"{name} is a consumer already; this replay would need its name"
            return
        yield (
            f"another replay to the end is under way, and must get there first: {newest.start}."
            f" One that is as early, of the same handlers, goes over what it has done: to begin it"
            f" instead, streamkit consumers delete {name} --table {table} --yes"
        )

    async def _end(self, begun: Generation) -> None:
        """Delete the consumer, IF no other process has gone on with it."""
        await self._require_live()
        await self._erase(begun)

    async def _erase(self, newest: Generation) -> None:
        space = self.own.space
        entry = ConsumerEntry(self.parts.app.table, space.consumer, space.label)
        await erase_consumer(self.own, entry, newest)


def own_space(live: CursorStore) -> ControlSpace:
    """Return where the replay to the end of an app's consumer keeps its control items."""
    return replace(live.space, consumer=replay_name(live.space.consumer))
