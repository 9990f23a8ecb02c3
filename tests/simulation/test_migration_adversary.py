"""Migrations in which something happens at the worst moment: a small scenario for each."""

import json
import random
from dataclasses import replace
from functools import partial
from unittest.mock import AsyncMock

import pytest
from msgspec import Raw

from streamkit import App, Entity, Set
from streamkit.errors import ConfigurationError
from streamkit.migrate.book.errors import ErrorBook, error_id
from streamkit.migrate.book.state import State
from streamkit.migrate.book.state_book import StateBook
from streamkit.migrate.operate import steps
from streamkit.migrate.run.capture import capture_app
from streamkit.migrate.run.running import Runner
from streamkit.migrate.run.work import MigrationWork, Schemas
from streamkit.migrate.verify.mending import retry_errors
from streamkit.model.copies import COPY, PAIR
from streamkit.model.origin import read_origin
from streamkit.progress.actions import Verb
from streamkit.stream.decode.envelope import Record, StreamRecord
from tests.simulation import migrating
from tests.simulation.migrating import Customer, Email, OldOrder, Order, Profile, Stats
from tests.simulation.test_migration_rows import run, site_of


class Padded(Entity, pk="C#{user}", sk="ORDER#{number}"):
    user: str
    number: str
    status: str = "NEW"


def padded(order: Padded) -> Padded:
    return Padded(user=order.user, number=order.number.zfill(6), status=order.status)


def unpadded(order: Padded) -> Padded:
    return Padded(user=order.user, number=order.number.lstrip("0"), status=order.status)


def alike() -> App:
    """Return an app whose items keep their shape when they move."""
    app = App("shop", table="Shop", entities=[Padded])
    app.migration("0001", Padded, mode="rekey", reverse=unpadded)(padded)
    return app


def work_of(site, phase, direction="forward", stage="", mode="", declared=0.0, bare=False):
    """Return a process's work in a phase; with a `mode` it makes pairs only while that lasts."""
    book = ErrorBook(StateBook(site.aws.dynamodb, site.tables.control, site.app.name).store, "0001")
    state = State("0001", phase=phase, direction=direction, run=1, stage=stage, records=True)
    state = replace(state, mode=mode, declared=declared, bare=bare)
    schemas = Schemas(site.schema, site.schema)
    return MigrationWork(
        site.app.name, site.migration, state, schemas, site.calls, book, site.world.clock
    )


SHORT = Padded(user="ann", number="7")
LONG = Padded(user="ann", number="000007")


async def turned(site, entity, phase="switching"):
    """Pair an item, and let its new item count."""
    key = entity.item_key.wire(site.schema)
    for step in ("", "turn") if phase == "switching" else ("",):
        await work_of(site, phase).families.settle(key, step=step)


async def visited(site, entity, phase, direction="back"):
    """Let a pass of a phase find an item's record; return what it counted."""
    families = work_of(site, phase, direction).families
    name = error_id(entity.item_key.wire(site.schema))
    record = families.records.space.key("pair", "0001", name)
    found = await site.calls.get(site.schema.name, record)
    return await work_of(site, phase, direction).visit(found)


async def rolled_back_before_the_switch_was_complete():
    async with site_of(alike()) as site:
        await site.put(SHORT)
        await turned(site, SHORT, "scanning")
        for phase in ("unturning", "dropping", "dropping"):
            for entity in (LONG, SHORT):
                await work_of(site, phase, "back").visit(await site.get(entity))
            await visited(site, SHORT, phase)
        return await site.get(SHORT), await site.get(LONG)


def test_a_copy_of_the_same_shape_is_not_taken_for_a_source_that_was_turned():
    source, target = run(rolled_back_before_the_switch_was_complete)
    assert target is None
    assert COPY not in source


async def contracted_with_a_pair_that_was_not_turned():
    async with site_of(alike()) as site:
        await site.put(SHORT)
        await turned(site, SHORT, "scanning")
        await work_of(site, "contracting").visit(await site.get(LONG))
        return await site.get(LONG)


def test_the_end_deletes_no_copy_that_is_still_to_become_the_truth():
    assert run(contracted_with_a_pair_that_was_not_turned) is not None


async def a_late_process_makes_a_part_again(monkeypatch):
    async with site_of(migrating.split()) as site:
        profile = Profile(name="ann", click=3)
        await site.put(profile)

        async def switched_and_deleted():
            await turned(site, profile)
            await site.delete(Stats(name="ann"))

        site.meanwhile(monkeypatch, "transact", switched_and_deleted)
        await turned(site, profile, "scanning")
        return await site.get(Stats(name="ann"))


