"""Leased cursors: read, create, take, release. Only this code changes a cursor's owner.

A cursor is taken IF it is as it was read (owner and epoch) and its generation is not above the
taker's. The take raises epoch and generation. The epoch is never reset, not even by a release, so
that a commit sent under an earlier lease can never be accepted under a later one. Commits are in
`commit`; they carry the same owner and epoch in their condition.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from operator import attrgetter
from typing import Any

import anyio

from streamkit.aws import AwsError, ErrorKind, patiently, trouble_of
from streamkit.effects import Guard
from streamkit.errors import LeaseLost
from streamkit.model.conditions import Attr, absent
from streamkit.progress.actions import (
    CHILD,
    OURS,
    Action,
    GuardSource,
    Verb,
    Wire,
    own_attributes,
    render,
)
from streamkit.progress.clock import Clock, CorrectedClock
from streamkit.progress.control import (
    DIRECTORIES,
    ControlSpace,
    Cursor,
    cursor_attributes,
    names_in,
    read_cursor,
    sets_of,
)
from streamkit.progress.fetch import fetch_all


def creation(space: ControlSpace, cursor: Cursor) -> list[Action]:
    """Return the actions that create a cursor, if it does not exist, and list it."""
    put = space.put(cursor_attributes(cursor), "cursor", cursor.name)
    put.guards.append((Guard(absent), GuardSource("", cursor.name, CHILD)))
    return [put, space.enter(cursor.name)]


def lease_guard(cursor: Cursor) -> tuple[Guard, GuardSource]:
    """Return the condition under which only a cursor's owner may write it.

    Owner and epoch fence zombies, and the generation fences workers of another roll-out. Position
    and commit id make a repeated or late commit harmless for ever: each commit makes them false.
    """
    condition = (
        Attr("owner").eq(cursor.owner)
        & Attr("epoch").eq(cursor.epoch)
        & Attr("generation").eq(cursor.generation)
        & Attr("position").eq(cursor.position)
        & Attr("commit").eq(cursor.commit)
    )
    return Guard(condition), OURS


def claim(cursor: Cursor) -> tuple[object, ...]:
    """Return what a commit's condition requires of the cursor, see `lease_guard`."""
    return cursor.owner, cursor.epoch, cursor.generation, cursor.position, cursor.commit


def advance(space: ControlSpace, now: Cursor, then: Cursor, commit: str) -> Action:
    """Return the action by which a commit moves its cursor, under the lease guard.

    Args:
        space: the consumer's control items.
        now: the cursor as its owner believes it to be.
        then: the cursor as it will be; owner, epoch and generation stay.
        commit: the commit's id.
    """
    action = space.update("cursor", now.name)
    action.sets |= {
        "position": {"S": then.position},
        "commit": {"S": commit},
        "seen": {"N": str(then.seen)},
    }
    if then.finished:
        action.sets |= {"state": {"S": then.state}, "ended": {"N": str(then.ended)}}
    before, after = _optional(now), _optional(then)
    action.sets |= {name: wire for name, wire in after.items() if before.get(name) != wire}
    action.removes |= before.keys() - after.keys()
    action.guards.append(lease_guard(now))
    return action


def _optional(cursor: Cursor) -> dict[str, Wire]:
    """Return the cursor attributes that a commit may change and that are absent when empty."""
    numbers = {"takes": cursor.takes, "tries": cursor.tries, "lost": cursor.lost}
    numbers["dated"] = cursor.dated
    found = sets_of(cursor)
    found |= {name: {"N": str(number)} for name, number in numbers.items() if number}
    return found | ({"trying": {"S": cursor.trying}} if cursor.trying else {})


