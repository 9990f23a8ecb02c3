"""No write to either side of a family is lost by a move; simpler moves lose one; the code is ours.

The last is shown by replays: each step of a trace happens to the parts of a real migration on the
local engine, and after each of them what is stored there is what the model says.
"""

from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache, partial

import pytest

from streamkit import App, Entity, TableShape
from streamkit.core.table_shape import entities_of
from streamkit.core.tables import survey
from streamkit.migrate.book.errors import ErrorBook
from streamkit.migrate.book.state import State
from streamkit.migrate.book.state_book import StateBook
from streamkit.migrate.run.work import MigrationWork, Schemas
from streamkit.migrate.sending.attempts import Undecided
from streamkit.migrate.sending.calls import DONE, Calls
from streamkit.migrate.sending.rate import Rate
from streamkit.model.copies import PAIR
from streamkit.progress.scan.places import place_text
from streamkit.testing.world import World
from tests.models.explorer import LARGE, explore, follow, stuck, walks
from tests.models.families import KINDS, NAIVE, STUB, Model, Rules, _changed
from tests.models.replay import Actor, Troupe, replay

WALKS = 300 if LARGE else 20
"""Random traces."""
BOUNDS = ((1, 1), (2, 1), (1, 2), (2, 2))
"""How often old and new code write."""
STATES = {
    "copying": State("0001", phase="scanning", attempt=1),
    "soaking": State("0001", phase="soaking"),
    "contracting": State("0001", phase="contracting"),
    "closing": State("0001", phase="closing"),
    "done": State("0001", phase="done"),
    "switching": State("0001", phase="switching"),
    "unturning": State("0001", phase="unturning", direction="back"),
    "dropping": State("0001", phase="dropping", direction="back"),
    "rolled back": State("0001", phase="rolled back", direction="back"),
}
"""Where a migration stands in each phase of the model."""


@pytest.mark.parametrize("shape", ["rekey", "split", "merge"])
@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("rollback", [True, False])
def test_no_write_to_either_side_is_lost(shape, reverse, rollback):
    few = (1, 1) if rollback and shape != "split" else (2, 1)
    for old, new in BOUNDS if LARGE else (few,):
        rules = Rules(shape=shape, reverse=reverse)
        found = explore(Model(rules, old=old, new=new, rollback=rollback))
        assert found.broken == {}
        assert sum(world.phase == "done" for world in found.worlds) > 50


@pytest.mark.parametrize("shape", ["rekey", "split", "merge"])
@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("late", [0, 1])
def test_where_people_say_that_no_old_code_writes_a_write_of_it_is_not_lost(shape, reverse, late):
    rules = Rules(shape=shape, reverse=reverse, declared=True)
    for old, new in BOUNDS if LARGE else ((2, 1),):
        found = explore(Model(rules, old=old, new=new, rollback=LARGE, late=late))
        assert found.broken == {}
        assert sum(world.phase == "done" for world in found.worlds) > 50


def test_what_old_code_puts_and_deletes_where_its_item_is_gone_is_seen_by_nobody():
    found = explore(Model(Rules(declared=True), old=2, new=0, late=2), until="lost").broken
    writes = [step[1] for step in found["lost"] if step[0] == "old"]
    assert (len(writes), writes[-1]) == (2, "delete")


def test_two_processes_do_each_other_no_harm():
    found = explore(Model(Rules(), old=1, new=1, processes=2, rollback=True))
    assert found.broken == {}


def test_every_family_can_come_to_an_end_if_people_decide():
    model = Model(Rules(), old=1, new=1, rollback=True)
    over = ("done", "rolled back")
    assert (
        stuck(explore(model), lambda world: world.phase in over, lambda step: step[0] != "back")
        is None
    )


def test_with_old_code_alone_nobody_has_to_decide():
    model = Model(Rules(), old=3, new=0)
    assert not any(model.is_open(world) for world in explore(model).worlds)


