"""Membership: what each worker of a consumer reports, and how other workers tell that it is gone.

    join ──► beat every interval ──► leave          a name is new with every start, and never made
               │                                    again after its end
               └── its item is gone: it was swept as dead, and joins under a new name

A worker is *dead* when readings of its heartbeat, a lease duration apart on the reader's own
monotonic clock, show the same counter (the algorithm is the DynamoDB Lock Client's). Clocks of two
machines are never compared.

On a table with a sort key the members share one partition, and one query reads them all. On other
tables they share one item, whose writes grow with the fleet. A *paused* consumer is recorded beside
them, so that every worker sees it with its next look, and it costs no read of its own.
"""

import hashlib
import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from streamkit.model.conditions import Attr, Condition, present
from streamkit.progress.actions import Action, Verb, Wire, item_ref, own_attributes
from streamkit.progress.cursor import CursorStore, service_time
from streamkit.progress.fetch import pages_of

MemberState = Literal["joining", "active", "waiting", "unfit", "leaving"]
"""The state of a worker: `waiting` runs an older roll-out and stands by; `unfit` cannot read the
stream.
"""


_PAUSE = "paused"
"""Marks a paused consumer: the kind of its row, and the name of its attribute."""


def new_worker_name() -> str:
    """Return a name for one start of one worker process: where it runs, and a unique part."""
    return f"{socket.gethostname()[:40]}/{os.getpid()}/{uuid.uuid4().hex[:12]}"


@dataclass(frozen=True, slots=True)
class Member:
    """What a worker reports about itself.

    `at` is when it wrote this, by the table's clock, for people. `idle` says that its shards have
    nothing to read; `held` counts them. `claims` are tokens of leases that it wants to be given.
    `childless` are the shards that it read to the end before any child of them was listed. `news`
    counts how often it created shards for other workers, so that they look. `waits` names handlers
    that hold up shards, as `shard handler`: a change fails, and is tried until it succeeds.
    `follows` says that another consumer in its process decides which shards it holds, see
    `sharing`. `late` says that one of its heartbeats was late lately, see `starvation`. `used` is
    the capacity its calls have used, and `lately` what that was a while ago, see `usage`; a shared
    item has no room for `lately`. `refused` is what its archive refuses it, for people. `lease` is
    after how many seconds of silence it counts as dead by its own settings; 0 if it does not say.
    """

    name: str
    beats: int = 0
    at: int = 0
    fingerprint: str = ""
    generation: int = 0
    state: MemberState = "joining"
    weight: int = 1
    leads: bool = False
    idle: bool = False
    follows: bool = False
    late: bool = False
    used: str = ""
    lately: str = ""
    held: int = 0
    news: int = 0
    claims: frozenset[str] = frozenset()
    childless: frozenset[str] = frozenset()
    waits: frozenset[str] = frozenset()
    refused: str = ""
    lease: float = 0.0


_SETS = ("claims", "childless", "waits")
_LASTING = (
    *("fingerprint", "generation", "state", "weight", "leads", "follows", "late"),
    *("held", "news", "claims", "childless", "lease"),
)
"""What members report that other workers act on. `idle` is not among it: a worker that waits until
all are idle does not rely on cheap reads.
"""


def member_attributes(member: Member) -> dict[str, Wire]:
    """Return a member's item without its key; empty sets are left out."""
    attributes: dict[str, Wire] = {
        "name": {"S": member.name},
        "fingerprint": {"S": member.fingerprint},
        "state": {"S": member.state},
        "leads": {"BOOL": member.leads},
        "idle": {"BOOL": member.idle},
        "follows": {"BOOL": member.follows},
        "late": {"BOOL": member.late},
    }
    for name in ("beats", "at", "generation", "weight", "held", "news"):
        attributes[name] = {"N": str(getattr(member, name))}
    if member.used:
        attributes["used"] = {"S": member.used}
    if member.lately:
        attributes["lately"] = {"S": member.lately}
    if member.refused:
        attributes["refused"] = {"S": member.refused}
    if member.lease:
        attributes["lease"] = {"N": f"{member.lease:g}"}
    for name in _SETS:
        if values := getattr(member, name):
            attributes[name] = {"SS": sorted(values)}
    return attributes


def read_member(item: Mapping[str, Any]) -> Member:
    """Read a member from its item."""
    names = ("beats", "at", "generation", "weight", "held", "news")

    def texts(name: str) -> frozenset[str]:
        return frozenset(item[name]["SS"]) if name in item else frozenset()

    return Member(
        name=item["name"]["S"],
        fingerprint=item["fingerprint"]["S"],
        state=item["state"]["S"],
        leads=item["leads"]["BOOL"],
        idle=item["idle"]["BOOL"],
        follows=item.get("follows", {"BOOL": False})["BOOL"],
        late=item.get("late", {"BOOL": False})["BOOL"],
        used=item.get("used", {"S": ""})["S"],
        lately=item.get("lately", {"S": ""})["S"],
        **{name: int(item[name]["N"]) for name in names},
        claims=texts("claims"),
        childless=texts("childless"),
        waits=texts("waits"),
        refused=item.get("refused", {"S": ""})["S"],
        lease=float(item["lease"]["N"]) if "lease" in item else 0.0,
    )