@dataclass(frozen=True)
class CursorStore:
    """The cursors of one consumer, in the table.

    `patience` is the longest pause, in seconds, between two tries of a write.
    """

    dynamodb: Any
    space: ControlSpace
    patience: float = 10.0

    async def read(self, name: str) -> Cursor | None:
        """Read one cursor, strongly consistent; None if there is none."""
        item = await self.item("cursor", name)
        return None if item is None else read_cursor(item)

    async def item(self, kind: str, *names: str, fresh: bool = True) -> dict[str, Wire] | None:
        """Read a control item, strongly consistent unless it need not be `fresh`."""
        key = self.space.key(kind, *names)
        table = self.space.schema.name
        reply = await patiently(
            lambda: self.dynamodb.get_item(TableName=table, Key=key, ConsistentRead=fresh)
        )
        return own_attributes(reply["Item"]) if "Item" in reply else None

    async def time(self, clock: Clock) -> float:
        """Ask the table for its time, in whole epoch seconds; return the clock's if it has none.

        The clock that stamps changes is AWS's; this process's own may be minutes wrong.
        """
        key, table = self.space.key("consumer"), self.space.schema.name
        reply = await patiently(lambda: self.dynamodb.get_item(TableName=table, Key=key))
        return service_time(reply) or clock.time()

    async def clock(self, clock: Clock) -> Clock:
        """Return a clock that shows the table's time, as another one goes on."""
        return CorrectedClock(clock, await self.time(clock) - clock.time())

    async def names(self, *, fresh: bool = True) -> set[str]:
        """Read the directories: every cursor except finished ones that have children.

        They are read strongly consistent, unless they need not be `fresh`.
        """
        numbers = [("dir", str(number)) for number in range(DIRECTORIES)]
        return names_in(*await self.items(numbers, fresh=fresh))

    async def read_many(self, names: Iterable[str], *, fresh: bool = True) -> dict[str, Cursor]:
        """Read cursors by name, in the order of the names; missing ones are left out.

        They are read strongly consistent, unless they need not be `fresh`.
        """
        items = await self.items([("cursor", name) for name in sorted(names)], fresh=fresh)
        # A reply has no order, and workers that look at shards in another order choose others.
        cursors = sorted(map(read_cursor, items), key=attrgetter("name"))
        return {cursor.name: cursor for cursor in cursors}

    async def read_all(self) -> dict[str, Cursor]:
        """Read every cursor that the directories list."""
        return await self.read_many(await self.names())

    async def items(
        self, names: Iterable[Sequence[str]], *, fresh: bool = True
    ) -> list[dict[str, Wire]]:
        """Read many control items; missing ones are left out.

        They are read strongly consistent, unless they need not be `fresh`.
        """
        return await self.items_at([self.space.key(*name) for name in names], fresh=fresh)

    async def items_at(
        self, keys: Sequence[dict[str, Wire]], *, fresh: bool = True
    ) -> list[dict[str, Wire]]:
        """Read many control items by their keys, in the same way."""
        found = await fetch_all(self.dynamodb, self.space.schema.name, keys, fresh=fresh)
        return [own_attributes(item) for item in found]

    async def take(self, cursor: Cursor, owner: str, generation: int) -> Cursor:
        """Become the owner of a cursor as it was read, with the next epoch.

        Raises:
            LeaseLost: another worker changed its lease since, or its generation is above this one.
        """
        action = self.space.update("cursor", cursor.name)
        action.sets |= {
            "owner": {"S": owner},
            "epoch": {"N": str(cursor.epoch + 1)},
            "generation": {"N": str(generation)},
            "takes": {"N": str(cursor.takes + 1)},
        }
        condition = Attr("epoch").eq(cursor.epoch) & Attr("generation").lte(generation)
        if cursor.owner is None:
            condition = condition & Attr("owner").not_exists()
        else:
            condition = condition & Attr("owner").eq(cursor.owner)
        # After a death in the write below the lease has an owner that never beats: another worker
        # takes it after a lease. Without the generation in the condition a worker of an older
        # roll-out would take what it must not read any more (model `generations`, rule `take`).
        try:
            return read_cursor(await self.write(action.only_if(condition)))
        except LeaseLost:
            # The SDK repeats a call whose reply was lost; the first call may have taken the lease.
            now = await self.read(cursor.name)
            if now is None or now.owner != owner or now.epoch != cursor.epoch + 1:
                raise
            return now

    async def release(self, cursor: Cursor) -> None:
        """Give up a cursor; its epoch stays. It is no error if the lease is lost already."""
        action = self.space.update("cursor", cursor.name)
        action.removes |= {"owner", "takes", "trying", "tries"}
        condition = Attr("owner").eq(cursor.owner) & Attr("epoch").eq(cursor.epoch)
        # A death before the write only costs the next owner a lease of waiting. The epoch stays: if
        # it began at 0 again, a late commit of an earlier owner would be accepted (model
        # `leased_commit`, rule `keeps_epoch`).
        try:
            await self.write(action.only_if(condition))
        except LeaseLost:
            return

    async def write(self, action: Action) -> dict[str, Wire]:
        """Update or delete one control item under its guards; return it as it is then.

        Raises:
            LeaseLost: a guard does not hold.
        """
        return own_attributes((await self.sent(action)).get("Attributes", {}))

    async def sent(self, action: Action) -> Mapping[str, Any]:
        """Update or delete one control item under its guards, as `write`; return the reply."""
        (body,) = render(action, self.space.schema).values()
        call, shows = getattr(self.dynamodb, action.verb.alone), action.verb is Verb.UPDATE
        while True:
            try:
                return await patiently(
                    lambda: call(**body, ReturnValues="ALL_NEW" if shows else "NONE"),
                    longest=self.patience,
                )
            except AwsError as error:
                trouble = trouble_of(error)
                if trouble is ErrorKind.CONDITION:
                    raise LeaseLost(f"{action.ref.pk[1]} was changed by another worker") from None
                if trouble is not ErrorKind.CONFLICT:
                    raise
                await anyio.sleep(0.05)  # a transaction uses the item; it ends in milliseconds


def service_time(reply: Mapping[str, Any]) -> float | None:
    """Return when the service sent a reply, by its own clock; None if the reply does not say."""
    text = reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None
