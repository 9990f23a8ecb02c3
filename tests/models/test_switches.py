"""No write at an old key is lost by a switch; simpler switches lose one; and the code is ours.

The last is shown by replays: each step of a trace happens to the parts of a real migration on the
local engine, and after each of them what is stored there is what the model says.
"""

from contextlib import asynccontextmanager

import pytest

from streamkit import TableShape
from streamkit.core.table_shape import entities_of
from streamkit.core.tables import survey
from streamkit.migrate.agreement import base_of, is_ours
from streamkit.migrate.calls import Calls
from streamkit.migrate.errors import ErrorBook, error_id
from streamkit.migrate.rate import Rate
from streamkit.migrate.state import State, StateBook
from streamkit.migrate.tallies import Tally
from streamkit.migrate.work import MigrationWork, Schemas
from streamkit.model.copies import BASE, COPY, FROM
from streamkit.testing.world import World
from tests.models import contract_end
from tests.models.explorer import LARGE, explore, follow, walks
from tests.models.replay import Actor, Troupe, replay
from tests.models.switches import NAIVE, NEXT, WRITES, Model, Rules
from tests.simulation.migrating import OldOrder, Order, rekey

WALKS = 300 if LARGE else 20
"""Random traces."""
STATES = {
    "copying": State("0001", phase="scanning"),
    "switching": State("0001", phase="switching"),
    "soaking": State("0001", phase="soaking"),
    "comparing": State("0001", phase="contracting", stage="comparing"),
    "deleting": State("0001", phase="contracting"),
    "closing": State("0001", phase="contracting", stage="closing"),
    "done": State("0001", phase="done"),
}
"""Where a migration stands in each phase of the model."""


def test_no_write_at_an_old_key_is_lost_by_a_switch():
    found = explore(Model(Rules()))
    assert found.broken == {}
    assert sum(world.phase == "done" for world in found.worlds) > 100


@pytest.mark.parametrize("name", NAIVE)
def test_a_switch_that_looks_simpler_loses_a_write(name):
    assert explore(Model(NAIVE[name], 2), until="lost").broken


# -- the replay ------------------------------------------------------------------------------------


TURNED = (("copy", 0), ("send", 0), ("next",), ("turn", 0), ("send", 0), ("next",))
"""How a pair comes to where the model of its end begins."""


def transacts(call):
    return "send" if call.operation == "TransactWriteItems" else ""


class Site:
    """A table with one item, and the parts of a real migration, to which a trace happens."""

    def __init__(self, app, world, aws, tables, seats):
        self.app, self.world, self.aws, self.tables = app, world, aws, tables
        self.seats = seats
        self.schema = tables.table
        self.old = OldOrder(user="ann", order_id="1", status="0")
        self.new = Order(user="ann", order_id="1")
        self.key = self.old.item_key.wire(self.schema)
        self.phase, self.processes, self.writes = "copying", [None, None], 0
        self.gone = None

    def work(self, aws):
        """Return a process's part in the phase."""
        calls = Calls(aws.dynamodb, Rate(self.world.clock), (self.schema, self.tables.control))
        book = ErrorBook(StateBook(aws.dynamodb, self.tables.control, "shop").store, "0001")
        schemas = Schemas(self.schema, self.schema, entities_of(self.app))
        migration = self.app.migrations["0001"]
        state = STATES[self.phase]
        return MigrationWork("shop", migration, state, schemas, calls, book, self.world.clock)

    async def call(self, operation, **request):
        return await getattr(self.aws.dynamodb, operation)(TableName=self.schema.name, **request)

    async def get(self, entity):
        reply = await self.call("get_item", Key=entity.item_key.wire(self.schema))
        return reply.get("Item")

    async def begin(self):
        await self.call("put_item", Item=self.old.attributes(self.schema))

    async def do(self, step):
        verb, *rest = step
        if verb in ("turn", "copy", "follow", "compare old", "compare new", "contract", "close"):
            await self.work_on(verb, *rest)
        else:
            await getattr(self, verb)(*rest)

    # -- old code and people -----------------------------------------------------------------------

    async def put(self):
        self.writes += 1
        order = OldOrder(user="ann", order_id="1", status=f"{self.writes}")
        await self.call("put_item", Item=order.attributes(self.schema))

    async def update(self):
        self.writes += 1
        await self.call(
            "update_item",
            Key=self.key,
            UpdateExpression="SET #s = :s",
            ExpressionAttributeNames={"#s": "status"},
            ExpressionAttributeValues={":s": {"S": f"{self.writes}"}},
        )

    async def delete(self):
        self.writes += 1
        image = await self.get(self.old)
        if self.phase != "copying" and self.gone is None:
            self.gone = image
        await self.call("delete_item", Key=self.key)

    async def decide(self):
        assert await self.book.waive(error_id(self.key), "so be it")

    async def retry(self):
        await self.work(self.aws).failing()

    async def next(self):
        self.phase = NEXT[self.phase]

    async def back(self):
        self.phase = "soaking"

    # -- processes ---------------------------------------------------------------------------------

    async def work_on(self, kind, m):
        process, aws = self.seats[m]
        self.processes[m] = process, kind
        site = self.new if kind in ("compare new", "close") else self.old
        item, gone = await self.get(site), self.gone

        async def work():
            work, tally = self.work(aws), Tally()
            if kind == "copy":
                await work.pairs.forward(self.key, tally, old=self.old.attributes(self.schema))
            elif kind == "follow":
                await work.pairs.forward(self.key, tally, old=gone)
            elif item is not None:
                await work.visit(item, tally)

        await process.begins(work())
        self.look(m)

    async def send(self, m):
        await self.processes[m][0].step()
        self.look(m)

    def look(self, m):
        process, kind = self.processes[m]
        if process.ended:
            assert process.error is None, process.error
            self.processes[m] = None
            if kind == "follow":
                self.gone = None

    # -- what is there -----------------------------------------------------------------------------

    @property
    def book(self):
        return ErrorBook(StateBook(self.aws.dynamodb, self.tables.control, "shop").store, "0001")

    async def state(self):
        work = self.work(self.aws)
        old, new = await self.get(self.old), await self.get(self.new)
        if old is not None:
            ours = is_ours(work.migration, old) and BASE in old
            agrees = ours and old[BASE] == {"S": base_of(work.transform, old)}
            old = int(old["status"]["S"]), ours, agrees
        if new is not None:
            new = int(new["status"]["S"]), COPY in new, FROM in new
        error = await self.book.get(error_id(self.key))
        error = error and (error.kind, bool(error.waived))
        return old, new, error, [one is not None for one in self.processes]


