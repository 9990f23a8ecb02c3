"""Control items: what streamkit keeps in the table, with its keys and shapes. Pure.

They are in the streamed table itself (or in the app's `control_table`) under the reserved prefix
`_sk#`, spread over many partition keys. They are named by consumer *and* stream label, because a
restored table brings the control items of another stream. None has an attribute of an index. Kinds:

    consumer   generation, fingerprints of the handlers seen so far
    cursor     a shard's position, lease and state; the lister is a cursor too, and so is each
               segment of a scan
    dir        sets of cursor names; finished cursors are found as the parents of their children
    members    the workers' heartbeats, one item each where the table has a sort key
    holds      names of parked queues, referenced by cursors
    lane       a parked queue: head and tail of its parked changes
    parked     one parked change (its record in `part` items when large)
    mark       how far one source item is done, where Lambda functions run the consumer
    done       that a `Completed` effect was applied, until it expires
    trial      how often a function was begun with a record and did not end
    left       how many items a build of an aggregate has left out
    ledger     what of one source item an aggregate holds, while it is rebuilt; see `ledger`
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from streamkit.errors import ConfigurationError, InvariantError
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import CONTROL_PREFIX, Action, ItemRef, Verb, Wire, item_ref

DIRECTORIES = 16
"""The directory items of a consumer: 10,000 open shards make about 25 KB in each."""
START = "TRIM_HORIZON"
"""The position of a cursor that has read nothing: from the oldest record of its shard."""

_SORT_VALUES = {"S": "_sk", "N": "0", "B": b"_sk"}


@dataclass(frozen=True, slots=True)
class Cursor:
    """A leased position, as its item says.

    `position` is zero-padded to 40 digits, or `START`. `dated` is when the change at `position` was
    created; for `START` it is the earliest moment for any change; 0 is unknown, or known to be
    trimmed. `done` holds `position:handler` for the handlers that are done with a change after
    `position` whose results did not fit in one commit. `seen` is when the shard was last known to
    be read up to its tip, `since` from when on changes are this consumer's, `lost` when changes may
    have been lost, all in epoch seconds.

    `live` names the builds of aggregates that the shard counts for without their ledger, see
    `builds`. `joined` holds `position:handler` for handlers that had a consumer of their own, which
    is done up to that position: they are passed over until then.

    `root` is the lineage root by which the shard is assigned to workers. An only child inherits its
    parent's, so that shards that roll over stay where they are. `takes` counts owners in a row
    under which nothing was committed; `trying` and `tries` say which change an owner was about to
    run when it vanished.
    """

    name: str
    parent: str | None = None
    position: str = START
    state: str = "active"
    owner: str | None = None
    epoch: int = 0
    generation: int = 0
    commit: str = "-"
    dated: int = 0
    done: frozenset[str] = frozenset()
    chunks: frozenset[str] = frozenset()
    children: frozenset[str] = frozenset()
    live: frozenset[str] = frozenset()
    joined: frozenset[str] = frozenset()
    seen: int = 0
    ended: int = 0
    root: str = ""
    since: int = 0
    lost: int = 0
    takes: int = 0
    trying: str = ""
    tries: int = 0

    @property
    def finished(self) -> bool:
        """Return whether the shard was read to its end and everything in it is committed."""
        return self.state == "finished"

    def is_done(self, handler: str, position: str) -> bool:
        """Return whether a handler that has joined was done with a change before it did."""
        marks = (mark.partition(":") for mark in self.joined)
        return any(position <= upto and name == handler for upto, _, name in marks)

    def joined_after(self, position: str) -> frozenset[str]:
        """Return the marks of `joined` that lie after a position; before it they say nothing."""
        if position == START:
            return self.joined
        return frozenset(mark for mark in self.joined if mark.partition(":")[0] > position)

    @property
    def dates_children(self) -> int:
        """Return the moment before which no change of its children was created; 0 is unknown."""
        return self.seen if self.dated else 0


@dataclass(frozen=True)
class ControlSpace:
    """The control items of one consumer of one stream."""

    schema: TableSchema
    consumer: str
    label: str
    _sort: Wire = field(default_factory=dict)

    @classmethod
    def of(cls, schema: TableSchema, consumer: str, label: str) -> "ControlSpace":
        """Return the control items of a consumer, if the table can hold them.

        Raises:
            ConfigurationError: its partition key is not a string.
        """
        if schema.pk_type != "S":
            raise ConfigurationError(
                f"table {schema.name}: its partition key {schema.pk!r} is of type {schema.pk_type},"
                " and streamkit's control items need a string key; give the app a"
                " control_table= with a string partition key"
            )
        sort_type = schema.sk_type or "S"
        return cls(schema, consumer, label, {sort_type: _SORT_VALUES[sort_type]})

    def text(self, kind: str, *names: str) -> str:
        """Return the partition key of a control item."""
        return "#".join((f"{CONTROL_PREFIX}{self.consumer}", self.label, kind, *names))

    def key(self, kind: str, *names: str) -> dict[str, Wire]:
        """Return the key of a control item in wire form."""
        key: dict[str, Wire] = {self.schema.pk: {"S": self.text(kind, *names)}}
        if self.schema.sk is not None:
            key[self.schema.sk] = self._sort
        return key

    def ref(self, kind: str, *names: str) -> ItemRef:
        """Return the reference of a control item."""
        return item_ref(self.schema, self.key(kind, *names))

    def row(self, kind: str, number: int) -> dict[str, Wire]:
        """Return the key of one of the items that share a partition, by its number.

        This needs a table with a sort key.
        """
        if self.schema.sk is None:
            raise InvariantError("this table has no sort key")
        values = {"S": f"_sk{number:040d}", "N": str(number), "B": number.to_bytes(16)}
        sk_type = self.schema.sk_type or "S"
        sk: Wire = {sk_type: values[sk_type]}
        return {self.schema.pk: {"S": self.text(kind)}, self.schema.sk: sk}

    def put(self, attributes: Mapping[str, Wire], kind: str, *names: str) -> Action:
        """Return an action that writes a whole control item."""
        return Action(self.ref(kind, *names), Verb.PUT, item={**attributes, "kind": {"S": kind}})

    def update(self, kind: str, *names: str) -> Action:
        """Return an action that begins an update of a control item."""
        return Action(self.ref(kind, *names), Verb.UPDATE, sets={"kind": {"S": kind}})

    def delete(self, kind: str, *names: str) -> Action:
        """Return an action that deletes a control item."""
        return Action(self.ref(kind, *names), Verb.DELETE)

    def directory(self, cursor_name: str) -> str:
        """Return the name of the directory item that lists a cursor."""
        digest = hashlib.blake2b(cursor_name.encode(), digest_size=2).digest()
        return str(int.from_bytes(digest) % DIRECTORIES)

    def with_name(self, name: str, kind: str, *names: str, among: str = "names") -> Action:
        """Return the action that adds a name to those that an item holds, see `names_in`."""
        action = self.update(kind, *names)
        action.unions[among] = {"SS": [name]}
        return action

    def without_name(self, name: str, kind: str, *names: str, among: str = "names") -> Action:
        """Return the action that takes a name off those that an item holds."""
        action = self.update(kind, *names)
        action.subtractions[among] = {"SS": [name]}
        return action

    def enter(self, cursor_name: str) -> Action:
        """Return the action that enters a cursor in its directory."""
        return self.with_name(cursor_name, "dir", self.directory(cursor_name))

    def leave(self, cursor_name: str) -> Action:
        """Return the action that takes a cursor off its directory."""
        return self.without_name(cursor_name, "dir", self.directory(cursor_name))


def names_in(*items: Mapping[str, Any] | None, among: str = "names") -> set[str]:
    """Return the names that control items hold; None is an item that is not there."""
    return {name for item in items if item for name in item.get(among, {"SS": []})["SS"]}


_COUNTED = ("epoch", "generation", "seen", "ended")
"""The numbers of a cursor that its item always has."""
_NUMBERS = (*_COUNTED, "since", "lost", "dated", "takes", "tries")


def cursor_attributes(cursor: Cursor) -> dict[str, Wire]:
    """Return a cursor's item without its key."""
    attributes: dict[str, Wire] = {n: {"N": str(getattr(cursor, n))} for n in _COUNTED}
    for name in ("name", "position", "state", "commit"):
        attributes[name] = {"S": getattr(cursor, name)}
    for name, text in (("parent", cursor.parent), ("owner", cursor.owner), ("seat", cursor.root)):
        if text:
            attributes[name] = {"S": text}
    for name, number in (("since", cursor.since), ("lost", cursor.lost), ("dated", cursor.dated)):
        if number:
            attributes[name] = {"N": str(number)}
    return attributes | sets_of(cursor)


