"""What an operator does to a consumer that Lambda functions run: it works, or says what to do."""

from datetime import UTC, datetime

import anyio
import pytest

from streamkit import App, Entity, Inserted, Modified, Policy, RetryableError, Set
from streamkit.aws_lambda.environment import ConsumerReplaced
from streamkit.aws_lambda.host import process_batch
from streamkit.aws_lambda.late import process_late
from streamkit.aws_lambda.maintenance import maintain
from streamkit.core.tables import survey
from streamkit.operate.consumers import pause_consumer, resume_consumer
from streamkit.operate.rewind import Despite, RewindRefused, rewind
from streamkit.operate.starts import start_findings
from streamkit.progress.clock import CorrectedClock
from streamkit.testing.archives import MemoryArchive
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from tests.simulation.lambdas import (
    Stream,
    environment_of,
    event,
    given_up,
    key_of,
    number_of,
    own_items,
    sqs,
    world_of,
)
from tests.simulation.test_rewind import Deciding

TABLE = "Deals"
DESPITE_NOTHING = Despite()


class Deal(Entity, pk="DEAL#{deal}", sk="DEAL#{deal}"):
    deal: str
    brand: str


class Copy(Entity, pk="COPY#{deal}", sk="COPY"):
    deal: str
    brand: str = ""


def app_of(down=(), ran=(), **named):
    app = App("deals", table=TABLE, entities=[Copy], policy=Policy(attempts=1), **named)

    @app.on
    async def follow(change: Inserted[Deal] | Modified[Deal]) -> Set[Copy]:
        if down:
            raise OSError("down")
        if isinstance(ran, list):
            ran.append(change.new.brand)
        return Set(Copy.key(deal=change.new.deal), brand=change.new.brand)

    return app


def put(world, deal, brand):
    key = {"S": f"DEAL#{deal}"}
    item = {"PK": key, "SK": key, "deal": {"S": deal}, "brand": {"S": brand}}
    status, body = world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})
    assert status == 200, body


def copies(world):
    found = [item for item in world.items(TABLE) if item["PK"]["S"].startswith("COPY#")]
    return {item["deal"]["S"]: item["brand"]["S"] for item in found}


def simulated(main):
    with repeatable(1):
        return run_virtually(main)


def test_a_paused_consumer_lets_batches_come_again_and_loses_nothing():
    async def main():
        app = app_of()
        world = world_of(app)
        stream = Stream(world, TABLE)
        async with environment_of(world, app) as environment:
            put(world, "d1", "a")
            assert await process_batch(environment, event(stream.traffic()))
            assert await pause_consumer(app, environment.aws, clock=world.clock) == "lambda"
            put(world, "d1", "b")
            put(world, "d2", "c")
            batch = [r for r in stream.traffic() if key_of(r).startswith("DEAL#")]
            written = len(own_items(world, TABLE, "mark"))
            for _ in range(9):  # more often than what counts as killed
                await anyio.sleep(120)
                response = await process_batch(environment, event(batch))
                assert response["batchItemFailures"] == [{"itemIdentifier": number_of(batch[0])}]
            assert copies(world) == {"d1": "a"}
            assert len(own_items(world, TABLE, "mark")) == written
            assert own_items(world, TABLE, "trial") == []
            assert await resume_consumer(app, environment.aws) == "lambda"
            assert await process_batch(environment, event(batch)) == {"batchItemFailures": []}
        assert copies(world) == {"d1": "b", "d2": "c"}

    simulated(main)


def test_in_a_paused_consumer_queues_and_what_a_mapping_gave_up_wait_too():
    async def main():
        down = [True]
        app = app_of(down)
        world = world_of(app)
        stream = Stream(world, TABLE)
        async with environment_of(world, app) as environment:
            put(world, "d1", "a")
            await process_batch(environment, event(stream.traffic()))
            down.clear()
            put(world, "d2", "b")
            body = given_up(stream, stream.traffic())
            await pause_consumer(app, environment.aws, clock=world.clock)
            await anyio.sleep(60)
            assert (await maintain(environment))["done"] == 0
            assert await process_late(environment, sqs(body)) == {
                "batchItemFailures": [{"itemIdentifier": "m0"}]
            }
            with pytest.raises(RetryableError):
                await process_late(environment, body)
            assert copies(world) == {}
            await resume_consumer(app, environment.aws)
            assert (await maintain(environment))["done"] == 1
            assert await process_late(environment, sqs(body)) == {"batchItemFailures": []}
        assert copies(world) == {"d1": "a", "d2": "b"}

    simulated(main)


async def rewound(app, aws, clock, to=None, despite=DESPITE_NOTHING):
    return await rewind(app, aws, to, in_flight=30.0, clock=clock, despite=despite)


@pytest.mark.parametrize("despite", [DESPITE_NOTHING, Despite(parked=True)])
def test_a_rewind_with_parked_changes_is_refused_and_says_what_to_do_on_lambda(despite):
    """They have no generation there by which old ones could be told from those that come anew."""

    async def main():
        app = app_of(down=[True])
        world = world_of(app)
        async with environment_of(world, app) as environment:
            put(world, "d1", "a")
            await process_batch(environment, event(Stream(world, TABLE).traffic()))
            await pause_consumer(app, environment.aws, clock=world.clock)
            await anyio.sleep(100)
            with pytest.raises(RewindRefused) as caught:
                await rewound(app, environment.aws, world.clock, despite=despite)
        assert "redrive or discard them first (`streamkit parked redrive`" in str(caught.value)
        assert "--drop-parked could not tell" in str(caught.value)

    simulated(main)


