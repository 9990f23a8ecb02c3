"""What a mapping gave up: processed if it was never done, else parked as late and never applied."""

import json
from types import SimpleNamespace

import anyio
import pytest
from structlog.testing import capture_logs

from streamkit import (
    App,
    ConfigurationError,
    Entity,
    Inserted,
    Modified,
    PoisonChange,
    RetentionLost,
    RetryableError,
    Set,
)
from streamkit.aws_lambda import late
from streamkit.aws_lambda.environment import StreamReplaced
from streamkit.aws_lambda.host import process_batch
from streamkit.aws_lambda.late import _note_of, process_late
from streamkit.aws_lambda.maintenance import maintain
from streamkit.core.parked.queues import Selection, list_parked, parked_queues
from streamkit.operate.redrive import discard, redrive
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from tests.simulation.lambdas import (
    Stream,
    environment_of,
    event,
    given_up,
    number_of,
    own_items,
    sqs,
    world_of,
)

TABLE = "Shop"
WEEK = 7 * 86_400


class Order(Entity, pk="ORDER#{order}", sk="ORDER#{order}"):
    order: str
    amount: int = 0


class Log(Entity, pk="LOG#{order}", sk="LOG#{order}"):
    order: str
    amount: int = 0


def make_app(runs, **named):
    app = App("shop", table=TABLE, entities=[Log], **named)

    @app.on
    def log(change: Inserted[Order] | Modified[Order]) -> Set[Log]:
        runs.append((change.new.order, change.new.amount))
        if change.new.amount < 0:
            raise PoisonChange("negative")
        return Set(Log.key(order=change.new.order), amount=change.new.amount)

    return app


def put(world, order, amount):
    key = {"S": f"ORDER#{order}"}
    item = {"PK": key, "SK": key, "order": {"S": order}, "amount": {"N": str(amount)}}
    world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})


def logged(world):
    logs = (item for item in world.items(TABLE) if item["PK"]["S"].startswith("LOG#"))
    return {item["order"]["S"]: int(item["amount"]["N"]) for item in logs}


def simulated(main):
    with repeatable(1):
        return run_virtually(main)


def scenario(check, **named):
    """Orders a 1, b 1, a 2; the mapping gives up the first two and goes on with the third."""

    async def main():
        runs = []
        app = make_app(runs, **named)
        world = world_of(app)
        stream = Stream(world, TABLE)
        for order, amount in (("a", 1), ("b", 1), ("a", 2)):
            put(world, order, amount)
        records = stream.traffic()
        async with environment_of(world, app) as environment:
            await process_batch(environment, event(records[2:]))
            assert logged(world) == {"a": 2}
            await check(world, environment, stream, records, runs)

    simulated(main)


@pytest.mark.parametrize("payload", [True, False])
def test_what_was_never_done_is_processed_and_what_was_passed_is_parked_as_late(payload):
    async def check(world, environment, stream, records, runs):
        body = given_up(stream, records[:2], payload=payload)
        message = body if payload else sqs(body)
        assert await process_late(environment, message) == {"batchItemFailures": []}
        assert logged(world) == {"a": 2, "b": 1}
        (parked,) = await list_parked(environment.store)
        assert (parked.error, int(parked.position)) == ("Late", int(number_of(records[0])))
        assert ("a", 1) not in runs
        await process_late(environment, message)
        assert len(await list_parked(environment.store)) == 1, "once, however often it comes"

    scenario(check)


def test_a_late_change_holds_nothing_up_and_is_never_applied():
    async def check(world, environment, stream, records, runs):
        await process_late(environment, given_up(stream, records[:1], payload=True))
        await anyio.sleep(3_600)
        assert await maintain(environment) == {"queues": 1, "stuck": 1, "done": 0, "failed": 0}
        (report,) = await redrive(environment.app, environment.aws, clock=world.clock)
        assert report.stuck
        assert report.failure.kind == "Late"
        assert logged(world) == {"a": 2}
        put(world, "a", 3)
        await process_batch(environment, event(stream.traffic()))
        assert logged(world) == {"a": 3}
        (gone,) = await discard(environment.app, environment.aws, Selection(error="Late"))
        assert gone.empty
        assert await list_parked(environment.store) == []
        assert ("a", 1) not in runs

    scenario(check)


