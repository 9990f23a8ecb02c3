"""How much a migration takes: by what calls have cost, and never more than it may."""

import anyio
import pytest

from streamkit.migrate.book.limits import Limit, Share
from streamkit.migrate.sending.rate import Rate
from streamkit.testing.loop import VirtualClock, run_virtually


def table(units):
    return {"CapacityUnits": units, "Table": {"CapacityUnits": units}}


def with_index(units, index):
    return table(units) | {"GlobalSecondaryIndexes": {"GSI1": {"CapacityUnits": index}}}


async def write(rate, consumed):
    reserved = await rate.ready("write")
    rate.charge(consumed, "write")
    rate.settle("write", reserved)


async def seconds_for(calls, units, *, limits, part=1.0, consumed=table):
    clock = VirtualClock()
    rate = Rate(clock, limits, Share(part, 1e9))
    began = clock.monotonic()
    for _ in range(calls):
        await write(rate, consumed(units))
    await rate.ready("write")
    return clock.monotonic() - began


@pytest.mark.parametrize(
    ("limits", "part", "low", "high"),
    [
        (Limit(max_writes=100), 1.0, 9.9, 10.5),
        (Limit(max_writes=100), 0.25, 39.5, 41),
        (Limit(), 1.0, 0, 0),
    ],
)
def test_a_thousand_units_take_as_long_as_the_limit_says(limits, part, low, high):
    async def main():
        return await seconds_for(100, 10, limits=limits, part=part)

    assert low <= run_virtually(main, seed=1) <= high


def test_an_index_that_takes_more_than_the_table_sets_the_pace():
    async def main():
        def consumed(units):
            return with_index(units, 3 * units)

        return await seconds_for(100, 10, limits=Limit(max_writes=100), consumed=consumed)

    assert 27 <= run_virtually(main, seed=1) <= 31


def test_a_throttle_takes_a_third_back_and_it_grows_again():
    async def main():
        clock = VirtualClock()
        rate = Rate(clock, Limit(max_writes=100))
        speeds = []
        for step in range(3):
            if step == 1:
                rate.ease("throttled")
                rate.ease("throttled")  # of the same moment: it counts once
            began = clock.monotonic()
            for _ in range(20):
                await write(rate, table(10))
            speeds.append(200 / (clock.monotonic() - began))
        return speeds, rate.reason

    (before, eased, later), _ = run_virtually(main, seed=1)
    assert eased < 0.9 * before
    assert later > eased


def test_without_a_limit_a_throttle_sets_one_for_a_while():
    async def main():
        clock = VirtualClock()
        rate = Rate(clock)
        for _ in range(50):
            await write(rate, table(100))
        began = clock.monotonic()
        rate.ease("throttled")
        for _ in range(5):
            await write(rate, table(10))
        return clock.monotonic() - began

    assert run_virtually(main, seed=1) > 0