class Attendance(msgspec.Struct, frozen=True):
    """The members by name, including dead ones that were not swept yet.

    `paused` is since when the consumer reads nothing (epoch seconds), 0 while it is not paused.
    """

    members: dict[str, Member]
    paused: int = 0

    def is_like(self, other: "Attendance") -> bool:
        """Return whether nothing but heartbeats, and what comes with each, has changed."""
        return self.paused == other.paused and self.lasting == other.lasting

    @property
    def lasting(self) -> dict[str, tuple[object, ...]]:
        """Return what each member reports that other workers act on."""
        return {
            name: tuple(getattr(member, fact) for fact in _LASTING)
            for name, member in self.members.items()
        }


@dataclass(frozen=True)
class MemberList:
    """The members' items (the member list)."""

    store: CursorStore

    @property
    def _has_rows(self) -> bool:
        return self.store.space.schema.sk is not None

    async def look(self, *, fresh: bool = True) -> Attendance:
        """Read the members, and whether the consumer is paused.

        The list is read strongly consistent, unless it need not be `fresh`.
        """
        if self._has_rows:
            rows = await self._query(fresh)
            members = [read_member(row) for row in rows if _PAUSE not in row]
            marks = [row[_PAUSE] for row in rows if _PAUSE in row]
        else:
            item = await self.store.item("members", fresh=fresh) or {}
            members = [read_member(entry["M"]) for entry in item.values() if "M" in entry]
            marks = [item[_PAUSE]] if _PAUSE in item else []
        paused = max((int(mark["N"]) for mark in marks), default=0)
        return Attendance({member.name: member for member in members}, paused)

    async def read(self) -> dict[str, Member]:
        """Return every member by name, including dead ones that were not swept yet."""
        return (await self.look()).members

    def pausing(self, since: int) -> Action:
        """Return the action that pauses every worker's reading; `since` is when, 0 resumes it."""
        space = self.store.space
        if self._has_rows:
            ref = item_ref(space.schema, space.row("members", 0))
            if not since:
                return Action(ref, Verb.DELETE)
            action = Action(ref, Verb.UPDATE, sets={"kind": {"S": _PAUSE}})
        else:
            action = space.update("members")
        if since:
            action.sets[_PAUSE] = {"N": str(since)}
        else:
            action.removes.add(_PAUSE)
        return action

    async def add(self, member: Member) -> float | None:
        """Create a worker's item; return the table's time, if the reply says it."""
        return service_time(await self.store.sent(self._update(member)))

    async def write(self, member: Member) -> float | None:
        """Write a worker's item; return the table's time, if the reply says it.

        Raises:
            LeaseLost: the item is gone, because another worker swept this worker as dead.
        """
        action = self._update(member)
        there: Condition = present if self._has_rows else Attr(_entry(member.name)).exists()
        return service_time(await self.store.sent(action.only_if(there)))

    async def remove(self, name: str) -> None:
        """Delete a worker's item."""
        if not self._has_rows:
            action = self.store.space.update("members")
            action.removes.add(_entry(name))
            await self.store.write(action)
            return
        ref = item_ref(self.store.space.schema, self._key(name))
        await self.store.write(Action(ref, Verb.DELETE))

    def _key(self, name: str) -> dict[str, Wire]:
        return self.store.space.row("members", int(_digest(name), 16))

    def _update(self, member: Member) -> Action:
        space, attributes = self.store.space, member_attributes(member)
        if not self._has_rows:
            attributes.pop("lately", None)
            action = space.update("members")
            action.sets[_entry(member.name)] = {"M": attributes}
            return action
        ref = item_ref(space.schema, self._key(member.name))
        gone = {*_SETS, "refused"} - attributes.keys()
        sets = {**attributes, "kind": {"S": "member"}}
        return Action(ref, Verb.UPDATE, sets=sets, removes=gone)

    async def _query(self, fresh: bool) -> list[dict[str, Wire]]:
        space = self.store.space
        replies = pages_of(
            self.store.dynamodb.query,
            TableName=space.schema.name,
            KeyConditionExpression="#p = :p",
            ExpressionAttributeNames={"#p": space.schema.pk},
            ExpressionAttributeValues={":p": {"S": space.text("members")}},
            ConsistentRead=fresh,
        )
        return [own_attributes(item) async for reply in replies for item in reply["Items"]]


def _digest(name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=15).hexdigest()


def _entry(name: str) -> str:
    """Return a member's attribute name in the shared item; a path may not hold dots."""
    return f"m{_digest(name)}"
