"""Unparking: how a change leaves its lane.

In: a lane and its first change, as read. Out: one transaction. The lane's head moves to the next
change IF it is still this one, and the parked change is deleted IF it is there; the last one ends
the lane IF nothing was queued behind it, and takes it off its holds chunk. Whoever comes second
finds the conditions false. A change that failed again says so, and stays where it is; its lane says
when it is due next.
"""

import random
from collections.abc import Mapping, Sequence

from streamkit.actions import LANE, Action, GuardSource, Verb
from streamkit.control import ControlSpace
from streamkit.cursor import CursorStore
from streamkit.effects import Guard
from streamkit.model.conditions import Attr, Condition, absent, any_of, present
from streamkit.model.schema import TableSchema
from streamkit.parked.listing import HeldLane
from streamkit.processing.commit import BYTES_MAX, Invalid, Refused
from streamkit.processing.parking import Failure, Parked, waiting_state
from streamkit.processing.transaction import ACTIONS_MAX, transact


async def leave(
    store: CursorStore,
    schemas: Mapping[str, TableSchema],
    held: HeldLane,
    head: Parked,
    effects: Sequence[Action],
    rng: random.Random,
) -> Refused | Invalid | None:
    """Take the first change off its lane, together with its effects; None means that it is done."""
    advance = _advance(store.space, head)
    unhold, removal = _unhold(store.space, held, head), _removal(store.space, head)
    everything = [advance, *unhold, *removal, *effects]
    size = sum(action.size() for action in everything) + len(head.record)
    if len(everything) <= ACTIONS_MAX and size <= BYTES_MAX:
        return await transact(store.dynamodb, schemas, everything, rng)
    # The largest results leave room for the lane alone. Its condition is enough, because positions
    # are never used twice; a crash before the rest costs space, and a hold is an upper bound.
    sent = await transact(store.dynamodb, schemas, [advance, *effects], rng)
    if sent is None:
        if unhold:
            source = GuardSource(head.position, held.name, LANE)
            gone = [(Guard(absent), source)]  # not if it was held again meanwhile
            unhold.append(Action(advance.ref, Verb.CHECK, guards=gone))
        await _clean_up(store, schemas, unhold, removal, rng)
    return sent


async def stay(
    store: CursorStore,
    head: Parked,
    failure: Failure,
    tries: int,
    due: int | None,
    rng: random.Random,
) -> bool:
    """Say that the first change failed again, and when it is due next.

    Args:
        store: the consumer's control items.
        head: the change, as read.
        failure: why.
        tries: what the lane's count is from now on.
        due: epoch seconds; None means stuck.
        rng: jitter of repetitions.

    Returns:
        Whether it was written: not if somebody else got on with the lane meanwhile.
    """
    source = GuardSource(head.position, head.lane, LANE)
    change = store.space.update("parked", head.lane, head.position)
    change.sets |= {
        "error": {"S": failure.kind},
        "detail": {"S": failure.told(head.payload)},
        "attempts": {"N": str(head.attempts + failure.attempts)},
    }
    attempts = Attr("attempts")
    as_read: Condition = attempts.eq(head.attempts)
    if not head.attempts:  # parked unrun, or queued behind another one
        as_read = any_of(attempts.not_exists(), as_read)
    change.guards += [(Guard(present), source), (Guard(as_read), source)]
    lane = store.space.update("lane", head.lane)
    lane.sets |= {"tries": {"N": str(tries)}, **waiting_state(due)}
    lane.removes |= {"due", "stuck"} - lane.sets.keys()
    lane.guards.append((Guard(Attr("head").eq(head.position)), source))
    schemas = {store.space.schema.name: store.space.schema}
    return await transact(store.dynamodb, schemas, [lane, change], rng) is None


async def _clean_up(
    store: CursorStore,
    schemas: Mapping[str, TableSchema],
    unhold: Sequence[Action],
    removal: Sequence[Action],
    rng: random.Random,
) -> None:
    """Do what did not fit into the transaction that took a change off its lane."""
    for start in range(0, len(removal), ACTIONS_MAX):
        some = removal[start : start + ACTIONS_MAX]
        for action in some:
            action.guards.clear()
        await transact(store.dynamodb, schemas, some, rng)
    if unhold:
        await transact(store.dynamodb, schemas, unhold, rng)


def _advance(space: ControlSpace, head: Parked) -> Action:
    """Make the next change the first one, or end the lane."""
    source = GuardSource(head.position, head.lane, LANE)
    is_first = Attr("head").eq(head.position)
    if head.next is not None:
        action = space.update("lane", head.lane)
        action.sets["head"] = {"S": head.next}
        # Of the next one nothing is known.
        action.removes |= {"due", "tries", "stuck", "token", "served", "apart"}
        action.guards.append((Guard(is_first), source))
        return action
    action = space.delete("lane", head.lane)
    is_last = Attr("tail").eq(head.position)
    action.guards.append((Guard(is_first & is_last), source))
    return action


def _unhold(space: ControlSpace, held: HeldLane, head: Parked) -> list[Action]:
    """Take a lane that ends off its holds chunk."""
    if head.next is not None:
        return []
    action = space.update("holds", held.chunk)
    action.subtractions["lanes"] = {"SS": [held.name]}
    return [action]


def _removal(space: ControlSpace, head: Parked) -> list[Action]:
    """Delete a parked change, IF it is there, and the parts of its record."""
    parked = space.delete("parked", head.lane, head.position)
    source = GuardSource(head.position, head.lane, LANE)
    parked.guards.append((Guard(present), source))
    parts = (str(number) for number in range(head.parts))
    return [parked, *(space.delete("part", head.lane, head.position, n) for n in parts)]