def said(world):
    """What the model says of a world, as far as it can be seen in a table."""
    old, error = world.old, world.error
    old = old and (old.value, old.base is not None, old.base == old.value)
    error = error and (error.kind, not error.is_open)
    return old, world.new and tuple(world.new), error, [plan is not None for plan in world.plans]


MODEL = Model(Rules(), WRITES)


@asynccontextmanager
async def opened():
    app, world = rekey(), World.create(1)
    async with Troupe.on_stage() as troupe:
        seats = [troupe.enters(Actor(transacts, f"process {m}")) for m in range(2)]
        async with (
            world.clients() as aws,
            world.clients(seats[0]) as first,
            world.clients(seats[1]) as second,
        ):
            await TableShape().create(aws.dynamodb, app.table, entities_of(app))
            pairs = list(zip(seats, (first, second), strict=True))
            yield Site(app, world, aws, await survey(app, aws), pairs)


def replayed(traces):
    return replay(MODEL, traces, opened, said)


def weight(step):
    """Mostly go on: a walk is to come to an end."""
    return {"next": 6, "put": 0.5, "update": 0.7, "delete": 0.3, "decide": 2}.get(step[0], 1)


def test_a_migration_takes_the_steps_of_the_model():
    traces = list(walks(Model(Rules()), WALKS, 40, weigh=weight))
    assert replayed(traces) > 12 * WALKS
    ends = [[world.phase for _, world in follow(MODEL, trace)][-1] for trace in traces]
    assert ends.count("done") > WALKS // 8


def test_a_decision_on_a_write_of_old_code_is_none_on_its_deletion():
    late = [("update",), ("next",), ("compare old", 0), ("decide",), ("back",), ("delete",)]
    trace = [*TURNED, *late, ("compare new", 0)]
    assert replayed([trace]) == len(trace) - 1, "nothing is open: it does not go back"


@pytest.mark.parametrize("name", NAIVE)
def test_where_a_simpler_switch_loses_a_write_a_migration_does_as_the_model_does(name):
    trace = explore(Model(NAIVE[name], 2), until="lost").broken["lost"]
    assert replayed([trace]) > 4


LOOKS = (("compare old", 0), ("send", 0), ("compare new", 0))
STEPS = {
    "contract": (("next",),),
    "nothing is found": (*LOOKS, ("next",)),
    "it is found, and goes back": (*LOOKS, ("back",)),
    "process: reads": (("contract", 0), ("close", 0)),
    "process: deletes": (("send", 0), ("contract", 0), ("send", 0)),
    "process: closes": (("send", 0), ("close", 0), ("send", 0)),
    "deleted": (("contract", 0), ("send", 0), ("next",)),
    "closed": (("close", 0), ("send", 0), ("next",)),
    "person: decides": (("decide",),),
    "retry: forgets": (("retry",),),
    "retry: agreed": (("retry",),),
    "old code: delete": (("delete",),),
}
"""What the steps of the end's own model are here; every other one is a write, or nothing."""


@pytest.mark.parametrize("name", contract_end.NAIVE)
def test_where_a_simpler_end_loses_a_write_a_migration_does_as_the_model_does(name):
    model = contract_end.Model(contract_end.NAIVE[name])
    trace = list(TURNED)
    for step in explore(model, until="lost").broken["lost"]:
        trace += (("update",),) if "write" in step else STEPS.get(step, ())
    assert replayed([trace]) > len(TURNED) + 3
