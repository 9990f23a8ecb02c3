"""DynamoDB stops at the first invalid action: a fence that does not hold is not named beside it."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from streamkit import Add, App, Entity, Inserted, Policy
from streamkit.aws_lambda.host import process_batch
from streamkit.changes import ItemKey
from streamkit.core.parked.queues import list_parked
from streamkit.core.tables import open_store
from streamkit.migrate.book.tallies import Tally
from streamkit.migrate.sending.attempts import ItemAttempts
from streamkit.migrate.sending.calls import DONE
from streamkit.operate.moves.marking import Marking
from streamkit.operate.moves.moved import MoveRefused
from streamkit.progress.verdicts import Invalid
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process
from tests.simulation.lambdas import Stream, environment_of, event, world_of

TABLE = "Shop"


class Order(Entity, pk="ORDER#{order}", sk="ORDER#{order}"):
    order: str


class Sums(Entity, pk="TALLY#{order}", sk="TALLY"):
    order: str
    times: int = 0


def make_app(on_failure):
    app = App("shop", table=TABLE, entities=[Sums], policy=Policy(on_failure=on_failure))

    @app.on
    def count(change: Inserted[Order]) -> Add[Sums]:
        return Add(Sums.key(order=change.new.order), times=1)

    return app


def put(world, pk, **attributes):
    key = {"S": pk}
    item = {"PK": key, "SK": {"S": "TALLY"} if pk.startswith("TALLY") else key, **attributes}
    status, body = world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})
    assert status == 200, body


class Overtaken:
    """Lets another process be faster, between what an invocation reads and what it commits."""

    def __init__(self, faster):
        self.faster = faster

    async def intercept(self, call, apply):
        if call.operation == "TransactWriteItems" and self.faster is not None:
            faster, self.faster = self.faster, None
            await faster()
        return apply()


@pytest.mark.parametrize("on_failure", ["park", "skip", "block"])
def test_an_invocation_that_was_overtaken_blames_no_result_that_is_invalid_by_now(on_failure):
    async def main():
        app = make_app(on_failure)
        world = world_of(app)
        put(world, "ORDER#a", order={"S": "a"})
        records = Stream(world, TABLE).traffic()

        async def faster():
            async with environment_of(world, app) as environment:
                await process_batch(environment, event(records))
            # And the application makes of the sum what nothing can be added to.
            put(world, "TALLY#a", order={"S": "a"}, times={"S": "once"})

        wire = Overtaken(None)
        async with environment_of(world, app, Process("slow", faults=wire)) as environment:
            wire.faster = faster
            response = await process_batch(environment, event(records))
            assert wire.faster is None
            assert environment.dispatcher.counts.failures == 0
        assert response == {"batchItemFailures": []}
        async with world.clients() as aws:
            assert not await list_parked(await open_store(app, aws))

    with repeatable(1):
        run_virtually(main)


async def test_a_migrations_item_has_failed_only_if_what_was_read_anew_is_invalid_again():
    failed, calls = [], SimpleNamespace(reserved=nullcontext)

    async def fail(*told):
        failed.append(told[1:])
        return Tally()

    async def attempts(*outcomes):
        left = list(outcomes)

        async def attempt(_seen):
            return left.pop(0)

        tally = await ItemAttempts(calls, SimpleNamespace(note=fail)).persist({}, attempt)
        return tally, left

    invalid = Invalid((), "ValidationError")
    tally, left = await attempts(invalid, DONE)
    assert (tally.changed, left, failed) == (1, [], [])
    _, left = await attempts(invalid, invalid, DONE)
    assert (left, failed) == ([DONE], [("invalid", "DynamoDB finds the request invalid")])


def test_a_mark_that_cannot_be_written_ends_the_move_and_is_not_taken_for_written():
    async def main():
        app = make_app("park")
        world = world_of(app)

        async def transact(actions, rng):
            return Invalid((0,), "ValidationError")

        async with environment_of(world, app) as environment:
            marking = Marking(environment)
            names = frozenset({"lane"})
            fence = SimpleNamespace(transact=transact)
            with pytest.raises(MoveRefused, match="ValidationError"):
                await marking.add(ItemKey("ORDER#a", "ORDER#a"), "lanes", names, fence)

    with repeatable(1):
        run_virtually(main)
