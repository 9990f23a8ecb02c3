"""Old and new code write both sides of a move, while processes die and stand still; told from outside.

    told = run(app, seed=3, ends="contract")
    assert told.lost() == {}

The oracle knows nothing of how a migration works. It reads the engine's records: each write of the
application has a number, which is its value, and a value has seen what stood at its place before,
and what that had seen. A write of the migration gives a value of one side to the other one. In the
end each acknowledged write is there, or was overwritten by one that had seen it, or a person, who
was shown a conflict, has decided. What was put where nothing was, and is deleted again before the
migration has written the family, is as if it never was: nobody can know of it, as the page says.

In: an app with a move of `OldOrder` to `Order`, or of `OldStatus` and `OldNote` together, and a seed. Out: the `Ledger`, and where it ended.
"""

import random
from collections import defaultdict
from contextlib import suppress
from functools import partial

import anyio

from streamkit import App, Entity, TableShape
from streamkit.core.table_shape import entities_of
from streamkit.core.tables import survey
from streamkit.errors import ConfigurationError
from streamkit.migrate.book.state_book import StateBook
from streamkit.migrate.operate import commands
from streamkit.migrate.run.passing import PassPace
from streamkit.migrate.run.running import Runner
from streamkit.migrate.verify.mending import list_errors, retry_errors
from streamkit.testing.chance import repeatable
from streamkit.testing.faults import Faults
from streamkit.testing.loop import run_virtually
from streamkit.testing.migrators import SETTINGS
from streamkit.testing.world import CrashPoint, Process, World
from tests.simulation.stepping import AT_ONCE, step_of


class OldOrder(Entity, pk="C#{user}", sk="ORDER#{order_id}"):
    user: str
    order_id: str
    status: str
    note: str | None = None


class Order(Entity, pk="C#{user}", sk="#ORDER#{order_id}"):
    user: str
    order_id: str
    status: str
    note: str | None = None


class OldStatus(Entity, pk="C#{user}", sk="ORDER#{order_id}"):
    user: str
    order_id: str
    status: str | None = None


class OldNote(Entity, pk="C#{user}", sk="ORDER#NOTE#{order_id}"):
    user: str
    order_id: str
    note: str | None = None


class Whole(Entity, pk="C#{user}", sk="#ORDER#{order_id}"):
    user: str
    order_id: str
    status: str | None = None
    note: str | None = None


def merged(status: OldStatus | None, note: OldNote | None) -> Whole | None:
    whose = status or note
    if whose is None:
        return None
    return Whole(
        user=whose.user,
        order_id=whose.order_id,
        status=status and status.status,
        note=note and note.note,
    )


def apart(order: Whole) -> list[OldStatus | OldNote]:
    whose = {"user": order.user, "order_id": order.order_id}
    found = [] if order.status is None else [OldStatus(**whose, status=order.status)]
    return found if order.note is None else [*found, OldNote(**whose, note=order.note)]


def app_of_merge():
    app = App("shop", table="Shop", entities=[OldStatus, OldNote, Whole])
    app.migration("0001", OldStatus, mode="merge", reverse=apart)(merged)
    return app


def moved(order: OldOrder) -> Order:
    return Order(**order.model_dump())


def moved_back(order: Order) -> OldOrder:
    return OldOrder(**order.model_dump())


def without_its_note(order: Order) -> OldOrder:
    return OldOrder(**order.model_dump(exclude={"note"}))


def app_of(reverse=None):
    app = App("shop", table="Shop", entities=[Order, OldOrder])
    app.migration("0001", OldOrder, mode="rekey", reverse=reverse)(moved)
    return app


DAY = 24 * 3600.0
FIELDS = ("status", "note")
ENTITIES = {
    "rekey": {"old": (OldOrder,), "new": (Order,)},
    "merge": {"old": (OldStatus, OldNote), "new": (Whole,)},
}
OTHER = {"old": "new", "new": "old"}
BOTH = {"ready", "switching", "soaking", "contracting", "closing", "returning", "following"}
"""The phases in which new code may write."""