@pytest.mark.parametrize("units", [1, 10])
@pytest.mark.parametrize("index", [0, 3], ids=["table", "index"])
def test_calls_that_wait_together_never_take_more_than_the_limit_in_a_second(units, index):
    async def main():
        clock = VirtualClock()
        rate = Rate(clock, Limit(max_writes=60))
        began, done = clock.monotonic(), []

        async def call():
            reserved = await rate.ready("write")
            await anyio.sleep(0.02)
            rate.charge(with_index(units, index * units), "write")
            rate.settle("write", reserved)
            done.append(clock.monotonic() - began)

        async with anyio.create_task_group() as group:
            for _ in range(600 // units):
                group.start_soon(call)
        return done

    done, cost = run_virtually(main, seed=1), units * max(1, index)
    taken = [cost * sum(at <= moment < at + 1 for moment in done) for at in range(9)]
    assert max(taken) <= 60 + 2 * cost + 3
    assert sum(taken) / 9 >= 0.95 * 60


def test_nothing_is_taken_on_a_share_that_is_out_of_date():
    async def main():
        clock = VirtualClock()
        rate = Rate(clock, Limit(max_writes=10), Share(1.0, clock.monotonic() + 2))
        for _ in range(100):
            with anyio.move_on_after(10) as scope:
                await write(rate, table(1))
            if scope.cancelled_caught:
                break
        return rate.writes[""]

    assert 18 <= run_virtually(main, seed=1) <= 22


def test_a_pause_is_not_made_up_for():
    async def main():
        clock = VirtualClock()
        rate = Rate(clock, Limit(max_writes=100))
        await write(rate, table(1))
        await anyio.sleep(60)
        began, count = clock.monotonic(), 0
        while clock.monotonic() - began < 1:
            await write(rate, table(1))
            count += 1
        return count

    assert 98 <= run_virtually(main, seed=1) <= 107


def test_a_refused_write_is_taken_for_as_dear_as_others():
    async def main():
        clock = VirtualClock()
        rate = Rate(clock, Limit(max_writes=10))
        await write(rate, table(5))
        began = clock.monotonic()
        for _ in range(10):
            rate.settle("write", await rate.ready("write"), cost=True)
        await rate.ready("write")
        return clock.monotonic() - began, rate.writes

    seconds, writes = run_virtually(main, seed=1)
    assert 5 <= seconds <= 6
    assert writes == {"": 55}


def test_a_limit_is_told_as_the_reason_only_if_it_was_waited_for_since():
    async def main():
        rate = Rate(VirtualClock(), Limit(max_writes=10))
        for _ in range(3):
            await write(rate, table(5))
        return rate.told(), rate.told()

    assert run_virtually(main, seed=1) == ("limit", "")


# -- the arithmetic alone ------------------------------------------------------------------------


class Hand:
    """A clock that a test sets by hand."""

    now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock():
    return Hand()


def pace(rate, kind="write"):
    return rate._look(kind)[0]


def test_many_calls_that_fail_for_one_cause_reduce_the_rate_once_a_second(clock):
    rate = Rate(clock, Limit(max_writes=100))
    for after, expected in ((0.0, 70), (0.9, 70), (0.2, 49)):
        clock.now += after
        rate.ease("throttled", hold=60)
        assert pace(rate) == pytest.approx(expected)


def test_a_reduced_rate_grows_once_its_cause_has_been_looked_at_again(clock):
    rate = Rate(clock, Limit(max_writes=100))
    rate.ease("lag", hold=30.0)
    for after, expected in ((29.5, 70), (1.6, 73.5), (1.0, 77.175)):
        clock.now += after
        assert (pace(rate), rate.reason) == (pytest.approx(expected), "lag")
    clock.now += 60
    assert (pace(rate), rate.reason) == (100, "")


def test_a_rate_never_becomes_so_small_that_nothing_goes_on(clock):
    limited, free = Rate(clock, Limit(max_writes=100)), Rate(clock)
    for _ in range(30):
        clock.now += 2
        for rate in (limited, free):
            rate.ease("throttled", hold=1000)
    assert (pace(limited), pace(free)) == (2, 5)


def test_without_a_limit_the_ceiling_follows_what_was_used_and_only_falls(clock):
    rate = Rate(clock)
    for speed, expected in ((100.0, 70), (300.0, 49), (20.0, 14)):
        rate._bucket("write", "").speed = speed
        clock.now += 2
        rate.ease("throttled", hold=1000)
        assert rate._ceiling["write"] == pytest.approx(expected)


@pytest.mark.parametrize(("whole", "own", "least"), [(100, 10, 10), (5, 10, 5), (None, 10, 10)])
def test_a_process_keeps_to_its_own_limit_and_to_its_share(clock, whole, own, least):
    rate = Rate(clock, Limit(max_writes=whole), most=Limit(max_writes=own))
    assert pace(rate) == least


def test_half_of_the_income_at_most_pays_for_writes_that_did_not_wait(clock):
    rate = Rate(clock, Limit(max_writes=10))
    bucket = rate._bucket("write", "")
    bucket.tokens, bucket.beside = -20.0, 50.0
    clock.now += 1
    pace(rate)
    assert (bucket.tokens, bucket.beside) == (-15.0, 45.0)
    bucket.beside = 900.0
    clock.now += 1
    pace(rate)
    assert (bucket.tokens, bucket.beside) == (-10.0, 100.0)


def test_of_a_refused_call_the_usual_cost_is_kept_and_the_rest_given_back(clock):
    rate = Rate(clock, Limit(max_writes=100))
    rate._usual["write", ""] = 4.0
    rate.settle("write", rate._set_aside("write", 100, 25.0), cost=True)
    assert (rate._bucket("write", "").tokens, rate.writes) == (-4.0, {"": 4.0})


def test_what_did_not_wait_says_nothing_of_the_usual_cost(clock):
    rate = Rate(clock, Limit(max_writes=100))
    rate.charge(table(5.0), "write")
    rate.charge(table(500.0), "write", usual=False)
    assert (rate._usual["write", ""], rate._bucket("write", "").beside) == (5.0, 500.0)


async def test_units_that_are_paid_beforehand_leave_no_credit(clock):
    rate = Rate(clock, Limit(max_writes=100))
    async with rate.paced(1.0):
        rate.charge(table(0.5), "write", usual=False)
    assert rate._bucket("write", "").beside == 0.0


def test_a_reason_is_the_one_of_before_once_another_is_over(clock):
    rate = Rate(clock, reason="lag")
    with rate.held_by("index"):
        assert rate.reason == "index"
    assert rate.reason == "lag"


def test_a_rate_that_is_eased_does_not_call_its_limit_the_reason():
    async def main():
        rate = Rate(VirtualClock(), Limit(max_writes=10))
        rate.ease("lag", hold=1000)
        rate.charge(table(20.0), "write")
        await rate.ready("write")
        return rate.reason, rate.told(), rate.reason

    assert run_virtually(main, seed=1) == ("lag",) * 3


def test_what_was_owed_without_a_limit_is_not_owed_once_there_is_one(clock):
    rate = Rate(clock)
    rate.charge(table(500.0), "write", usual=False)
    pace(rate)
    rate.limit(Limit(max_writes=10))
    pace(rate)
    assert rate._bucket("write", "").beside == 0.0


def test_a_speed_is_of_the_time_since_the_last_look(clock):
    rate = Rate(clock)
    rate.charge(table(100.0), "write")
    for expected in (20.0, 16.0):
        clock.now += 1
        pace(rate)
        assert rate._bucket("write", "").speed == pytest.approx(expected)


def test_a_reply_is_charged_to_the_table_and_to_each_index_by_its_own_units(clock):
    rate = Rate(clock)
    rate.charge([with_index(10.0, 3.0) | {"CapacityUnits": 13.0}, None], "write")
    assert rate.writes == {"": 10.0, "GSI1": 3.0}


async def test_a_process_is_busy_for_half_a_second_after_a_call(clock):
    rate = Rate(clock)
    assert not rate.is_busy
    await rate.ready("write")
    assert rate.is_busy
    clock.now += 0.6
    assert not rate.is_busy
