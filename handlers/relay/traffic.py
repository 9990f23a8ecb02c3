"""The application of the demo: customers order, and a shop ships."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

from handlers.relay.arrived import Arrived, recorded
from handlers.relay.entities import Follower, Order
from handlers.relay.handlers import INLINE, CustomerOrders
from streamkit import Attr, Delete, Put, Set, absent
from streamkit.sinks.body import to_plain
from streamkit.testing.final import Comparison, Final
from streamkit.testing.traffic import Writer

FOLLOWERS = {"ann": 3, "bob": 0, "cat": INLINE + 6, "dan": 1}
"""How many followers each customer has; one has so many that they are told beside the shard."""

EVERY_CHANGE = ("queue", "live", "lake")
KEEPING = ("rows", "documents")


class Traffic:
    """Customers and a shop.

    Args:
        outside: returns what has arrived in real places; without it, the recorders are read.
    """

    def __init__(self, outside: Callable[[], Arrived] | None = None) -> None:
        self._outside = outside
        self._made = 0
        self._orders: list[tuple[str, str]] = []

    async def open(self, writer: Writer) -> None:
        """Choose the followers of each customer; they do not change afterwards."""
        for customer, count in FOLLOWERS.items():
            names = [f"{customer}{number}" for number in range(count)]
            await writer.put(*(Follower(customer=customer, username=name) for name in names))

    async def act(self, writer: Writer) -> None:
        """Order something, or change an order IF it is unchanged since it was read."""
        rng, chance = writer.rng, writer.rng.random()
        if chance < 0.45 or not self._orders:
            await self._place(writer)
            return
        customer, order_id = rng.choice(self._orders)
        order = await writer.table.get(Order.key(customer=customer, order_id=order_id))
        if order is None:
            return
        as_read = Attr("revision").eq(order.revision)
        if chance < 0.7 and order.status == "PLACED":
            change = Set(order.item_key, status="SHIPPED", revision=order.revision + 1)
            await writer.write(change.only_if(as_read))
        elif chance < 0.85:
            total = Decimal(rng.randrange(1, 10**6)) / 100
            change = Set(order.item_key, total=total, revision=order.revision + 1)
            await writer.write(change.only_if(as_read))
        else:
            await writer.write(Delete(order.item_key).only_if(as_read))

    async def _place(self, writer: Writer) -> None:
        rng = writer.rng
        self._made += 1
        soon = writer.now + timedelta(seconds=rng.uniform(1, 10))
        order = Order(
            customer=rng.choice(list(FOLLOWERS)),
            order_id=f"{self._made:06}",
            total=Decimal(rng.randrange(1, 10**6)) / 100,
            expires=soon if rng.random() < 0.2 else None,
        )
        await writer.write(Put(order).only_if(absent))
        self._orders.append((order.customer, order.order_id))

    # -- what must have arrived ----------------------------------------------------------------

    def expected(self, final: Final) -> Iterator[Comparison]:
        """Compare everything outside with the table, and with what was written."""
        arrived = self._outside() if self._outside else recorded(final.sent, KEEPING)
        history = _History(final)
        yield final.compare(CustomerOrders, _sums(final))
        for name in KEEPING:
            wanted = {f"{o.item_key.pk}/{o.item_key.sk}": to_plain(o) for o in final[Order]}
            yield Comparison.of(f"{name}: all orders", arrived.kept[name], wanted)
        for name in EVERY_CHANGE:
            found = _by_order(arrived, name, sort=name == "lake")
            yield Comparison.of(f"{name}: every change", found, history.revisions)
        shipped = Counter(dict.fromkeys(history.shipped, 1))
        for name in ("topic", "bus"):
            told = Counter(arrival.body["order_id"] for arrival in arrived.once(name))
            yield Comparison.of(f"{name}: what is shipped", told, shipped)
        posts = Counter((a.body["order_id"], a.body["to"]) for a in arrived.once("hook"))
        wanted_posts = {
            (order_id, f"{customer}{number}"): 1
            for order_id, customer in history.shipped.items()
            for number in range(FOLLOWERS[customer])
        }
        yield Comparison.of("hook: who is told", posts, wanted_posts)
        kept = Counter(arrival.body["order_id"] for arrival in arrived.once("archive"))
        yield Comparison.of("archive: what expired", kept, dict.fromkeys(history.expired, 1))


class _History:
    """What became of each order, as the application's log and the table at the end say.

    Every write is based on the revision before, so that counting the writes gives the revisions.
    """

    def __init__(self, final: Final) -> None:
        self.shipped: dict[str, str] = {}
        made: Counter[str] = Counter()
        gone: set[str] = set()
        for written in final.log:
            effect = written.effect
            if isinstance(effect, Put) and isinstance(effect.entity, Order):
                made[effect.entity.order_id] += 1
            elif isinstance(effect, Set | Delete) and effect.key.entity is Order:
                order_id = str(effect.key.sk).removeprefix("ORDER#")
                if isinstance(effect, Delete):
                    gone.add(order_id)
                    continue
                made[order_id] += 1
                if effect.fields.get("status") == "SHIPPED":
                    self.shipped[order_id] = effect.key.pk.removeprefix("CUSTOMER#")
        there = {order.order_id for order in final[Order]}
        self.expired = made.keys() - there - gone
        self.revisions = Counter(
            (*range(1, count + 1), *([] if order_id in there else [None]))
            for order_id, count in made.items()
        )


def _by_order(arrived: Arrived, name: str, *, sort: bool) -> Counter[tuple[Any, ...]]:
    """Count the orders by the revisions that a place was told of, in their order.

    A deletion has no body, so that only its id says of which order it is.
    """
    revisions: dict[str, list[Any]] = defaultdict(list)
    arrivals = arrived.once(name)
    for arrival in sorted(arrivals, key=lambda a: a.sequence) if sort else arrivals:
        revisions[arrival.id].append(arrival.body and arrival.body["revision"])
    return Counter(tuple(found) for found in revisions.values())


def _sums(final: Final) -> list[CustomerOrders]:
    sums: dict[str, tuple[int, Decimal]] = {}
    for order in final[Order]:
        count, total = sums.get(order.customer, (0, Decimal(0)))
        sums[order.customer] = (count + 1, total + order.total)
    return [CustomerOrders(customer=c, orders=n, total=t) for c, (n, t) in sums.items()]
