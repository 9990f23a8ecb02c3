"""Fenced writes: control items are made and deleted IF one of them is still as it was read.

A process that looks and then acts may stand still in between. Meanwhile other processes may do the
same, delete the consumer, and found another one of its name, whose items have the same keys. So
each transaction is conditional on what the decision was based on: the consumer's own item, or the
state of an operation. On failure: `LeaseLost`, and nothing was done.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamkit.errors import LeaseLost
from streamkit.model.conditions import Condition
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import OURS, Action, Verb, Wire, item_ref
from streamkit.progress.cursor import CursorStore
from streamkit.progress.fetch import fetch_all
from streamkit.progress.transaction import transact
from streamkit.progress.verdicts import Invalid, RefusedCommit

TOGETHER = 99
"""The most actions of one transaction, beside its fence."""


@dataclass(frozen=True)
class Fenced:
    """Writes control items of one consumer IF one of them is `still` the same.

    `names` are the kind and the names of that one; it is the consumer's own item by default.
    `beside` are other tables that the transactions write to.
    """

    store: CursorStore
    still: Condition
    rng: random.Random
    names: Sequence[str] = ("consumer",)
    beside: Sequence[TableSchema] = ()

    async def apply(self, actions: Sequence[Action]) -> bool:
        """Apply up to 99 actions, or none; one of them may be on the item itself.

        Returns:
            Whether they were applied: False if one of their own conditions did not hold.

        Raises:
            LeaseLost: the item has changed, or DynamoDB finds an action invalid.
        """
        return await self.send(actions, self.rng) is None

    async def send(self, actions: Sequence[Action], rng: random.Random) -> RefusedCommit | None:
        """Apply actions like `apply`, and return which of their own conditions did not hold.

        Raises:
            LeaseLost: the item has changed, or DynamoDB finds an action invalid.
        """
        item = self.store.space.ref(*self.names)
        mine = [action for action in actions if action.ref == item]
        fence = mine[0] if mine else Action(item, Verb.CHECK)
        fence.only_if(self.still)
        everything = actions if mine else [*actions, fence]
        schemas = {one.name: one for one in (*self.beside, self.store.space.schema)}
        sent = await transact(self.store.dynamodb, schemas, everything, rng)
        if sent is not None and (isinstance(sent, Invalid) or OURS in sent.sources):
            raise LeaseLost(f"{item.pk[1]} was changed meanwhile")
        return sent

    async def apply_all(self, actions: Sequence[Action]) -> None:
        """Apply any number of actions without conditions, at most `TOGETHER` per transaction.

        They go one after the other, because transactions that share the fence's item refuse each
        other.

        Raises:
            LeaseLost: the item has changed.
        """
        for start in range(0, len(actions), TOGETHER):
            await self.apply(actions[start : start + TOGETHER])

    async def delete(self, keys: Sequence[dict[str, Wire]]) -> int:
        """Delete items by their keys, at most `TOGETHER` per transaction.

        Raises:
            LeaseLost: the item has changed.
        """
        schema = self.store.space.schema
        await self.apply_all([Action(item_ref(schema, key), Verb.DELETE) for key in keys])
        return len(keys)

    async def delete_there(self, keys: Sequence[dict[str, Wire]]) -> int:
        """Delete those of these items that exist; return how many there were.

        Raises:
            LeaseLost: the item has changed.
        """
        schema: Any = self.store.space.schema
        found = await fetch_all(self.store.dynamodb, schema.name, keys)
        names = [name for name in (schema.pk, schema.sk) if name is not None]
        return await self.delete([{name: item[name] for name in names} for item in found])
