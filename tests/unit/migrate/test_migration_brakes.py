"""What ends a scan early holds as long as it is to hold, in every mode: `--first`, `--max-errors`."""

import pytest

from streamkit import Item, Set
from streamkit.migrate.book.course import after_pass, given_up
from streamkit.migrate.book.state import State
from streamkit.migrate.operate import commands, steps
from streamkit.migrate.run.work import TOUCH
from tests.unit.migrate.test_migration_mending import at_orders, joined, labels, listed, shop
from tests.unit.migrate.test_migration_order import Order, Parcel, labelled


def failing(item: Item) -> Set[Order]:
    raise ValueError


def as_parcel(order: Order) -> Parcel:
    return Parcel(number=order.number)


def touched(site):
    return sum(TOUCH in item for item in site.world.items("Shop"))


# -- the first items -------------------------------------------------------------------------------


def test_a_pause_before_the_first_items_are_done_does_not_release_the_brake():
    async def test(site):
        await site.begin("0001", limit=commands.Limit(first=40))
        await steps.pause(site.app, site.aws, "0001")
        state = await steps.resume(site.app, site.aws, "0001")
        assert state.first == 40
        state = await joined(site)
        assert (state.phase, state.paused) == ("scanning", True)
        assert 40 <= labels(site) <= 60
        return await steps.resume(site.app, site.aws, "0001")

    assert at_orders(test, 200, shop(labelled)).first == 0


def test_a_scan_that_ends_before_the_first_items_leaves_no_brake_to_later_phases():
    state = State("0001", phase="scanning", run=1, first=1000)
    assert after_pass(state).facts["first"] == 0
    assert "first" not in given_up(state, "too many").facts  # this scan has not ended
    later = State("0001", phase="verifying", run=1, first=1000)
    assert "first" not in given_up(later, "some are left").facts

    async def test(site):
        await site.begin("0001", limit=commands.Limit(first=1000))
        return await joined(site)

    state = at_orders(test, 10, shop(labelled))
    assert (state.phase, state.first) == ("done", 0)


def test_items_that_the_stream_has_moved_before_the_scan_reads_them_count_as_first_ones():
    async def test(site):
        await site.begin("0001", limit=commands.Limit(first=150))
        for number in range(3, 100):  # as what was written shortly before, or meanwhile
            key = {"PK": {"S": f"ORDER#{number}"}, "SK": {"S": "ORDER"}}
            await site.aws.dynamodb.put_item(
                TableName="Shop", Item=key | {"number": {"N": f"{number}"}, "note": {"S": "new"}}
            )
        return await joined(site)

    state = at_orders(test, 200, shop(as_parcel, mode="rekey"))
    assert (state.phase, state.paused) == ("scanning", True)


def test_the_first_items_of_a_touch_have_their_new_shape_when_people_look_at_them():
    async def test(site):
        await site.begin("0001", limit=commands.Limit(first=40))
        state = await joined(site)
        assert (state.phase, state.paused) == ("scanning", True)
        return touched(site), labels(site)

    marked, done = at_orders(test, 200, shop(labelled, mode="touch"))
    assert 40 <= marked <= done < 100


# -- items that fail -------------------------------------------------------------------------------


def test_a_touch_whose_function_fails_is_blocked_before_it_has_touched_the_table():
    async def test(site):
        await site.begin("0001", limit=commands.Limit(max_errors=5))
        return await joined(site, segments=1), touched(site), await listed(site)

    state, marked, found = at_orders(test, 200, shop(failing, mode="touch"))
    assert state.phase == "blocked"
    assert "more than --max-errors allows" in state.note
    assert marked == 0
    assert {one.kind for one in found} == {"transform"}
    assert len(found) < 60


def test_a_touch_marks_the_items_that_do_not_fail():
    def some(item: Item) -> Set[Order]:
        if item["number"] % 10 == 3:
            raise ValueError
        return Set(label="new")

    async def test(site):
        await site.begin("0001")
        state = await joined(site)
        return state.phase, touched(site), labels(site), len(await listed(site))

    assert at_orders(test, 50, shop(some, mode="touch")) == ("blocked", 45, 45, 5)


@pytest.mark.parametrize("percent", [0.1, 0.47, 0.7])
def test_one_failure_alone_is_no_share_whatever_the_share(percent):
    def one_is_bad(item: Item) -> Set[Order]:
        if item["number"] == 7:
            raise ValueError
        return Set(label="new")

    async def test(site):
        await site.begin("0001", limit=commands.Limit(max_errors=percent / 100))
        return await joined(site)

    assert "could not be migrated" in at_orders(test, 20, shop(one_is_bad)).note
