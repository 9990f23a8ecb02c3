"""What handlers do with a migration's own writes: their effects, but no sends."""

import json
import random
from collections import Counter

import pytest
from msgspec import Raw
from structlog.testing import capture_logs

from streamkit import Add, App, Change, Delete, Entity, Put, Query, Send, Set
from streamkit.migrate.book.tallies import Tally
from streamkit.migrate.operate import commands, steps
from streamkit.migrate.run.running import Runner
from streamkit.model.origin import ORIGIN, read_origin
from streamkit.progress.actions import Verb
from streamkit.sinks.sink import Limits
from streamkit.testing.recording import recording
from tests.simulation.test_migration_rows import run, site_of

ORDERS = 5


class Door:
    """A sink that is never opened: a recorder replaces it."""

    name = "door"
    limits = Limits(items=10)


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    status: str = "NEW"
    label: str | None = None


class Filed(Entity, pk="FILED#{number}", sk="FILED"):
    number: int
    status: str = "NEW"


class Seen(Entity, pk="SEEN#{number}", sk="SEEN"):
    number: int
    times: int = 0


class Note(Entity, pk="NOTE#{number}", sk="NOTE"):
    number: int


def labelled(number: int) -> Set[Order]:
    return Set(label=f"{number}")


def deleted(status: str) -> Delete[Order] | None:
    return Delete(Order.key(number=0)) if status == "OLD" else None


def filed(order: Order) -> Filed:
    return Filed(number=order.number, status=order.status)


MODES = {
    "in_place": (labelled, {}),
    "touch": (labelled, {"mode": "touch"}),
    "rekey": (filed, {"mode": "rekey"}),
    "derive": (filed, {"mode": "derive"}),
}


def telling(function, options, **said):
    """Make an app whose handlers count, send and fan out whatever changes of orders and files."""
    app = App("shop", table="Shop", entities=[Note])
    door = app.sink(Door())

    def told(change):
        number = (change.new or change.old).number
        return [
            Add(Seen.key(number=number), times=1),
            Send(door, {"number": number, "by": change.origin}),
        ]

    @app.on(**said)
    def order_told(change: Change[Order]) -> list[Add[Seen] | Send]:
        return told(change)

    @app.on(**said)
    def file_told(change: Change[Filed]) -> list[Add[Seen] | Send]:
        return told(change)

    def seen_by(change: Change[Order]) -> Query[Seen]:
        return Seen.query(number=(change.new or change.old).number)

    @app.fan_out(seen_by)
    def noted(change: Change[Order], to: Seen) -> Put[Note] | None:
        return Put(Note(number=to.number)) if change.origin == "migration" else None

    app.migration("0001", Order, **options)(function)
    return app


def migrated(harness, *moves):
    """Run a migration to its end beside the app's worker."""

    async def through(aws):
        migration, clock = harness.app.migrations["0001"], harness.world.clock
        await commands.begin(harness.app, aws, migration, segments=1, clock=clock)
        for move in ("", *moves):
            if move:
                await getattr(steps, move)(harness.app, aws, "0001", clock=clock)
            state = await Runner(
                harness.app, aws, migration, clock=clock, rng=random.Random(1)
            ).run()
        return state.phase

    phase = harness.operate(through)
    harness.settle()
    return phase


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("said", ["default", "deliver", "suppress"])
def test_what_a_migration_writes_takes_effect_and_tells_nobody_unless_the_handler_wants_it(
    mode, said, harness_of
):
    function, options = MODES[mode]
    app = telling(function, options, migrations=said)
    moves = ("switch", "contract") if mode == "rekey" else ()
    with recording(app) as sent:
        harness = harness_of(app)
        harness.put(*(Order(number=number) for number in range(ORDERS)))
        harness.settle()
        before = sum(seen.times for seen in harness.scan(Seen))
        assert migrated(harness, *moves) == "done"
        after = sum(seen.times for seen in harness.scan(Seen))
        told = Counter(delivery.body["by"] for delivery in sent["door"].once)
    assert before == told["application"] == ORDERS
    assert (after > before) == (said != "suppress")
    assert told["migration"] == (after - before if said == "deliver" else 0)
    assert not harness.scan(Note)


def test_what_the_application_writes_meanwhile_is_told_all_the_same(harness_of):
    app = telling(*MODES["in_place"])
    with recording(app) as sent:
        harness = harness_of(app)
        assert migrated(harness) == "done"
        harness.put(Order(number=7))
        harness.settle()
    assert [delivery.body for delivery in sent["door"].once] == [{"number": 7, "by": "application"}]


# -- deletions -------------------------------------------------------------------------------------

OLD = Order(number=0, status="OLD")


async def put_again_between_mark_and_delete(monkeypatch):
    """Delete an item that the application puts again, as it was, before the delete is sent."""
    app = App("shop", table="Shop", entities=[Order])
    app.migration("0001", Order)(deleted)
    async with site_of(app) as site:
        await site.put(OLD)
        read = await site.get(OLD)
        lasts, real = [], site.calls.write

        async def write(action):
            if action.verb is not Verb.DELETE:
                return await real(action)
            if not lasts:
                await site.put(OLD)
            last = await site.get(OLD)
            outcome = await real(action)
            lasts.append((last, await site.get(OLD) is None))
            return outcome

        monkeypatch.setattr(site.calls, "write", write)
        site.tally.add(await site.in_place.reconcile(read, live=False))
        return lasts, await site.get(OLD), site.tally


def test_an_item_that_is_put_again_between_mark_and_delete_is_not_deleted_without_a_mark(
    monkeypatch,
):
    lasts, left, tally = run(put_again_between_mark_and_delete, monkeypatch)
    assert left is None
    assert tally == Tally(changed=1, conflicts=1)
    (put_again, was_deleted), (marked, _) = lasts
    assert ORIGIN not in put_again
    assert not was_deleted  # handlers would take it for the application's own
    assert read_origin(Raw(json.dumps(marked).encode()), None).writer == "migration"


# -- errors of items -------------------------------------------------------------------------------


def test_items_that_fail_for_one_cause_are_a_line_in_the_log_and_not_one_each(harness_of):
    def failing(number: int) -> Set[Order]:
        raise ValueError(number)

    app = telling(failing, {})
    with recording(app):
        harness = harness_of(app)
        harness.put(*(Order(number=number) for number in range(40)))
        with capture_logs() as logs:
            assert migrated(harness) == "blocked"
    assert 1 <= sum(line["event"] == "migration.item_failed" for line in logs) <= 4