def test_a_process_that_is_late_does_not_make_a_part_again_that_was_deleted_since(monkeypatch):
    assert run(a_late_process_makes_a_part_again, monkeypatch) is None


async def rolled_back_with_a_deletion_unseen():
    async with site_of(migrating.rekey()) as site:
        old = OldOrder(user="ann", order_id="1", status="NEW")
        await site.put(old)
        await turned(site, old)
        await site.delete(Order(user="ann", order_id="1"))
        await visited(site, old, "unturning")
        return await site.get(old)


def test_what_was_deleted_after_the_switch_does_not_come_back_by_a_rollback():
    assert run(rolled_back_with_a_deletion_unseen) is None


async def handlers_see_of_a_rollback():
    async with site_of(migrating.rekey()) as site:
        old, new = (one(user="ann", order_id="1", status="NEW") for one in (OldOrder, Order))
        await site.put(old)
        await turned(site, old)
        await visited(site, old, "unturning")
        found = [await site.get(new)]
        for _ in range(2):
            await visited(site, old, "dropping")
            found.append(await site.get(new))
        return *found, await site.get(old)


def test_a_rollback_hides_targets_before_it_deletes_them_so_that_the_deletion_is_nobodys():
    hidden, stub, target, source = run(handlers_see_of_a_rollback)
    assert COPY in hidden
    assert COPY in stub
    assert "status" not in stub
    assert target is None
    assert not {COPY, PAIR} & source.keys()


async def a_late_process_mirrors_a_part_of_a_source_that_was_contracted():
    async with site_of(migrating.split()) as site:
        await runner_in(site, "contracting")
        profile = Profile(name="ann", click=3)
        await site.put(profile)
        await turned(site, profile)
        await visited(site, profile, "contracting", "forward")
        await site.put(Stats(name="ann", click=4))
        key = profile.item_key.wire(site.schema)
        tally = await work_of(site, "soaking").families.settle(key)
        return await site.get(profile), tally


def test_a_process_that_is_late_gives_nothing_back_to_what_was_contracted():
    profile, tally = run(a_late_process_mirrors_a_part_of_a_source_that_was_contracted)
    assert "click" not in profile
    assert tally.errors == 0


async def a_part_is_mirrored():
    async with site_of(migrating.split()) as site:
        await runner_in(site, "soaking")
        await site.put(Profile(name="ann"))
        await site.put(Stats(name="ann", click=3))
        key = Profile.key(name="ann").wire(site.schema)
        await work_of(site, "soaking").families.settle(key)
        return await site.get(Profile(name="ann"))


def test_a_source_that_was_never_whole_follows_its_parts_while_they_are_the_truth():
    assert run(a_part_is_mirrored)["click"] == {"N": "3"}


async def taken_back_and_applied_again(app, source, target):
    async with site_of(app) as site:
        await site.put(source)
        key = source.item_key.wire(site.schema)
        await site.pairs.forward(key)
        read = await site.get(target)
        await site.delete(target)
        await site.pairs.forward(key)
        await work_of(site, "dropping", "back").visit(read)
        return await site.get(target)


@pytest.mark.parametrize("mode", ["rekey", "derive"])
def test_who_is_late_with_a_rollback_deletes_nothing_that_was_made_anew(mode):
    source, target = OldOrder(user="ann", order_id="1"), Order(user="ann", order_id="1")
    app = migrating.rekey()
    if mode == "derive":
        app = App("shop", table="Shop", entities=[Customer, Email])
        app.migration("0001", Customer, mode="derive")(migrating.marker)
        source, target = Customer(name="ann", email="a@b"), Email(email="a@b", name="ann")
    assert run(taken_back_and_applied_again, app, source, target) is not None


async def derived_and_taken_back():
    app = App("shop", table="Shop", entities=[Customer, Email])
    app.migration("0001", Customer, mode="derive")(migrating.marker)
    async with site_of(app) as site:
        customer, email = Customer(name="ann", email="a@b"), Email(email="a@b", name="ann")
        await site.put(customer)
        await site.pairs.forward(customer.item_key.wire(site.schema))
        deleted, real = [], site.calls.write

        async def write(action):
            if action.verb is Verb.DELETE:
                deleted.append(await site.get(email))
            return await real(action)

        site.calls.write = write
        await work_of(site, "dropping", "back").visit(await site.get(email))
        return deleted, await site.get(email)


def test_what_a_rollback_deletes_says_that_a_migration_did_it():
    (last,), there = run(derived_and_taken_back)
    assert there is None
    assert read_origin(Raw(json.dumps(last).encode()), None).writer == "migration"