class Ledger:
    """What each value has seen, by the engine's records alone."""

    def __init__(self, world, entities):
        self.entities = entities
        self.count = 0
        self.kind = ""
        self.values = {}
        self.stands = {}
        self.there = defaultdict(set)
        self.new_here = {}
        self.seen = defaultdict(set)
        self.at = defaultdict(int)
        self.told = defaultdict(set)
        self.kinds = defaultdict(int)
        world.watchers.append(self.saw)

    def next(self, kind):
        """Return the number of the application's next write."""
        self.count, self.kind = self.count + 1, kind
        return self.count

    def saw(self, sighting):
        writes = defaultdict(list)
        for write in sighting.writes:
            sort = write.keys["SK"]["S"]
            if "ORDER#" in sort and not write.is_control:
                side = "new" if sort.startswith("#") else "old"
                writes[sort.rpartition("#")[2]].append((side, sort, write))
        for order in sorted(writes):
            if sighting.actor:
                self._moved(order, writes[order])
            else:
                for one in writes[order]:
                    self._written(order, *one)

    def _names(self, side, sort):
        """Return the fields of the item with this sort key."""
        return _fields_of(self.entities[side][-1 if "NOTE#" in sort else 0])

    def _stands(self, order, side, sort, write):
        """Note what is there after a write."""
        stands, own = self.stands.get((side, order), {}), self._names(side, sort)
        rest = {name: value for name, value in stands.items() if name not in own}
        self.stands[side, order] = rest | (_fields(write.new) or {})
        there = self.there[side, order]
        (there.discard if write.new is None else there.add)(sort)

    def _written(self, order, side, sort, write):
        """Note a write of the application."""
        if not self.kind:
            self._stands(order, side, sort, write)
            return  # what is there before
        number, before, after = self.count, _fields(write.old), _fields(write.new)
        if before is None and write.old is not None:  # a stub stands for the other side
            before = self.stands.get((OTHER[side], order)) or {}
        self.kinds[f"{self.kind} {side}"] += 1
        place, names = (order, side, sort), self._names(side, sort)
        if write.old is None:
            self.new_here[place] = number, {name: self.at[side, order, name] for name in names}
        elif write.new is None and place in self.new_here:
            first, was = self.new_here.pop(place)
            for name in names:
                self.told[order, name] -= {*range(first, number)} & self.seen[
                    self.at[side, order, name], name
                ]
                self.at[side, order, name] = was[name]
            self.kinds["unseen"] += 1
            names = []
        for name in names:
            old, new = ((one or {}).get(name) for one in (before, after))
            if (old != new) if self.kind == "set" else (old or new):
                self.seen[number, name] = {number} | self.seen[self.at[side, order, name], name]
                self.at[side, order, name] = number
                self.told[order, name].add(number)
        self._stands(order, side, sort, write)
        if not self.there[side, order] and not self.there[OTHER[side], order]:
            self._agreed(order, FIELDS)  # where nothing is on either side, both say the same

    def _agreed(self, order, names, *more):
        """Note that both sides have come to the same."""
        for name in names:
            numbers = [*more, *(self.at[side, order, name] for side in OTHER)]
            every = set().union(*(self.seen[number, name] for number in numbers))
            for number in numbers[len(more) :]:
                self.seen[number, name] = every

    def _moved(self, order, writes):
        """Note what the migration has given to each side."""
        before = {side: self.stands.get((side, order)) for side in OTHER}
        stubs = set()
        self.new_here = {place: one for place, one in self.new_here.items() if place[0] != order}
        for side, sort, write in writes:
            self._stands(order, side, sort, write)
            if _is_stub(write.new):
                stubs |= {(side, name) for name in self._names(side, sort)}
        for name in FIELDS:
            was = {side: self.at[side, order, name] for side in OTHER}
            now = {side: (self.stands.get((side, order)) or {}).get(name) for side in OTHER}
            for side in OTHER:
                old = (before[side] or {}).get(name)
                if now[side] is not None and now[side] in self.values:
                    self.at[side, order, name] = self.values[now[side]]
                elif now[side] is None and old is not None and (side, name) not in stubs:
                    self.at[side, order, name] = was[OTHER[side]]
            if now["old"] == now["new"]:
                self._agreed(order, [name])

    def decided(self, order, shown):
        """Note that a person has decided about what both sides had `shown`."""
        for name in FIELDS:
            self._agreed(order, [name], *(shown[side, order, name] for side in OTHER))
        self.kinds["decided"] += 1

    def lost(self, side):
        """Return the acknowledged writes that nothing on this side has seen, by item and field."""
        found = {
            (order, name): told - self.seen[self.at[side, order, name], name]
            for (order, name), told in self.told.items()
        }
        return {place: numbers for place, numbers in found.items() if numbers}


def _is_stub(item):
    return item is not None and "order_id" not in item


def _fields(item):
    if item is None or _is_stub(item):
        return None
    return {name: item[name]["S"] for name in FIELDS if name in item}


