"""A shadow handler runs on everything and changes nothing, whatever it returns or raises."""

import anyio

from streamkit import App, Entity, Inserted, Modified, Policy, Put, Set, Table
from streamkit.core.shadow import ShadowCounts


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    status: str = "NEW"


class Notice(Entity, pk="NOTICE#{number}", sk="NOTICE"):
    number: int
    text: str = ""


def text_of(order):
    return f"order {order.number} is {order.status}"


def make_app():
    app = App("shadowed", table="Orders", entities=[Notice], policy=Policy(attempts=1))

    @app.on
    def tell(change: Inserted[Order] | Modified[Order]) -> Put[Notice]:
        return Put(Notice(number=change.new.number, text=text_of(change.new)))

    return app


def counts(harness):
    harness.advance(1)
    return harness.worker.workers[0].dispatcher.counts.shadow


def orders(harness, count, **fields):
    harness.put(*(Order(number=number, **fields) for number in range(count)))
    harness.settle()


def test_a_new_version_that_does_the_same_is_found_to_do_the_same(harness_of):
    app = make_app()

    @app.on(shadow=True)
    async def tell_anew(change: Inserted[Order] | Modified[Order], table: Table) -> Set[Notice]:
        await table.get(Notice.key(number=change.new.number))
        return Set(Notice.key(number=change.new.number), text=text_of(change.new))

    harness = harness_of(app)
    orders(harness, 5)
    assert counts(harness)["tell_anew"] == ShadowCounts(runs=5, same=5)


def test_a_new_version_that_differs_is_counted_and_changes_nothing(harness_of):
    app = make_app()

    @app.on(shadow=True)
    def tell_anew(change: Inserted[Order]) -> list[Put[Notice]]:
        number = change.new.number
        return [Put(Notice(number=n, text=text_of(change.new))) for n in (number, number + 100)]

    harness = harness_of(app)
    orders(harness, 5)
    assert counts(harness)["tell_anew"] == ShadowCounts(runs=5, same=5, different=5)
    assert len(harness.scan(Notice)) == 5


def test_one_that_fails_parks_nothing_and_holds_nothing_up(harness_of):
    app = make_app()

    @app.on(shadow=True, on_failure="block")
    def broken(change: Inserted[Order]) -> None:
        raise RuntimeError

    @app.on(shadow=True, timeout=1)
    async def hanging(change: Inserted[Order]) -> None:
        await anyio.sleep_forever()

    harness = harness_of(app)
    orders(harness, 3)
    found = counts(harness)
    assert found["broken"] == found["hanging"] == ShadowCounts(runs=3, failed=3)
    assert harness.parked() == []
    assert len(harness.scan(Notice)) == 3


def test_a_shadow_handler_alone_writes_no_commit(harness_of):
    def written(**said):
        app = App("alone", table="Orders", entities=[Notice])

        @app.on(**said)
        async def tell(change: Inserted[Order], table: Table) -> Put[Notice]:
            await table.get(Notice.key(number=1))
            return Put(Notice(number=change.new.number))

        harness = harness_of(app)
        harness.settle()
        calls = []
        harness.world.engine.observers.append(lambda call: calls.append(call.operation))
        orders(harness, 3)
        return calls.count("TransactWriteItems"), harness

    applied, _ = written()
    shown, harness = written(shadow="log")
    assert applied
    assert not shown
    assert harness.scan(Notice) == []


def test_a_parked_change_of_a_handler_that_is_a_shadow_now_is_not_lost(harness_of):
    down = [True]

    def make(**said):
        app = App("later", table="Orders", entities=[Notice], policy=Policy(attempts=1))

        @app.on(**said)
        async def tell(change: Inserted[Order]) -> Put[Notice]:
            if down[0]:
                raise RuntimeError
            return Put(Notice(number=change.new.number))

        return app

    harness = harness_of(make())
    orders(harness, 1)
    harness.stop()
    real, harness.app = harness.app, make(shadow=True)
    assert real.fingerprint() != harness.app.fingerprint()
    down[0] = False
    harness.settle()
    harness.redrive()
    (parked,) = harness.parked()
    assert parked.error == "HandlerShadowed"
    harness.put(Order(number=0, status="PAID"))
    harness.delete(Order.key(number=0))
    orders(harness, 1)  # it does not queue behind that one
    assert len(harness.parked()) == 1
    assert counts(harness)["tell"] == ShadowCounts(runs=1, different=1)
    harness.stop()
    harness.app = make(name="tell")
    harness.redrive()
    assert harness.parked() == []
    assert len(harness.scan(Notice)) == 1