def test_an_items_last_change_that_is_done_is_known_to_be_done():
    async def check(world, environment, stream, records, runs):
        before = list(runs)
        await process_late(environment, given_up(stream, records[2:], payload=True))
        assert runs == before
        assert await list_parked(environment.store) == []

    scenario(check)


def test_what_is_older_than_marks_live_is_late_even_where_there_is_no_mark():
    async def check(world, environment, stream, records, runs):
        await anyio.sleep(WEEK)
        await process_late(environment, given_up(stream, records[1:2], payload=True))
        (parked,) = await list_parked(environment.store)
        assert parked.error == "Late"
        assert logged(world) == {"a": 2}

    scenario(check)


def test_a_change_that_is_passed_while_its_payload_is_processed_is_late_and_not_lost():
    """The mark is read, and another invocation moves it before the transaction."""

    async def check(world, environment, stream, records, runs):
        put(world, "b", 9)
        later = stream.traffic()[-1]
        transact, first = environment.aws.dynamodb.transact_write_items, []

        async def overtaken(**request):
            if not first:
                first.append(True)
                await process_batch(environment, event([later]))
            return await transact(**request)

        environment.aws.dynamodb.transact_write_items = overtaken
        await process_late(environment, given_up(stream, records[1:2], payload=True))
        assert logged(world) == {"a": 2, "b": 9}
        (parked,) = await list_parked(environment.store)
        assert (parked.error, int(parked.position)) == ("Late", int(number_of(records[1])))

    scenario(check)


def test_a_batch_whose_records_are_gone_says_so():
    async def check(world, environment, stream, records, runs):
        body = given_up(stream, records[:2])
        message = sqs(body)
        world.control.split(TABLE)
        await anyio.sleep(30 * 3_600)
        with capture_logs() as lines:
            assert await process_late(environment, message) == {
                "batchItemFailures": [{"itemIdentifier": "m0"}]
            }
        (line,) = lines
        assert (line["event"], line["error"], line["message"]) == (
            "late.failed",
            "RetentionLost",
            "m0",
        )
        assert "does not keep" in line["why"]
        with pytest.raises(RetentionLost, match="does not keep"):
            await process_late(environment, body)

    scenario(check)


def test_records_that_are_gone_are_a_loss_of_which_the_apps_hook_is_told():
    told = []

    async def hook(loss, table):
        told.append(loss)
        if len(told) == 1:
            raise OSError("down")

    async def check(world, environment, stream, records, runs):
        message = sqs(given_up(stream, records[:2]), given_up(stream, records[1:2], payload=True))
        shard = stream.shards[0]
        world.control.split(TABLE)
        await anyio.sleep(30 * 3_600)
        first = await process_late(environment, message)
        assert first == {"batchItemFailures": [{"itemIdentifier": "m0"}]}
        assert await process_late(environment, message) == {"batchItemFailures": []}
        assert [(loss.certain, loss.shard) for loss in told] == [(True, shard)] * 2
        assert told[0].until.timestamp() > records[0]["dynamodb"]["ApproximateCreationDateTime"]
        assert logged(world) == {"a": 2, "b": 1}

    scenario(check, on_loss=hook)


def test_records_that_the_stream_only_does_not_show_yet_are_no_loss(monkeypatch):
    told = []

    async def hook(loss, table):
        told.append(loss)

    async def not_shown(*where):
        raise RetentionLost("the stream does not show the records")

    async def check(world, environment, stream, records, runs):
        message = sqs(given_up(stream, records[1:2]))
        with monkeypatch.context() as patched:
            patched.setattr(late, "records_between", not_shown)
            answer = await process_late(environment, message)
            assert answer == {"batchItemFailures": [{"itemIdentifier": "m0"}]}
        assert await process_late(environment, message) == {"batchItemFailures": []}
        assert (told, logged(world)) == ([], {"a": 2, "b": 1})

    scenario(check, on_loss=hook)


BAD = {
    "no JSON": "hello",
    "no batch": {"hello": 1},
    "a list": [1],
    "no shard": {"DDBStreamBatchInfo": {"streamArn": "arn"}},
}


