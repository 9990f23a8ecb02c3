"""Failed items tell what to mend, are mended by kind, and stop a bad release while it is cheap."""

import random
from dataclasses import replace

import anyio
import pytest

from streamkit import App, Item, Set
from streamkit.errors import ConfigurationError
from streamkit.migrate.book.errors import error_id, groups_of
from streamkit.migrate.items.rewrites import visible
from streamkit.migrate.operate import commands, steps
from streamkit.migrate.run.passing import PassPace
from streamkit.migrate.run.running import Runner
from streamkit.migrate.verify import mending
from streamkit.model.copies import PAIR
from tests.simulation.merging import Billing, Customer, Prefs, Profile, apart, together
from tests.unit.migrate import test_migration_order
from tests.unit.migrate.test_migration_order import Order, labelled


def fussy(item: Item) -> Set[Order]:
    if item["number"] % 10 == 3:
        raise ValueError(f"the secret of {item['number']}")
    if item["number"] % 10 == 5:
        raise LookupError(f"no {item['number']}")
    return Set(label=f"{item['number']}")


RAISED = fussy.__code__.co_firstlineno


def shop(function=fussy, **options):
    app = App("shop", table="Shop")
    app.migration("0001", Order, **options)(function)
    return app


def at_orders(test, orders, app=None):
    """Run a test at a table with so many orders."""

    async def filled(site):
        for number in range(3, orders):
            item = {"PK": {"S": f"ORDER#{number}"}, "SK": {"S": "ORDER"}}
            await site.aws.dynamodb.put_item(
                TableName="Shop", Item=item | {"number": {"N": f"{number}"}}
            )
        await anyio.sleep(1200)  # or the stream brings them before the scan does
        return await test(site)

    return test_migration_order.at_table(filled, app or shop())


async def listed(site):
    return await mending.list_errors(site.app, site.aws, "0001")


async def joined(site, **pace):
    runner = Runner(
        site.app,
        site.aws,
        site.app.migrations["0001"],
        clock=site.world.clock,
        rng=random.Random(1),
        pace=PassPace(**{"segments": 4, "page": 20, "items": 4} | pace),
    )
    return await runner.run()


def labels(site):
    return sum("label" in item for item in site.world.items("Shop"))


# -- what a failure says ---------------------------------------------------------------------------


def test_a_failure_names_the_line_of_the_users_code_and_its_message_only_on_request():
    async def test(site):
        await site.begin("0001")
        await joined(site)
        return await listed(site)

    (failed,) = at_orders(test, 4)
    assert (failed.kind, failed.text, failed.detail) == (
        "transform",
        "ValueError",
        "the secret of 3",
    )
    assert failed.place == f"{__file__}:{RAISED + 2} in fussy"
    assert failed.phase == "verifying"
    assert "secret" not in str(failed.to_dict())


def test_since_stays_when_an_item_fails_again():
    async def test(site):
        await site.begin("0001")
        await joined(site)
        (first,) = await listed(site)
        await anyio.sleep(600)
        await steps.resume(site.app, site.aws, "0001")
        await joined(site)
        return first, *await listed(site)

    first, again = at_orders(test, 4)
    assert first.since <= first.at < again.at
    assert again.since == first.since


def test_failures_are_grouped_by_their_reason_with_an_example():
    async def test(site):
        await site.begin("0001")
        await joined(site)
        return await listed(site)

    found = at_orders(test, 25)
    groups = groups_of(found)
    assert [(one.kind, one.text, one.place, one.items) for one in groups] == [
        ("transform", "ValueError", f"test_migration_mending.py:{RAISED + 2} in fussy", 3),
        ("transform", "LookupError", f"test_migration_mending.py:{RAISED + 4} in fussy", 2),
    ]
    first = next(one for one in found if one.text == "ValueError")
    again = replace(first, since=first.since - 60, at=first.at + 60)
    rest = [one for one in found if one is not first]
    assert groups_of([*rest, again])[0].example == first.id  # it failed first, though also last


# -- retry and waive by kind -----------------------------------------------------------------------


def test_items_of_one_kind_are_waived_and_retried_and_others_are_not():
    def right(order: Order) -> bool:
        return order.number != 7

    async def test(site):
        await site.begin("0001")
        await joined(site)
        before = sorted(one.kind for one in await listed(site))
        count = await mending.waive_errors(
            site.app, site.aws, "0001", None, "known", kind="check", clock=site.world.clock
        )
        waived = sorted(one.kind for one in await listed(site) if one.waived)
        site.app = shop(labelled, check=right)
        tried = await mending.retry_errors(
            site.app, site.aws, "0001", kind="transform", clock=site.world.clock
        )
        return before, count, waived, tried

    before, count, waived, tried = at_orders(test, 9, shop(check=right))
    assert before == ["check", "transform", "transform"]
    assert (count, waived) == (1, ["check"])
    assert tried == (2, 0)


# -- a bad release is stopped ----------------------------------------------------------------------


def failing(item: Item) -> Set[Order]:
    raise ValueError


@pytest.mark.parametrize(
    ("most", "failed"), [(0.01, 8), (5, 8), (0.5, 30)], ids=["a share", "a number", "a half"]
)
def test_a_migration_is_blocked_once_more_items_fail_than_a_person_allows(most, failed):
    def bad(item: Item) -> Set[Order] | None:
        if item["number"] % 5:
            return None
        raise ValueError

    async def test(site):
        await site.begin("0001", limit=commands.Limit(max_errors=most))
        state = await joined(site, segments=1)
        return state, await listed(site)

    state, found = at_orders(test, 150, shop(bad))
    assert state.phase == "blocked"
    if failed == 8:
        assert "more than --max-errors allows" in state.note
        assert len(found) <= 12
    else:
        assert len(found) == 30