@cache
def counter_example(rules):
    """Return the shortest trace to a lost write."""
    for old, new in BOUNDS:
        model = Model(rules, old=old, new=new, late=int(rules.declared))
        if (old, new) == BOUNDS[-1]:
            model.acts = ("set 0", "delete")  # so many of each kind are not needed to break one
        found = explore(model, until="lost").broken
        if "lost" in found:
            return found["lost"]
    return None


@pytest.mark.parametrize("name", NAIVE)
def test_a_move_that_looks_simpler_loses_a_write(name):
    assert counter_example(NAIVE[name])


# -- the replay ------------------------------------------------------------------------------------


class Before(Entity, pk="BEFORE", sk="BEFORE"):
    a: int | None = None
    b: int | None = None


class After(Entity, pk="AFTER", sk="AFTER"):
    a: int | None = None
    b: int | None = None


def moved(item: Before) -> After:
    return After(a=item.a, b=item.b)


def moved_back(item: After) -> Before:
    return Before(a=item.a, b=item.b)


class BeforeA(Entity, pk="BEFORE", sk="A"):
    a: int | None = None


class BeforeB(Entity, pk="BEFORE", sk="B"):
    b: int | None = None


def merged(one: BeforeA | None, other: BeforeB | None) -> After:
    return After(a=one and one.a, b=other and other.b)


def apart(item: After) -> list[BeforeA | BeforeB]:
    both = [] if item.a is None else [BeforeA(a=item.a)]
    return both if item.b is None else [*both, BeforeB(b=item.b)]


def app_of_merge():
    app = App("shop", table="Shop", entities=[BeforeA, BeforeB, After])
    app.migration("0001", BeforeA, mode="merge", reverse=apart)(merged)
    return app


def app_of(*, reverse=True):
    app = App("shop", table="Shop", entities=[Before, After])
    app.migration("0001", Before, mode="rekey", reverse=moved_back if reverse else None)(moved)
    return app


def transacts(call):
    return "send" if call.operation == "TransactWriteItems" else ""