@pytest.mark.parametrize(
    "bad", [*BAD, "former stream", "other table", "bare payload", "no payload"]
)
def test_a_message_that_cannot_be_processed_comes_again_alone(bad):
    async def check(world, environment, stream, records, runs):
        put(world, "c", 1)
        later = stream.traffic()
        wrong = given_up(stream, records[:1], payload=True)
        if bad in BAD:
            wrong = BAD[bad]
        elif bad == "bare payload":
            wrong |= {"payload": "{}"}
        elif bad == "no payload":
            wrong |= {"payload": json.dumps({"Records": 5})}
        else:
            name = {"former stream": "/stream/1", "other table": ":table/X/stream/1"}[bad]
            old = "/stream/2" if bad == "former stream" else f":table/{TABLE}/stream/2"
            wrong["DDBStreamBatchInfo"]["streamArn"] = stream.arn.replace(old, name)
        event = sqs(
            given_up(stream, records[1:2], payload=True),
            wrong,
            given_up(stream, later, payload=True),
        )
        if bad == "no JSON":
            event["Records"][1]["body"] = "hello"
        with capture_logs() as lines:
            answer = await process_late(environment, event)
        assert answer == {"batchItemFailures": [{"itemIdentifier": "m1"}]}
        assert logged(world) == {"a": 2, "b": 1, "c": 1}
        failed = [line for line in lines if line["event"] == "late.failed"]
        assert [(line["message"], bool(line["why"])) for line in failed] == [("m1", True)]

    scenario(check)


