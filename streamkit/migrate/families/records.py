"""Keep what both sides of each family last agreed on, in a pair record: an item of its own.

A pair record is a control item, which no application writes. Its name is the hash of the old item's
key. It holds that key, the base of both sides (see `settlement`), and which side is only stubs by
now. It is part of each transaction that writes the family, IF it is as it was read.
"""

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from streamkit.migrate.book.errors import error_id
from streamkit.migrate.book.state import GATES
from streamkit.migrate.families.settlement import OLD, Digests, Field
from streamkit.migrate.items.rewrites import Key, WireItem
from streamkit.migrate.sending.calls import Calls
from streamkit.model.conditions import Attr, absent
from streamkit.progress.actions import Action, Verb, own_attributes
from streamkit.progress.control import ControlSpace
from streamkit.progress.scan.places import place_of, place_text

_text = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class PairRecord:
    """What both sides of one family last agreed on.

    `old` is the key of the family. `left` says which side is only stubs: the old one at the end,
    the new one in a rollback.
    """

    old: Key
    base_old: Digests = field(default_factory=dict)
    base_new: Digests = field(default_factory=dict)
    left: Literal["", "old", "new"] = ""

    @property
    def places(self) -> set[str]:
        """The places of the new items."""
        return {place for place, _ in (*self.base_old, *self.base_new) if place != OLD}

    def expects(self, side: str, place: str) -> bool:
        """Return whether both sides last agreed that there is an item on a side, in a place."""
        if side == "new":
            return any(at == place for at, _ in self.base_new)
        several = {name for at, name in self.base_old if at == OLD}
        return place in several if several else bool(self.base_old)

    @property
    def text(self) -> str:
        """The record as it is stored: a digest that both sides have is there once."""
        fields: dict[str, dict[str, Any]] = {}
        for one in sorted(self.base_old.keys() | self.base_new.keys()):
            digests = [side.get(one, "") for side in (self.base_old, self.base_new)]
            place, name = one
            fields.setdefault(place, {})[name] = digests[0] if digests[0] == digests[1] else digests
        told = {"old": place_text(self.old), "left": self.left, "fields": fields}
        return _text(told)


def read_record(text: str) -> PairRecord:
    """Return a record from its stored text."""
    found = json.loads(text)
    sides: tuple[dict[Field, str], dict[Field, str]] = ({}, {})
    for place, fields in found["fields"].items():
        for name, digests in fields.items():
            both = [digests, digests] if isinstance(digests, str) else digests
            for side, one in zip(sides, both, strict=True):
                if one:
                    side[place, name] = one
    return PairRecord(place_of(found["old"]), *sides, left=found["left"])


@dataclass(frozen=True)
class PairRecords:
    """The pair records of one migration, by name."""

    space: ControlSpace
    migration: str
    calls: Calls

    @cached_property
    def _prefix(self) -> str:
        return self.space.text("pair", self.migration, "")

    async def read(self, name: str) -> PairRecord | None:
        """Read one, strongly consistent."""
        item = await self.stored(name)
        return None if item is None else self.of(item)

    async def stored(self, name: str) -> WireItem | None:
        """Read the item that one is stored in, strongly consistent."""
        key = self.space.key("pair", self.migration, name)
        return await self.calls.get(self.space.schema.name, key)

    def of(self, item: WireItem) -> PairRecord | None:
        """Return the record that an item is; None if it is none of this migration."""
        place = item.get(self.space.schema.pk, {}).get("S", "")
        if not place.startswith(self._prefix):
            return None
        return read_record(own_attributes(item)["state"]["S"])

    def gate(self, name: str, gate: str) -> Action:
        """Return the check that pairs are still made under what the state says."""
        copy = f"{int(name, 16) % GATES}"
        check = Action(self.space.ref("gate", self.migration, copy), Verb.CHECK)
        return check.only_if(Attr("state").eq(gate))

    def writes(self, before: PairRecord | None, after: PairRecord | None) -> Action:
        """Return the action that replaces a record IF it is as it was read."""
        at = before or after
        assert at is not None  # noqa: S101 - nothing else is asked for
        names = "pair", self.migration, error_id(at.old)
        if after is None:
            action = self.space.delete(*names)
        else:
            action = self.space.put({"state": {"S": after.text}}, *names)
        return action.only_if(absent if before is None else Attr("state").eq(before.text))