class Site:
    """A table with one item, and the parts of a real migration, to which a trace happens."""

    def __init__(self, app, world, aws, tables, seats, declared):
        self.app, self.world, self.aws, self.tables = app, world, aws, tables
        self.declared = declared
        self.seats = seats
        self.schema = tables.table
        several = app.migrations["0001"].mode == "merge"
        old = [BeforeA(a=0), BeforeB(b=0)] if several else [Before(a=0, b=0)]
        self.items = {"old": old, "new": [After()]}
        self.key = old[0].item_key.wire(self.schema)
        self.new_key = self.items["new"][0].item_key.wire(self.schema)
        self.phase, self.processes, self.writes = "copying", [None] * len(seats), 0
        self.shown = ""

    def work(self, aws):
        """Return a process's part in the phase."""
        calls = Calls(aws.dynamodb, Rate(self.world.clock), (self.schema, self.tables.control))
        book = ErrorBook(StateBook(aws.dynamodb, self.tables.control, "shop").store, "0001")
        schemas = Schemas(self.schema, self.schema, entities_of(self.app))
        one = self.app.migrations["0001"]
        state = replace(STATES[self.phase], declared=self.declared)
        return MigrationWork("shop", one, state, schemas, calls, book, self.world.clock)

    async def call(self, operation, **request):
        return await getattr(self.aws.dynamodb, operation)(TableName=self.schema.name, **request)

    async def begin(self):
        for item in self.items["old"]:
            await self.call("put_item", Item=item.attributes(self.schema))

    async def do(self, step):
        verb, *rest = step
        if verb in ("old", "new"):
            await self.write(verb, *rest)
        else:
            await getattr(self, verb)(*rest)

    async def write(self, side, what, place):
        self.writes += 1
        entity = self.items[side][place]
        key = entity.item_key.wire(self.schema)
        if what == "delete":
            await self.call("delete_item", Key=key)
        elif what == "put":
            first = next(name for name in "ab" if name in type(entity).model_fields)
            item = type(entity)(**{first: self.writes}).attributes(self.schema)
            await self.call("put_item", Item=item)
        else:
            await self.call(
                "update_item",
                Key=key,
                UpdateExpression=f"SET {'ab'[int(what[-1])]} = :v",
                ExpressionAttributeValues={":v": {"N": f"{self.writes}"}},
            )

    async def look(self):
        self.shown = (await self.work(self.aws).families.read(self.key)).shown

    async def take(self, side):
        tally = await self.work(self.aws).families.take(self.key, side, self.shown)
        assert (tally.changed, tally.errors) == (1, 0)

    async def next(self):
        ends = {"copying": "soaking", "soaking": "contracting", "contracting": "closing"}
        phase = self.phase
        if phase == "copying":
            await self.turn("switching", counts_new=True)
        self.phase = ends.get(phase, "rolled back" if phase == "dropping" else "done")
        self.processes = [None] * len(self.seats)

    async def back(self):
        if self.phase == "soaking":
            await self.turn("unturning", counts_new=False)
        self.phase, self.processes = "dropping", [None] * len(self.seats)

    async def turn(self, phase, *, counts_new):
        """Turn which side handlers count: the model leaves that out."""
        self.phase = phase
        families = self.work(self.aws).families
        plan = families.plans.turn(await families.read(self.key), counts_new=counts_new)
        if plan is not None:
            assert await families.send(plan) is DONE

    async def read(self, m):
        process, aws = self.seats[m]
        self.processes[m] = process
        step = {"contract": "contract", "close": "close", "drop": "drop"}
        work = self.work(aws)
        await process.begins(
            work.families.settle(
                self.key,
                step=step.get(KINDS[self.phase], ""),
                new=self.new_key,
            )
        )
        self.see(m)

    async def send(self, m):
        await self.processes[m].step()
        self.see(m)

    def see(self, m):
        process = self.processes[m]
        if process.ended:
            assert process.error is None, process.error
            self.processes[m] = None

    async def state(self):
        work = self.work(self.aws)
        family = await work.families.read(self.key, self.new_key)
        record, found = family.record, []
        olds = [family.old[place_text(e.item_key.wire(self.schema))] for e in self.items["old"]]
        for side, items in (("old", olds), ("new", [await self.new()])):
            stub = record is not None and record.left == side
            values, stamps = [], [record is not None and PAIR in (one or {}) for one in items]
            for name in "ab":
                place = min("ab".index(name), len(items) - 1)
                value = (items[place] or {}).get(name)
                stands = STUB if stub and stamps[place] else None
                values.append(int(value["N"]) if value else stands)
            found.append((*values, *stamps))
        try:
            sides = work.families.plans.views.of(family)
            changed = bool(sides.old.changed), bool(sides.new.changed)
        except Undecided:
            changed = True, True
        left = None if record is None else (record.left, *changed)
        return *found, left, [one is not None for one in self.processes]

    async def new(self):
        return (await self.call("get_item", Key=self.new_key)).get("Item")


class LedByOldKeys(Site):
    """Its processes come to a family by an old item, and are not told of a new one."""

    async def read(self, m):
        told, self.new_key = self.new_key, None
        await super().read(m)
        self.new_key = told


def said(model, world):
    """What the model says of a world, as far as it can be seen in a table."""
    found = []
    for name, side in (("old", world.old), ("new", world.new)):
        there = [any(side.values[one] is not None for one in item) for item in model.items[name]]
        stamped = [all(side.stamped[one] for one in item) for item in model.items[name]]
        paired = [
            world.record is not None and all(both) for both in zip(there, stamped, strict=True)
        ]
        found.append((*side.values, *paired))
    record, left = world.record, None
    if record is not None:
        changed = (_changed(world.old.values, record.old), _changed(world.new.values, record.new))
        left = (record.left, *map(bool, changed))
    return *found, left, [plan is not None for plan in world.plans]


def opened_with(app, processes, site=Site, *, declared=0.0):
    @asynccontextmanager
    async def opened():
        world = World.create(1)
        async with Troupe.on_stage() as troupe:
            seats = [troupe.enters(Actor(transacts, f"process {m}")) for m in range(2)]
            async with (
                world.clients() as aws,
                world.clients(seats[0]) as first,
                world.clients(seats[1]) as second,
            ):
                await TableShape().create(aws.dynamodb, app.table, entities_of(app))
                pairs = list(zip(seats, (first, second), strict=True))[:processes]
                yield site(app, world, aws, await survey(app, aws), pairs, declared)

    return opened