def test_one_failure_alone_is_no_share_and_waived_ones_do_not_count():
    async def test(site):
        await site.begin("0001", limit=commands.Limit(max_errors=0.001))
        state = await joined(site)
        assert "could not be migrated" in state.note
        await mending.waive_errors(
            site.app, site.aws, "0001", None, "known", clock=site.world.clock
        )
        await steps.resume(site.app, site.aws, "0001")
        return (await joined(site)).phase

    assert at_orders(test, 5) == "done"


def test_a_canary_pauses_after_its_first_items_and_a_resume_does_the_rest():
    async def test(site):
        await site.begin("0001", limit=commands.Limit(first=40))
        state = await joined(site)
        first = labels(site)
        again = await joined(site)
        assert (state.phase, state.desired) == (again.phase, again.desired) == ("scanning", "pause")
        assert labels(site) == first
        assert state.note.startswith(
            f"the first {first} items were visited: {first} changed, 0 failed"
        )
        state = await steps.resume(site.app, site.aws, "0001")
        assert (state.first, state.note) == (0, "")
        state = await joined(site)
        return first, state.phase, labels(site)

    first, phase, after = at_orders(test, 200, shop(labelled))
    assert 40 <= first <= 48
    assert (phase, after) == ("done", 200)


def test_a_canary_that_was_blocked_before_its_first_items_were_done_pauses_after_these():
    async def test(site):
        limit = commands.Limit(first=40, max_errors=1)
        await site.begin("0001", limit=limit)
        assert (await joined(site, segments=1)).phase == "blocked"
        site.app = shop(labelled)
        await steps.resume(site.app, site.aws, "0001", accept_change=True)
        state = await joined(site)
        first = labels(site)
        await steps.resume(site.app, site.aws, "0001")
        return state, first, (await joined(site)).phase, labels(site)

    state, first, phase, after = at_orders(test, 300)
    assert (state.phase, state.desired) == ("scanning", "pause")
    assert first < 100
    assert (phase, after) == ("done", 300)


def test_a_canary_that_went_wrong_is_rolled_back():
    async def test(site):
        await site.begin("0001", limit=commands.Limit(first=40))
        await joined(site)
        first = labels(site)
        await site.roll_back("0001")
        state = await joined(site)
        return first, state.phase, labels(site)

    app = shop(labelled, reverse=test_migration_order.unlabelled)
    first, phase, after = at_orders(test, 100, app)
    assert first >= 40
    assert (phase, after) == ("rolled back", 0)


def moved(order: Order) -> test_migration_order.Parcel:
    return test_migration_order.Parcel(number=order.number)


def moved_back(parcel: test_migration_order.Parcel) -> Order:
    return Order(number=parcel.number)


CANARIES = {
    # An item of a kilobyte at most is written once.
    "in place": (labelled, {"reverse": test_migration_order.unlabelled}, 1),
    # The new item becomes a stub, with the record; both go, and the old item loses its stamp.
    "rekey": (moved, {"mode": "rekey", "reverse": moved_back}, 10),
}


@pytest.mark.parametrize("way", CANARIES)
def test_the_rollback_of_a_canary_writes_its_items_and_no_other(way):
    function, options, units = CANARIES[way]

    async def test(site):
        before, written, used = site.world.items("Shop"), set(), 0.0

        def saw(sighting):
            nonlocal used
            ours = [one for one in sighting.writes if not one.is_control]
            written.update(one.keys["PK"]["S"].rpartition("#")[2] for one in ours)
            used += sighting.call.units["write"] if ours else 0.0

        site.world.watchers.append(saw)
        await site.begin("0001", limit=commands.Limit(first=40))
        await joined(site)
        first = {i["number"]["N"] for i in site.world.items("Shop") if {"label", PAIR} & i.keys()}
        written, used = set(), 0.0
        await site.roll_back("0001")
        state = await joined(site)
        after = {i["PK"]["S"]: visible(i) for i in site.world.items("Shop") if "number" in i}
        assert after == {i["PK"]["S"]: i for i in before if "number" in i}
        return state.phase, first, written, used

    phase, first, written, used = at_orders(test, 200, shop(function, **options))
    assert phase == "rolled back"
    assert 40 <= len(first) <= 60
    assert written == first
    assert used == units * len(first)


def test_an_aggregate_has_no_canary():
    from typing import Annotated

    from streamkit import Aggregate, Count, Key

    class Orders(Aggregate[Order], pk="ORDERS", sk="ORDERS"):
        orders: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, order: Order) -> Key["Orders"]:
            return cls.key()

    app = App("shop", table="Shop")
    app.aggregate(Orders)
    app.migration("0001", Orders, mode="aggregate")

    async def test(site):
        with pytest.raises(ConfigurationError, match="no --first"):
            await site.begin("0001", limit=commands.Limit(first=40))

    at_orders(test, 3, app)


def test_an_item_is_named_by_its_key_and_one_of_several_that_become_one_as_they_all():
    app = App("shop", table="Shop", entities=[Profile, Prefs, Billing, Customer])
    app.migration("0001", Profile, mode="merge", reverse=apart)(together)

    async def test(site):
        key = {"PK": {"S": "CUSTOMER#ada"}}
        wanted = [key | {"SK": {"S": name}} for name in ("PROFILE", "PREFS")]
        names = [await mending.names_of(site.app, site.aws, "0001", [one]) for one in wanted]
        assert names[0] == names[1] == {error_id(wanted[0])}
        with pytest.raises(ConfigurationError, match="the key of an item of table Shop is PK, SK"):
            await mending.names_of(site.app, site.aws, "0001", [{"pk": {"S": "CUSTOMER#ada"}}])

    test_migration_order.at_table(test, app)