class Site:
    """A table, its writers, and the processes of a migration."""

    entities = None

    def __init__(self, app, world, aws, tables, rng, orders, ends):
        self.app, self.world, self.aws, self.rng = app, world, aws, rng
        self.schema, self.book = tables.table, StateBook(aws.dynamodb, tables.control, app.name)
        self.entities = self.entities or ENTITIES[app.migrations["0001"].mode]
        self.ledger, self.alive, self.count = Ledger(world, self.entities), {}, 0
        self.orders, self.ends = orders, ends
        self.met = defaultdict(int)

    async def state(self):
        return await self.book.read("0001")

    async def step(self, name):
        named = {"clock": self.world.clock}
        if name == "begin":
            one = self.app.migrations["0001"]
            await commands.begin(self.app, self.aws, one, segments=2, **named)
        else:
            await step_of(name)(self.app, self.aws, "0001", **named)

    # -- writers -------------------------------------------------------------------------------

    async def open(self):
        for number in range(self.orders):
            for entity in self.entities["old"]:
                whose = {"user": "ann", "order_id": f"{number}"}
                await self.put(entity(**whose, **{_first(entity): "first"}))
        await anyio.sleep(900)

    async def put(self, order):
        item = order.attributes(self.schema)
        await self.aws.dynamodb.put_item(TableName=self.schema.name, Item=item)

    async def write(self, phase):
        """Write something, as old or as new code does."""
        sides = ["old", "new"] if phase in BOTH else ["old"]
        if self.ends == AT_ONCE and phase in ("closing", "done"):
            sides = ["new"]  # then nobody looks any more; that none writes is the word of people
        side, dice = self.rng.choice(sides), self.rng.random()
        kind = "set" if dice < 0.7 else "put" if dice < 0.85 else "delete"
        number = self.ledger.next(kind)
        text = f"w{number}"
        order_id = f"{self.rng.randrange(self.orders + 1)}"
        entity = self.rng.choice(self.entities[side])
        order = entity(user="ann", order_id=order_id, **{_first(entity): text})
        key = order.item_key.wire(self.schema)
        if kind != "delete":
            self.ledger.values[text] = number
        if kind == "delete":
            await self.aws.dynamodb.delete_item(TableName=self.schema.name, Key=key)
        elif kind == "put":
            await self.put(order)
        else:
            with suppress(self.aws.dynamodb.exceptions.ConditionalCheckFailedException):
                await self.aws.dynamodb.update_item(
                    TableName=self.schema.name,
                    Key=key,
                    UpdateExpression="SET #n = :v",
                    ConditionExpression="attribute_exists(PK)",
                    ExpressionAttributeNames={"#n": self.rng.choice(_fields_of(entity))},
                    ExpressionAttributeValues={":v": {"S": text}},
                )

    # -- processes -----------------------------------------------------------------------------

    async def under_fire(self, acts, rests):
        """Let the writers act while processes run, die and stand still, until it rests."""
        async with anyio.create_task_group() as group:
            done = 0
            while True:
                while len(self.alive) < 2:
                    self._start(group)
                state = await self.state()
                if done >= acts and (state.waits or rests(state)):
                    break
                if done < acts:
                    await self.write(state.phase)
                    self._trouble()
                else:
                    self._leave_in_peace()
                done += 1
                await anyio.sleep(1.5 * self.rng.random())
            self._leave_in_peace()
            await anyio.sleep(30)  # longer than a lease, and than positions stay unwritten
            for process in list(self.alive.values()):
                process.kill()
            group.cancel_scope.cancel()
        return await self.state()

    def _start(self, group):
        self.count += 1
        faults = Faults(self.rng, slow=0.1, lost_request=0.01, lost_reply=0.01)
        process = Process(f"migrator {self.count}", faults=faults)
        self.alive[process.name] = process
        group.start_soon(self._live, process)

    async def _live(self, process):
        try:
            async with self.world.clients(process) as aws, anyio.create_task_group() as group:

                async def end():
                    await process.dead.wait()
                    group.cancel_scope.cancel()

                group.start_soon(end)
                while True:
                    chance = random.Random(self.rng.random())
                    clock = self.world.clock_of(process)
                    one = self.app.migrations["0001"]
                    pace = PassPace(2, 10, 2)
                    await Runner(self.app, aws, one, SETTINGS, clock, chance, pace).run(stay=True)
                    await anyio.sleep(1)
        finally:
            self.alive.pop(process.name, None)

    def _trouble(self):
        process = self.rng.choice(list(self.alive.values()))
        dice = self.rng.random()
        if dice < 0.12:
            moment = self.rng.choice(["before", "after"])
            process.crash = CrashPoint(process.calls + self.rng.randrange(20), moment)
            self.met["crash"] += 1
        elif dice < 0.2:
            process.freeze()
            self.met["freeze"] += 1
        for one in self.alive.values():
            if one.frozen is not None and self.rng.random() < 0.1:
                one.thaw()

    def _leave_in_peace(self):
        for process in self.alive.values():
            process.thaw()
            process.crash = None

    # -- people --------------------------------------------------------------------------------

    async def decide(self):
        """Let a person decide each conflict, for one side or the other."""
        async with self.world.clients(Process("person")) as aws:
            for error in await list_errors(self.app, aws, "0001"):
                side, number = self.rng.choice(["old", "new"]), error.key["SK"]["S"][-1]
                shown = self.ledger.at.copy()
                if error.kind == "late":  # a person keeps the new one
                    for entity in self.entities["old"]:
                        order = entity(user="ann", order_id=number, **{_first(entity): ""})
                        place = order.item_key.wire(self.schema)
                        await aws.dynamodb.delete_item(TableName=self.schema.name, Key=place)
                if error.kind == "taken":  # a person keeps the old one
                    orders = [
                        entity(user="ann", order_id=number, **{_first(entity): ""})
                        for entity in self.entities["new"]
                    ]
                    gone = [
                        {"Delete": {"TableName": self.schema.name, "Key": one}}
                        for one in (order.item_key.wire(self.schema) for order in orders)
                    ]  # at once, so that nobody finds one part of what is taken whole
                    await aws.dynamodb.transact_write_items(TransactItems=gone)
                named = {"names": [error.id], "clock": self.world.clock}
                try:
                    right, _ = await retry_errors(self.app, aws, "0001", take=side, **named)
                except ConfigurationError:  # it was written since: it is decided in the next turn
                    right, _ = await retry_errors(self.app, aws, "0001", **named)
                    continue
                if right:
                    self.ledger.decided(number, shown)
        if (await self.state()).waits:
            await self.step("resume")


