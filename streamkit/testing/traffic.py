"""Traffic: an application that acts for the users of a table, and knows what must follow.

    class Likes:
        async def open(self, writer: Writer) -> None:
            await writer.put(*(Brand(brand=brand) for brand in BRANDS))

        async def act(self, writer: Writer) -> None:
            like = BrandLike(brand=writer.rng.choice(BRANDS), username=writer.rng.choice(USERS))
            await (writer.put(like) if writer.rng.random() < 0.8 else writer.delete(like.item_key))

        def expected(self, final: Final) -> Iterator[Comparison]:
            counts = Counter(like.brand for like in final[BrandLike]).items()
            yield final.compare(BrandLikes, [BrandLikes(brand=b, likes=n) for b, n in counts])

`open` fills the table before anything else, `act` is one small action of a user, `expected`
computes from the application's writes what handlers must keep. A `Writer` makes plain requests, as
an application without streamkit does; effects only describe them.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from streamkit.aws import AwsError, code_of
from streamkit.effects import Delete, Effect, Put, Set
from streamkit.entity import Entity
from streamkit.model.keys import Key
from streamkit.progress.actions import OURS, render
from streamkit.progress.compile import compile_effect
from streamkit.table import Table
from streamkit.testing.final import Comparison, Final, Written

E = TypeVar("E", bound=Entity)

_CALLS = {"Put": "put_item", "Update": "update_item", "Delete": "delete_item"}
_REFUSED = frozenset({"ConditionalCheckFailedException", "TransactionCanceledException"})


@dataclass
class Writer:
    """One writer of the application.

    Attributes:
        table: the table, for reads.
        rng: seeded chance.
        time: a function that returns epoch seconds.
        log: the writes, in order, of all writers that share it.
    """

    table: Table
    dynamodb: Any
    rng: random.Random
    time: Callable[[], float]
    log: list[Written] = field(default_factory=list)

    @property
    def now(self) -> datetime:
        """Return the time, in UTC."""
        return datetime.fromtimestamp(self.time(), UTC)

    async def write(self, *effects: Effect) -> bool:
        """Make writes one by one; return whether the conditions (`only_if`) of all writes held.

        `otherwise` has no effect here: a refused write is left out.
        """
        return all([await self._one(effect) for effect in effects])

    async def transact(self, *effects: Effect) -> bool:
        """Make writes in one transaction; return whether its conditions held."""
        entries = [self._rendered(effect) for effect in effects]
        return await self._call("transact_write_items", {"TransactItems": entries}, effects)

    async def put(self, *items: Entity) -> None:
        """Write whole items."""
        for item in items:
            await self._one(Put(item))

    async def update(self, key: Key[Any], **fields: Any) -> None:
        """Set some fields of an item, with the keys of indexes that follow."""
        await self._one(Set(key, **fields))

    async def delete(self, *keys: Key[Any]) -> None:
        """Delete items, whether they are there or not."""
        for key in keys:
            await self._one(Delete(key))

    async def _one(self, effect: Effect) -> bool:
        ((verb, request),) = self._rendered(effect).items()
        return await self._call(_CALLS[verb], request, (effect,))

    def _rendered(self, effect: Effect) -> dict[str, dict[str, Any]]:
        table = self.table if effect.table is None else self.table.of(effect.table)
        return render(compile_effect(effect, table.schema, OURS), table.schema)

    async def _call(
        self, operation: str, request: dict[str, Any], effects: Iterable[Effect]
    ) -> bool:
        try:
            await getattr(self.dynamodb, operation)(**request)
        except AwsError as error:
            if code_of(error) in _REFUSED:
                return False
            raise
        self.log += [Written(effect, self.now) for effect in effects]
        return True


class Traffic(Protocol):
    """An application that writes, and knows what must follow; one object serves one run."""

    async def open(self, writer: Writer) -> None:
        """Write the items that are there before anything else happens."""

    async def act(self, writer: Writer) -> None:
        """Do one small action: some reads, one or a few writes."""

    def expected(self, final: Final) -> Iterable[Comparison]:
        """Compare what handlers keep with what it must be, computed in plain Python."""