@pytest.mark.parametrize("hours", [0, -3, 3], ids=["right", "behind", "ahead"])
def test_a_rewind_asks_for_a_pause_that_outlasts_what_has_begun(hours):
    """Whatever the time is on the machine that pauses it."""

    async def main():
        app = app_of()
        world = world_of(app)
        async with environment_of(world, app) as environment:
            put(world, "d1", "a")
            await process_batch(environment, event(Stream(world, TABLE).traffic()))
            with pytest.raises(RewindRefused, match="consumers pause"):
                await rewound(app, environment.aws, world.clock)
            wrong = CorrectedClock(world.clock, hours * 3600)
            await pause_consumer(app, environment.aws, clock=wrong)
            await anyio.sleep(30)
            with pytest.raises(RewindRefused, match="--in-flight"):
                await rewound(app, environment.aws, world.clock)
            await anyio.sleep(60)
            done = await rewound(app, environment.aws, world.clock)
            assert (done.host, done.generation) == ("lambda", 2)

    simulated(main)


@pytest.mark.parametrize("again", [False, True])
def test_a_rewind_is_refused_if_its_pause_ends_before_it_is_decided(again):
    """A function may have parked a change in between, also if it is paused again."""

    async def main():
        app = app_of()
        world = world_of(app)
        operator, outcome = Deciding(), []

        async def rewinds():
            async with world.clients(operator) as aws:
                with pytest.raises(RewindRefused) as caught:
                    await rewound(app, aws, world.clock)
                outcome.append(str(caught.value))

        async with environment_of(world, app) as environment:
            put(world, "d1", "a")
            await process_batch(environment, event(Stream(world, TABLE).traffic()))
            await pause_consumer(app, environment.aws, clock=world.clock)
            await anyio.sleep(100)
            async with anyio.create_task_group() as group:
                group.start_soon(rewinds)
                await operator.there.wait()
                await resume_consumer(app, environment.aws)
                if again:
                    await pause_consumer(app, environment.aws, clock=world.clock)
                operator.goes_on.set()
        assert "try again" in outcome[0]

    simulated(main)


@pytest.mark.parametrize("archive", [None, MemoryArchive()])
def test_functions_are_not_rewound_to_what_only_an_archive_has(archive):
    async def main():
        app = app_of(archive=archive)
        world = world_of(app)
        async with environment_of(world, app) as environment:
            put(world, "d1", "a")
            moment = datetime.fromtimestamp(world.clock.time(), UTC)
            await process_batch(environment, event(Stream(world, TABLE).traffic()))
            await anyio.sleep(30 * 3600)
            await pause_consumer(app, environment.aws, clock=world.clock)
            await anyio.sleep(100)
            said = "all that is left" if archive is None else "functions read no archive"
            with pytest.raises(RewindRefused, match=said):
                await rewound(app, environment.aws, world.clock, moment)
            assert (await rewound(app, environment.aws, world.clock)).host == "lambda"

    simulated(main)


def test_after_a_rewind_a_new_mapping_runs_every_change_since_the_moment_again():
    async def main():
        ran = []
        app = app_of(ran=ran)
        world = world_of(app)
        put(world, "d1", "a")
        await anyio.sleep(100)
        moment = datetime.fromtimestamp(world.clock.time() - 10, UTC)
        put(world, "d1", "b")
        put(world, "d2", "c")

        async def deliver(environment):
            """As a mapping does that begins at the oldest record."""
            return await process_batch(environment, event(Stream(world, TABLE).traffic()))

        async with environment_of(world, app) as environment:
            await deliver(environment)
            await pause_consumer(app, environment.aws, clock=world.clock)
            await anyio.sleep(100)
            await rewound(app, environment.aws, world.clock, moment)
            with pytest.raises(ConsumerReplaced):  # the runtime opens another environment
                await deliver(environment)
        ran.clear()
        async with environment_of(world, app) as environment:
            assert (await deliver(environment))["batchItemFailures"]
            assert ran == []
            await resume_consumer(app, environment.aws)
            for _ in range(2):
                assert await deliver(environment) == {"batchItemFailures": []}
        assert ran == ["b", "c"]
        assert copies(world) == {"d1": "b", "d2": "c"}

    simulated(main)


def test_check_says_that_functions_hear_of_no_losses():
    async def main():
        app = app_of()
        world = world_of(app)
        async with environment_of(world, app) as environment:
            put(world, "d1", "a")
            await process_batch(environment, event(Stream(world, TABLE).traffic()))
            tables = await survey(app, environment.aws)
            assert await start_findings(app, environment.aws, tables) == []
            (finding,) = await start_findings(app_of(on_loss="resume"), environment.aws, tables)
        assert "IteratorAge" in finding.text

    simulated(main)