def _fields_of(entity):
    return [name for name in FIELDS if name in entity.model_fields]


def _first(entity):
    return _fields_of(entity)[0]


def run(app, *, seed, ends, orders=6, acts=14, kind=Site):
    """Run a move to its end; return what was told, where it ended, and what the run met."""

    async def main():
        world, rng = World.create(seed), random.Random(f"both/{seed}")
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, app.table, entities_of(app))
            site = kind(app, world, aws, await survey(app, aws), rng, orders, ends)
            with anyio.fail_after(40 * DAY):
                await site.open()
                await site.step("begin")
                await site.under_fire(acts, lambda state: state.phase == "ready")
                await site.under_fire(acts, lambda state: state.phase == "ready")
                await _switched(site)
                await site.under_fire(acts, lambda state: state.phase == "soaking")
                await (_rolled_back if ends == "rollback" else _contracted)(site, acts)
            return site, world.items(app.table)

    with repeatable(seed):
        return run_virtually(main, seed=seed)


async def _switched(site):
    for _ in range(12):
        await site.decide()
        with suppress(ConfigurationError):  # an error is open that was noted meanwhile
            return await site.step("switch")
        await site.under_fire(0, lambda state: state.phase == "ready")
    raise AssertionError("an error stays open before the switch")


async def _contracted(site, acts):
    for turn in range(12):
        await site.decide()
        await anyio.sleep(DAY + 60)
        if (await site.state()).phase == "soaking":
            with suppress(ConfigurationError):  # an error is open that was noted meanwhile
                await site.step(site.ends)
        few = acts // 2 if turn < 2 else 0
        state = await site.under_fire(few, lambda s: s.phase in ("soaking", "closing", "done"))
        if state.phase == "done":
            return
    raise AssertionError(f"it does not come to its end: {state}")


async def _rolled_back(site, acts):
    await site.decide()
    await site.step("rollback")
    for turn in range(12):
        few = acts // 2 if not turn else 0
        state = await site.under_fire(few, lambda s: s.phase == "rolled back")
        if state.phase == "rolled back":
            return
        await site.decide()
    raise AssertionError(f"it does not come to its end: {state}")


contracted = partial(run, ends="contract")
contracted_at_once = partial(run, ends=AT_ONCE)
rolled_back = partial(run, ends="rollback")
