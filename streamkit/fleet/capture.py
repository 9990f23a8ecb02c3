"""Capture: move every shard of a consumer into a generation, so that no older one can commit.

A cursor is raised without asking its owner. From then on the commits of a worker of an older
generation are refused, and it comes back in the new one. The lister's cursor is raised too, so that
new cursors are made in the new generation. In: the generation's number. Out: nothing. The call
returns once one look has found all cursors raised, with no commit of the lister during the look:
only the lister removes names from the directories, so none was overlooked between two reads.

On failure: a table that does not answer raises; any number of processes may do the same at once.
Cursors are raised IF the consumer is the one that was read. A consumer that was founded later under
its name starts at generation 1, and none of its workers would take a cursor above that.
"""

import random
from collections.abc import Iterable

from streamkit.effects import Guard
from streamkit.errors import ConfigurationError
from streamkit.fleet.cursors import LISTER
from streamkit.fleet.generation import Generation, same_consumer
from streamkit.fleet.taken import is_over
from streamkit.model.conditions import Attr
from streamkit.progress.actions import CHILD, Action, GuardSource
from streamkit.progress.control import Cursor
from streamkit.progress.cursor import CursorStore
from streamkit.progress.fenced import TOGETHER, Fenced


async def capture(
    store: CursorStore, newest: Generation, *, read: bool = True, stopped: bool = False
) -> None:
    """Raise every cursor to a generation of a consumer.

    Args:
        store: the consumer's control items.
        newest: the generation, as it was read or begun.
        read: whether a consumer that has not read the stream yet is an error.
        stopped: whether no worker is alive, as far as is known. Then many cursors are raised in
            one transaction; while workers commit, each commit would make that start again.

    Raises:
        ConfigurationError: no worker of the consumer has ever run.
        LeaseLost: the consumer was deleted, or another one was founded in its place.
    """
    number, together = newest.number, TOGETHER if stopped else 1
    fenced = Fenced(store, same_consumer(newest), random.Random())
    while True:
        lister = await store.read(LISTER)
        if lister is None and read:
            raise ConfigurationError(
                f"no worker of {store.space.consumer} has read this stream yet; start one first"
            )
        listed = await _open(store)
        behind = [c for c in (lister, *listed) if c is not None and c.generation < number]
        for start in range(0, len(behind), together):
            # The owners are not asked: one that is frozen would never answer. After a death some
            # are raised, and the same command raises the rest.
            some = behind[start : start + together]
            applied = await fenced.apply([_raising(store, cursor, number) for cursor in some])
            for cursor in some if stopped and not applied else ():
                # Another process has raised one of them, which has refused all.
                await fenced.apply([_raising(store, cursor, number)])
        # The lister may have created cursors during the look, in the old generation (model
        # `generations`, rule `lister`): then its commit id has changed, and all is read again.
        after = await store.read(LISTER)
        if not behind and _state(after) == _state(lister):
            return


def _state(lister: Cursor | None) -> tuple[int, str] | None:
    return None if lister is None else (lister.epoch, lister.commit)


async def _open(store: CursorStore) -> Iterable[Cursor]:
    """Read the cursors in the directories, and the children of those that are finished by now."""
    found: dict[str, Cursor] = {}
    wanted = await store.names()
    while wanted:
        read = await store.read_many(wanted)
        found |= read
        wanted = {child for c in read.values() for child in c.children} - found.keys() - wanted
    return [cursor for cursor in found.values() if not is_over(cursor)]


def _raising(store: CursorStore, cursor: Cursor, number: int) -> Action:
    action = store.space.update("cursor", cursor.name)
    action.sets["generation"] = {"N": str(number)}
    behind = Guard(Attr("generation").lt(number))
    action.guards.append((behind, GuardSource("", cursor.name, CHILD)))
    return action
