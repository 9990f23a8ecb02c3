"""Pausing: a consumer, or one of its operations, waits until it is resumed, on every host.

Workers see a consumer's pause beside the members, functions in the consumer's item; one transaction
writes both. The processes of an operation see its pause in that item with their next step. The item
counts how often something was paused or resumed, so that a late command that other ones have
overtaken does nothing.

In: a consumer's control items. Out: it is paused, or is not. On failure: `ConfigurationError`.
"""

from dataclasses import replace
from functools import partial

from streamkit.errors import ConfigurationError
from streamkit.fleet.generation import Generation, newest_generation, transition
from streamkit.fleet.hosting import DELETING, WORKERS, check_host
from streamkit.fleet.members import MemberList
from streamkit.progress.cursor import CursorStore
from streamkit.progress.operation import AuditEntry, Operation, Step


async def set_paused(store: CursorStore, since: int, said: AuditEntry) -> str:
    """Pause a consumer's reading; `since` is when (epoch seconds), and 0 lets it continue.

    Returns:
        The consumer's host.

    Raises:
        ConfigurationError: there is no such consumer, it is being deleted, or another process has
            paused or resumed it meanwhile.
    """

    async def paused(newest: Generation) -> Step[Generation]:
        after = replace(newest, paused=since and (newest.paused or since))
        return Step(after, [MemberList(store).pausing(since)])

    after = await _consumer(store).command(paused, said)
    return after.host or WORKERS


async def set_held(
    store: CursorStore, operation: str, said: AuditEntry, *, paused: bool
) -> Generation:
    """Pause or resume one of a consumer's operations, as `Generation.marks` name them.

    Raises:
        ConfigurationError: it is not under way, or another process has paused or resumed something
            of this consumer meanwhile.
    """

    async def held(newest: Generation) -> Step[Generation]:
        if operation not in newest.marks:
            raise ConfigurationError(
                f"{store.space.consumer} has no {operation} that can be paused or resumed now"
            )
        mark = frozenset({newest.marks[operation]})
        known = newest.held & frozenset(newest.marks.values())
        return Step(replace(newest, held=known | mark if paused else known - mark))

    return await _consumer(store).command(held, said)


def _consumer(store: CursorStore) -> Operation[Generation]:
    """Return the operation of all that people pause in a consumer; no pause makes it wait."""
    return Operation(store, partial(_existing, store), partial(transition, store))


async def _existing(store: CursorStore) -> Generation:
    newest = await newest_generation(store)
    if newest is None:
        raise ConfigurationError(f"{store.space.consumer} has not run on this stream yet")
    if newest.host == DELETING:
        check_host(store.space.consumer, newest.host, WORKERS)
    return newest