def sets_of(cursor: Cursor) -> dict[str, Wire]:
    """Return the sets of names of a cursor's item; empty ones are left out."""
    sets = {"done": cursor.done, "holds": cursor.chunks, "children": cursor.children}
    sets |= {"live": cursor.live, "joined": cursor.joined}
    return {name: {"SS": sorted(names)} for name, names in sets.items() if names}


def read_cursor(item: Mapping[str, Any]) -> Cursor:
    """Read a cursor from its item in wire form."""

    def text(name: str) -> str | None:
        return item[name]["S"] if name in item else None

    def names(name: str) -> frozenset[str]:
        return frozenset(item[name]["SS"]) if name in item else frozenset()

    return Cursor(
        name=item["name"]["S"],
        parent=text("parent"),
        position=item["position"]["S"],
        state=item["state"]["S"],
        owner=text("owner"),
        commit=item["commit"]["S"],
        done=names("done"),
        chunks=names("holds"),
        children=names("children"),
        live=names("live"),
        joined=names("joined"),
        root=text("seat") or item["name"]["S"],
        trying=text("trying") or "",
        **{name: int(item[name]["N"]) for name in _NUMBERS if name in item},
    )


def child_of(
    name: str,
    parent: Cursor | None,
    *,
    generation: int,
    parent_name: str | None,
    since: int = 0,
    heir: bool = False,
) -> Cursor:
    """Make the cursor of a newly found shard: the one place where cursors come from.

    A child copies what its parent's finished cursor carries: queued keys, the builds it is live
    for, from when on changes count, and up to when all is read. Its own records are younger than
    its parent's, so that moment dates its start, unless the parent's own is unknown. A shard whose
    parent is gone starts at the oldest record that is still there. No cursor starts in an older
    generation than its parent's, or than that of its maker.

    Args:
        name: the shard.
        parent: its parent's cursor, if there is one.
        generation: the generation of the process that makes it.
        parent_name: the parent's shard, if it has one.
        since: for a cursor without a parent.
        heir: whether the child inherits its parent's lineage root; one child does.
    """
    fresh = Cursor(name=name, parent=parent_name, generation=generation, root=name, since=since)
    if parent is None:
        return fresh
    return replace(
        fresh,
        generation=max(parent.generation, generation),
        chunks=parent.chunks,
        live=parent.live,
        seen=parent.seen,
        dated=parent.dates_children,
        since=parent.since,
        root=parent.root if heir else name,
    )


@dataclass(slots=True)
class QueuedKey:
    """A parked queue as its shard's owner knows it; `tail` is None until its item was read."""

    chunk: str
    tail: str | None = None
