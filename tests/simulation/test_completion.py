"""A handler with I/O of its own does it once, also when its change comes again."""

import anyio
import pytest

from streamkit import App, Completed, Completions, Entity, Inserted, Policy
from streamkit.operate.rewind import rewind
from streamkit.testing.loop import EPOCH


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int


class Mailer:
    def __init__(self):
        self.sent = []

    async def send(self, number):
        await anyio.sleep(0.1)
        self.sent.append(number)


def mailing(mailer, name="mailing", *, asks=True, **said):
    app = App(name, table="Orders", policy=Policy(attempts=1), **said)

    @app.lifespan
    async def resources():
        yield mailer

    @app.on(delivery="at_least_once")
    async def mail(
        change: Inserted[Order], mailer: Mailer, completions: Completions
    ) -> Completed | None:
        if asks and await completions.has(change):
            return None
        await mailer.send(change.new.number)
        return Completed(change)

    return app


def orders(harness, count):
    harness.put(*(Order(number=number) for number in range(count)))
    harness.settle()


def records(harness):
    return [i for i in harness.world.items("Orders") if i.get("_sk_kind") == {"S": "done"}]


@pytest.mark.parametrize(("asks", "times"), [(True, 1), (False, 2)])
def test_another_consumer_with_that_handler_does_it_not_again(harness_of, asks, times):
    mailer = Mailer()
    harness = harness_of(mailing(mailer))
    orders(harness, 3)
    harness.stop()
    harness.app = mailing(mailer, "second", asks=asks)
    harness.settle()
    assert sorted(mailer.sent) == sorted([0, 1, 2] * times)
    assert len(records(harness)) == 3


def test_a_completion_is_written_only_if_the_result_is_committed(harness_of):
    mailer = Mailer()
    harness = harness_of(mailing(mailer))
    harness.crash(at=1_000_000)
    harness.put(Order(number=1))
    while not mailer.sent:  # it has sent, and not committed
        harness.advance(0.05)
    harness.crash()
    assert records(harness) == []
    harness.settle()
    assert mailer.sent == [1, 1]
    assert len(records(harness)) == 1


def test_a_rewind_does_it_not_again(harness_of):
    mailer = Mailer()
    harness = harness_of(mailing(mailer))
    orders(harness, 3)
    harness.stop()
    harness._run(rewind(harness.app, harness._aws, None, clock=harness.world.clock))
    harness.settle()
    assert sorted(mailer.sent) == [0, 1, 2]


def test_records_expire_by_the_tables_ttl(harness_of):
    harness = harness_of(mailing(Mailer()))
    setting = {"Enabled": True, "AttributeName": "until"}
    harness.world.engine.call(
        "dynamodb", "UpdateTimeToLive", {"TableName": "Orders", "TimeToLiveSpecification": setting}
    )
    orders(harness, 1)
    (record,) = records(harness)
    assert int(record["until"]["N"]) == pytest.approx(EPOCH + 7 * 86400, abs=600)
    harness.stop()
    harness.advance("8d")
    assert harness.expire() == 1
    assert records(harness) == []