def replayed(traces, rules, *, rollback=True, site=Site):
    """Let traces of a model happen to a migration of the same shape."""
    right = Rules(shape=rules.shape, reverse=rules.reverse, declared=rules.declared)
    model = Model(right, old=3, new=3, processes=2, rollback=rollback, late=2)
    app = app_of_merge() if rules.shape == "merge" else app_of(reverse=rules.reverse)
    opened = opened_with(app, 2, site, declared=1.0 if rules.declared else 0.0)
    return replay(model, traces, opened, partial(said, model))


def weight(step):
    """Mostly go on: a walk is to come to an end."""
    return {"next": 4, "back": 0.3, "take": 2, "read": 2, "send": 3}.get(step[0], 0.6)


@pytest.mark.parametrize(
    "rules",
    [
        Rules(),
        Rules(reverse=False),
        Rules(shape="merge"),
        Rules(declared=True),
        Rules(shape="merge", declared=True),
    ],
    ids=["back", "no back", "merge", "declared", "declared merge"],
)
def test_a_migration_takes_the_steps_of_the_model(rules):
    model = Model(rules, old=3, new=3, processes=2, rollback=not rules.declared, late=2)
    traces = list(walks(model, WALKS, 40, weigh=weight))
    assert replayed(traces, rules) > 12 * WALKS
    ends = [[world.phase for _, world in follow(model, trace)][-1] for trace in traces]
    assert sum(end in ("done", "rolled back") for end in ends) > WALKS // 8


def test_in_a_rollback_old_code_that_deletes_an_item_is_in_conflict_with_nobody():
    begun = [("read", 0), ("send", 0), ("next",), ("back",), ("read", 1), ("send", 1)]
    deleted = [("old", "delete", 0), ("read", 0), ("send", 0), ("next",)]
    assert replayed([[*begun, *deleted]], Rules()) == 10


def test_in_a_rollback_a_decision_for_the_old_item_leaves_what_was_overruled_out():
    begun = [("read", 0), ("send", 0), ("next",), ("back",), ("read", 0), ("send", 0)]
    wrote = [("new", "set 0", 0), ("new", "set 1", 0), ("old", "set 0", 0), ("look",)]
    for side in ("old", "new"):
        assert replayed([[*begun, *wrote, ("take", side)]], Rules()) == 11


@pytest.mark.parametrize("reverse", [True, False])
def test_one_decision_for_the_old_item_is_enough_in_a_rollback(reverse):
    begun = [("read", 0), ("send", 0), ("back",)]
    wrote = [("new", "set 0", 0), ("new", "set 1", 0), ("old", "set 1", 0), ("look",)]
    rules = Rules(reverse=reverse)
    assert replayed([[*begun, *wrote, ("take", "old")]], rules) == 8


@pytest.mark.parametrize("reverse", [True, False])
def test_what_is_written_at_a_stub_meets_a_new_item_that_its_record_does_not_know(reverse):
    stub = [("read", 0), ("send", 0), ("next",), ("next",), ("read", 0), ("send", 0)]
    gone = [("old", "put", 0), ("new", "delete", 0), ("look",), ("take", "new")]
    anew = [("new", "set 0", 0), ("old", "set 1", 0), ("read", 0), ("send", 0)]
    trace = [*stub, *gone, *anew]
    assert replayed([trace], Rules(reverse=reverse), site=LedByOldKeys) == len(trace)


@pytest.mark.parametrize("name", [name for name in NAIVE if NAIVE[name].shape != "split"])
def test_where_a_simpler_move_loses_a_write_a_migration_does_as_the_model_does(name):
    trace = [(verb, *rest) for verb, *rest in counter_example(NAIVE[name])]
    assert replayed([trace], NAIVE[name], rollback=False) > 3