async def moved_by_a_function_that_knows_no_place_any_more():
    app = App("shop", table="Shop", entities=[OldOrder, Order])

    def moved(order: OldOrder) -> Order | None:
        return None if order.status == "PAID" else migrating.moved(order)

    app.migration("0001", OldOrder, mode="rekey", reverse=migrating.moved_back)(moved)
    async with site_of(app) as site:
        old = OldOrder(user="ann", order_id="1", status="NEW")
        await site.put(old)
        await turned(site, old)
        await site.set_status(Order(user="ann", order_id="1"), "SENT")
        await site.set_status(old, "PAID")
        tally = await visited(site, old, "unturning")
        return tally.errors, await site.get(old)


def test_a_source_that_leads_nowhere_any_more_while_its_target_was_written_is_left_to_people():
    errors, source = run(moved_by_a_function_that_knows_no_place_any_more)
    assert errors == 1
    assert COPY in source


# -- phases ----------------------------------------------------------------------------------------


async def lost_in(phase, direction):
    async with site_of(migrating.rekey()) as site:
        runner, book, state = await runner_in(site, phase, direction)
        await runner._begin_anew(state)
        return await book.read("0001")


async def runner_in(site, phase, direction="forward"):
    """Return a process, opened, of a migration that has reached a phase."""
    book = StateBook(site.aws.dynamodb, site.tables.control, site.app.name)
    digest = site.migration.digest
    begun = State(
        "0001",
        digest=digest,
        phase=phase,
        direction=direction,
        run=1,
        segments=1,
        mode="rekey",
        records=True,
    )
    await book.write(State("0001"), begun)
    runner = Runner(
        site.app, site.aws, site.migration, clock=site.world.clock, rng=random.Random(1)
    )
    await runner._open()
    return runner, book, runner.state


@pytest.mark.parametrize(
    ("phase", "direction", "then"),
    [
        ("scanning", "forward", "capturing"),
        ("ready", "forward", "capturing"),
        ("switching", "forward", "switching"),
        ("soaking", "forward", "soaking"),
        ("contracting", "forward", "contracting"),
        ("returning", "back", "returning"),
        ("following", "back", "following"),
        ("unturning", "back", "unturning"),
    ],
)
def test_lost_changes_never_lead_from_pairs_that_were_turned_to_the_beginning(
    phase, direction, then
):
    state = run(lost_in, phase, direction)
    assert (state.phase, state.run) == (then, 2)


async def lost_when_others_are_through(before, after):
    async with site_of(migrating.rekey()) as site:
        runner, book, state = await runner_in(site, *before)
        await book.write(state, replace(state, phase=after))
        await runner._begin_anew(state)
        return await book.read("0001")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("closing", "forward"), "done"),
        (("unturning", "back"), "dropping"),
        (("unturning", "back"), "rolled back"),
    ],
)
def test_changes_that_are_lost_when_others_are_through_begin_nothing_anew(before, after):
    state = run(lost_when_others_are_through, before, after)
    assert (state.phase, state.run) == (after, 1)


async def of_another_definition(joins):
    async with site_of(migrating.rekey()) as site:
        _, book, state = await runner_in(site, "soaking")
        await book.write(state, replace(state, digest="other"))
        return await joins(site)


async def run_it(site):
    await Runner(site.app, site.aws, site.migration, clock=site.world.clock).run()


async def take_it_back(site, **named):
    return await steps.rollback(site.app, site.aws, "0001", clock=site.world.clock, **named)


@pytest.mark.parametrize(("joins", "command"), [(run_it, "resume"), (take_it_back, "rollback")])
def test_whoever_has_another_definition_neither_joins_nor_takes_a_migration_back(joins, command):
    said = f"another definition; .* `streamkit migrate {command} --accept-change`"
    with pytest.raises(ConfigurationError, match=said):
        run(of_another_definition, joins)


def test_a_migration_is_taken_back_by_another_definition_if_somebody_says_so():
    state = run(of_another_definition, partial(take_it_back, accept_change=True))
    assert state.phase == "returning"
    assert state.digest == migrating.rekey().migrations["0001"].digest


async def of_a_release_without_records(joins):
    async with site_of(migrating.rekey()) as site:
        _, book, state = await runner_in(site, "soaking")
        await book.write(state, replace(state, records=False))
        return await joins(site)


async def contract_it(site):
    await steps.contract(site.app, site.aws, "0001", clock=site.world.clock)


async def retry_it(site):
    await retry_errors(site.app, site.aws, "0001", clock=site.world.clock)