def test_an_environment_that_was_opened_before_its_stream_was_replaced_is_opened_again():
    async def check(world, environment, stream, records, runs):
        message = given_up(stream, records[1:2], payload=True)
        for spec in (
            {"StreamEnabled": False},
            {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        ):
            update = {"TableName": TABLE, "StreamSpecification": spec}
            world.engine.call("dynamodb", "UpdateTable", update)
            await anyio.sleep(60)
        _, described = world.engine.call("dynamodb", "DescribeTable", {"TableName": TABLE})
        message["DDBStreamBatchInfo"]["streamArn"] = described["Table"]["LatestStreamArn"]
        with pytest.raises(StreamReplaced):
            await process_late(environment, sqs(message))

    scenario(check)


def test_what_late_has_applied_itself_is_not_parked_when_its_message_comes_again():
    async def check(world, environment, stream, records, runs):
        put(world, "c", 1)
        put(world, "c", 2)
        message = sqs(given_up(stream, stream.traffic(), payload=True))
        for _ in range(2):
            assert await process_late(environment, message) == {"batchItemFailures": []}
        assert logged(world)["c"] == 2
        assert await list_parked(environment.store) == []

    scenario(check)


def test_what_late_has_applied_before_its_time_was_over_is_not_parked_when_it_goes_on():
    async def check(world, environment, stream, records, runs):
        put(world, "c", 1)
        put(world, "c", 2)
        for number in range(300):
            put(world, f"o{number}", number)
        message = sqs(given_up(stream, stream.traffic(), payload=True))
        client, transact, times = environment.aws.dynamodb, None, []
        transact = client.transact_write_items

        async def seldom(**request):
            times.append(1)
            await anyio.sleep(1_000 if len(times) > 2 else 0)
            return await transact(**request)

        client.transact_write_items = seldom
        again = {"batchItemFailures": [{"itemIdentifier": "m0"}]}
        assert await process_late(environment, message, 10) == again
        client.transact_write_items = transact
        assert 1 < len(logged(world)) < 301
        assert await process_late(environment, message) == {"batchItemFailures": []}
        assert len(logged(world)) == 302
        assert await list_parked(environment.store) == []

    scenario(check)


def test_what_is_passed_between_two_deliveries_of_a_message_is_late_and_not_lost():
    """The note says how far the first delivery came, and nothing of what is behind that."""

    async def check(world, environment, stream, records, runs):
        message = sqs(given_up(stream, records[1:2], payload=True))
        client, transact = environment.aws.dynamodb, environment.aws.dynamodb.transact_write_items

        async def never(**request):
            await anyio.sleep(1_000)

        client.transact_write_items = never
        await process_late(environment, message, 10)
        client.transact_write_items = transact
        put(world, "b", 9)
        await process_batch(environment, event(stream.traffic()[-1:]))
        assert await process_late(environment, message) == {"batchItemFailures": []}
        (parked,) = await list_parked(environment.store)
        assert (parked.error, int(parked.position)) == ("Late", int(number_of(records[1])))

    scenario(check)


def test_a_message_that_comes_again_once_its_records_are_gone_is_done_and_no_loss():
    async def check(world, environment, stream, records, runs):
        message = sqs(given_up(stream, records[1:2]))
        assert await process_late(environment, message) == {"batchItemFailures": []}
        world.control.split(TABLE)
        await anyio.sleep(30 * 3_600)
        assert await process_late(environment, message) == {"batchItemFailures": []}

    scenario(check)


@pytest.mark.parametrize("other", ["incarnation", "shard", "first", "last"])
def test_how_far_a_batch_is_done_says_nothing_of_another_one(other):
    named = {"incarnation": "1a", "shard": "s", "first": "1", "last": "2"}

    def note(incarnation, **batch):
        environment = SimpleNamespace(incarnation=incarnation)
        return _note_of(environment, SimpleNamespace(**batch))

    assert note(**named) != note(**named | {other: "3"})


def test_the_messages_of_an_invocation_share_its_time():
    async def check(world, environment, stream, records, runs):
        message = sqs(*(given_up(stream, [one], payload=True) for one in records[:2]))

        async def never(**request):
            await anyio.sleep(1_000)

        put(world, "c", 1)
        client, real = environment.aws.dynamodb, environment.aws.dynamodb.transact_write_items
        client.transact_write_items = never
        later = [given_up(stream, [one], payload=True) for one in (records[1], *stream.traffic())]
        began = anyio.current_time()
        answer = await process_late(environment, sqs(*later), 10)
        assert anyio.current_time() - began <= 10.5
        assert len(answer["batchItemFailures"]) == 2
        client.transact_write_items = real
        assert await process_late(environment, message) == {"batchItemFailures": []}

    scenario(check)


def test_a_change_that_fails_does_not_wait_behind_one_of_its_item_that_is_late():
    async def check(world, environment, stream, records, runs):
        await process_late(environment, given_up(stream, records[:1], payload=True))
        put(world, "a", -1)
        await process_batch(environment, event(stream.traffic()))
        queues = await parked_queues(environment.store)
        assert [queue.head == queue.tail for queue in queues] == [True, True]
        assert {one.error for one in await list_parked(environment.store)} == {
            "Late",
            "PoisonChange",
        }

    scenario(check)


def test_messages_that_are_not_done_come_again_alone():
    async def check(world, environment, stream, records, runs):
        body = given_up(stream, records[1:2], payload=True)
        message = sqs(given_up(stream, records[2:], payload=True), body)

        async def never(**request):
            await anyio.sleep(1_000)

        patched, real = environment.aws.dynamodb, environment.aws.dynamodb.transact_write_items
        patched.transact_write_items = never
        assert await process_late(environment, message, 10) == {
            "batchItemFailures": [{"itemIdentifier": "m1"}]
        }
        with pytest.raises(RetryableError, match="not done"):
            await process_late(environment, body, 10)
        patched.transact_write_items = real
        assert await process_late(environment, message, 10) == {"batchItemFailures": []}
        assert logged(world) == {"a": 2, "b": 1}

    scenario(check)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"Records": [{"eventSource": "aws:s3", "s3": {}}]},
        {"Records": [{"Sns": {"Message": '{"hello": 1}'}}]},
        {"Records": ["hello"]},
        None,
        "hello",
        {"DDBStreamBatchInfo": {"streamArn": "arn:aws:dynamodb:table/Shop"}},
    ],
)
def test_an_event_of_something_else_is_refused(message):
    async def check(world, environment, stream, records, runs):
        with pytest.raises(ConfigurationError):
            await process_late(environment, message)

    scenario(check)


@pytest.mark.parametrize("through_a_queue", [False, True])
def test_a_topics_message_is_read_too(through_a_queue):
    async def check(world, environment, stream, records, runs):
        body = json.dumps(given_up(stream, records[1:2]))
        message = {"Records": [{"Sns": {"Message": body}}]}
        if through_a_queue:
            message = sqs({"Type": "Notification", "Message": body})
        assert await process_late(environment, message) == {"batchItemFailures": []}
        assert logged(world) == {"a": 2, "b": 1}
        assert len(own_items(world, TABLE, "mark")) == 2

    scenario(check)
