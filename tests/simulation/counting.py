"""Old and new code count and write the same items, while processes die and stand still; told from outside.

    site, items = contracted("counters", seed=3)
    assert site.wrong(items) == []

The oracle reads the engine's records alone. Each write of the application to a counter has a
difference, which is what the record says of it; in the end each counter is the sum of all of them.
With items that are taken whole, the migration never leaves two fields that no writer left there.

In: a policy and a seed. Out: the site, and what the table holds at the end.
"""

from collections import defaultdict
from contextlib import suppress

import anyio

from streamkit import App, Entity
from tests.simulation import both_shapes
from tests.simulation.both_shapes import BOTH
from tests.simulation.wholes import Wholes


class OldRoom(Entity, pk="C#{user}", sk="ORDER#{order_id}"):
    user: str
    order_id: str
    status: str = "first"
    note: str = "first"
    views: int = 0


class Room(Entity, pk="C#{user}", sk="#ORDER#{order_id}"):
    user: str
    order_id: str
    status: str = "first"
    note: str = "first"
    hits: int = 0


def moved(room: OldRoom) -> Room:
    return Room(**room.model_dump(exclude={"views"}), hits=room.views)


def moved_back(room: Room) -> OldRoom:
    return OldRoom(**room.model_dump(exclude={"hits"}), views=room.hits)


POLICIES = {
    "counters": {"counters": {"hits": "views"}},
    "item": {"settle": "item"},
    "both": {"settle": "item", "counters": {"hits": "views"}},
}
COUNTER = {"old": "views", "new": "hits"}
KEYS = {"old": OldRoom, "new": Room}


def app_of(policy, *, reverse=moved_back):
    app = App("shop", table="Shop", entities=[OldRoom, Room])
    app.migration("0001", OldRoom, mode="rekey", reverse=reverse, **POLICIES[policy])(moved)
    return app


class Site(both_shapes.Site):
    """A table whose writers also count, and what the records say of them."""

    def __init__(self, *given):
        super().__init__(*given)
        self.counted, self.kinds, self.written = defaultdict(int), defaultdict(int), 0
        self.wholes = Wholes(self.world)
        self.world.watchers.append(self.saw)

    def saw(self, sighting):
        """Note what the application has counted."""
        for write in sighting.writes:
            sort = write.keys["SK"]["S"]
            if "ORDER#" in sort and not write.is_control and not sighting.actor:
                side = "new" if sort.startswith("#") else "old"
                self.counted[sort.rpartition("#")[2]] += count_of(write.new, side)
                self.counted[sort.rpartition("#")[2]] -= count_of(write.old, side)

    async def open(self):
        for number in range(self.orders):
            await self.put(OldRoom(user="ann", order_id=f"{number}", views=number))
        await anyio.sleep(900)

    async def write(self, phase):
        """Count, or write a field, as old or as new code does; a counter may go up and down."""
        side = self.rng.choice(["old", "new"] if phase in BOTH else ["old"])
        self.written += 1
        key = KEYS[side](user="ann", order_id=f"{self.rng.randrange(self.orders)}")
        named = {"Key": key.item_key.wire(self.schema), "TableName": self.schema.name}
        counts = self.app.migrations["0001"].counters and self.rng.random() < 0.6
        self.kinds["count" if counts else "set", side] += 1
        if counts:
            expression, name = "ADD #n :v", COUNTER[side]
            value = {"N": f"{self.rng.choice([1, 1, 2, 5, -1])}"}
        else:
            expression, name = "SET #n = :v", self.rng.choice(["status", "note"])
            value = {"S": f"w{self.written}"}
        with suppress(self.aws.dynamodb.exceptions.ConditionalCheckFailedException):
            await self.aws.dynamodb.update_item(
                **named,
                UpdateExpression=expression,
                ConditionExpression="attribute_exists(PK)",
                ExpressionAttributeNames={"#n": name},
                ExpressionAttributeValues={":v": value},
            )

    def wrong(self, items, side):
        """Return the counters that are not what was counted."""
        found = {}
        for item in items:
            sort = item["SK"]["S"]
            if "ORDER#" in sort and sort.startswith("#") == (side == "new"):
                found[sort.rpartition("#")[2]] = count_of(item, side)
        return {o: (n, found.get(o)) for o, n in self.counted.items() if found.get(o) != n}


def count_of(item, side):
    return int((item or {}).get(COUNTER[side], {"N": "0"})["N"])