@pytest.mark.parametrize("joins", [run_it, take_it_back, contract_it, retry_it])
def test_pairs_that_an_earlier_release_began_without_records_are_left_to_that_release(joins):
    with pytest.raises(ConfigurationError, match=r"end it with that release.*contract.*rollback"):
        run(of_a_release_without_records, joins)


async def failing_pass(phase):
    async with site_of(migrating.rekey()) as site:
        old = OldOrder(user="ann", order_id="1", status="NEW")
        await site.put(old)
        await site.put(Order(user="ann", order_id="1", status="SOMEBODY ELSE'S"))
        runner, book, state = await runner_in(site, phase)
        runner.capture.caught_up = AsyncMock(return_value=True)
        await runner._act(state)
        return await book.read("0001")


def test_a_switch_that_fails_for_an_item_is_not_passed_over():
    state = run(failing_pass, "switching")
    assert (state.phase, state.desired, state.attempt) == ("switching", "pause", 2)
    assert "could not be migrated" in state.note


def test_too_many_failures_of_a_switch_leave_the_phase_that_a_rollback_must_know(monkeypatch):
    monkeypatch.setattr("streamkit.migrate.run.passing.ERRORS_MAX", 0)
    state = run(failing_pass, "switching")
    assert (state.phase, state.desired) == ("switching", "pause")


# -- which items -----------------------------------------------------------------------------------


class Line(Entity, pk="C#{user}", sk="#ORDER#{order_id}#LINE#{number}"):
    user: str
    order_id: str
    number: int
    status: str = "NEW"
    day: str = "d1"


def test_items_of_a_more_specific_entity_are_left_alone_by_the_pass_and_the_stream():
    app = migrating.in_place()
    both = App("shop", table="Shop", entities=[Order, Line])
    both.migrations |= app.migrations

    async def matched():
        async with site_of(both) as site:
            items = [
                one.attributes(site.schema)
                for one in (Order(user="a", order_id="1"), Line(user="a", order_id="1", number=1))
            ]
            schemas = Schemas(site.schema, site.schema, both.entities)
            book = ErrorBook(
                StateBook(site.aws.dynamodb, site.tables.control, "shop").store, "0001"
            )
            work = MigrationWork(
                "shop", site.migration, State("0001"), schemas, site.calls, book, None
            )
            capture = capture_app(both, site.migration, State("0001", began=1e9), None)
            route = capture.router(site.schema).route
            keys = [{n: i[n] for n in site.schema.key_attributes} for i in items]
            routed = [route(record_of(key)) for key in keys]
            return [work.transform.matches(item) for item in items], routed

    assert run(matched) == ([True, False], [Order, Line])


def record_of(keys):
    inner = StreamRecord(keys=dict(keys), sequence_number="1")
    return Record(dynamodb=inner, event_name="INSERT")


async def tried_again_though_it_is_another_item():
    async with site_of(migrating.in_place()) as site:
        profile = Profile(name="ann")
        await site.put(profile, status={"S": "NEW"}, day={"S": "d1"})
        tally = await work_of(site, "verifying").retry(profile.item_key.wire(site.schema))
        return tally.errors, await site.get(profile)


def test_an_item_that_became_another_entitys_is_not_rewritten_by_a_retry():
    errors, item = run(tried_again_though_it_is_another_item)
    assert errors == 0
    assert "status_day" not in item


class Paper(Entity, pk="DESK#{desk}", sk="{number}", type="paper"):
    desk: str
    number: int
    pages: int = 1
    length: str | None = None


class Scrap(Entity, pk="DESK#{desk}", sk="{number}", type="scrap"):
    desk: str
    number: int
    pages: int = 1


def measured(pages: int) -> Set[Paper]:
    return Set(length=f"{pages} p.")


async def rewritten_as_it_was_read(now):
    app = App("desk", table="Desk", type_attribute="type", entities=[Paper, Scrap])
    app.migration("0001", Paper)(measured)
    async with site_of(app) as site:
        await site.put(now)
        read = Paper(desk="a", number=1).attributes(site.schema)
        tally = await work_of(site, "scanning").in_place.reconcile(read, live=True)
        return tally.errors, await site.get(now)


@pytest.mark.parametrize("pages", [1, 2])
def test_an_item_that_has_become_another_entitys_since_it_was_read_is_not_rewritten(pages):
    errors, item = run(rewritten_as_it_was_read, Scrap(desk="a", number=1, pages=pages))
    assert (errors, item["type"], "length" in item) == (0, {"S": "scrap"}, False)
