"""What repeats at the rate of changes is said once and summed up: nothing is uncounted."""

import asyncio
import gc
import weakref

import anyio
import structlog
from structlog.testing import capture_logs

from streamkit import App, Entity, Inserted, RetryableError, Set
from streamkit.observe.logger import get_logger
from streamkit.observe.meters import UNMETERED, Meters
from streamkit.observe.metrics import NoMetrics
from streamkit.observe.repeats import OUTAGE_SECONDS, counted_as
from streamkit.testing.loop import run_virtually

log = get_logger("streamkit.test")


def happens(times, *, pause=0.0, **fields):
    async def repeatedly():
        for number in range(times):
            known = {"by": "confirm", "handler": "confirm", "error": "OSError", "number": number}
            log.often("thing.happened", **{**known, **fields})
            await anyio.sleep(pause)

    return repeatedly()


def lines(work):
    """Run work and a while longer; return the lines of what happened again and again."""

    async def main():
        with counted_as(UNMETERED):
            await work()
            await anyio.sleep(600)

    with capture_logs() as logs:
        run_virtually(main)
    return [one for one in logs if one["event"] == "thing.happened"]


def test_what_happens_once_is_one_line():
    (line,) = lines(lambda: happens(1))
    assert "times" not in line


def test_a_thousand_in_a_moment_are_the_first_a_sum_and_a_last_word():
    first, summed, last = lines(lambda: happens(1000))
    assert (first["number"], summed["number"]) == (0, 999)
    assert (summed["times"], summed["errors"]) == (1000, {"OSError": 1000})
    assert (last["times"], last["over"]) == (1000, True)


def test_an_outage_of_ten_minutes_is_a_line_a_minute_and_every_one_is_counted():
    said = lines(lambda: happens(6000, pause=0.1))
    assert 10 <= len(said) <= 13
    assert (said[-1]["times"], said[-1]["over"]) == (6000, True)
    assert said[-1]["within_seconds"] > 590
    assert [one["times"] for one in said[1:]] == sorted(one["times"] for one in said[1:])


def test_what_begins_again_later_is_said_again_at_once():
    async def work():
        await happens(5)
        await anyio.sleep(300)
        await happens(1, error="TimeoutError")

    said = lines(work)
    assert [one.get("over") for one in said] == [None, None, True, None]
    assert said[-1]["error"] == "TimeoutError"


def test_tries_with_ever_longer_pauses_are_one_outage_with_fewer_and_fewer_lines():
    async def work():
        for pause in (5, 15, 45, 135, 405, 900, 900, 900):
            await happens(1, quiet=OUTAGE_SECONDS)
            await anyio.sleep(pause)
        await anyio.sleep(2000)

    first, *sums = lines(work)
    assert "times" not in first
    assert (sums[-1]["times"], sums[-1]["over"]) == (8, True)
    assert [one.get("over") for one in sums].count(True) == 1
    assert len(sums) <= 6


def test_an_outage_that_begins_again_within_its_quiet_is_the_same_outage():
    async def work():
        await happens(5, quiet=OUTAGE_SECONDS)
        await anyio.sleep(300)
        await happens(1, quiet=OUTAGE_SECONDS)
        await anyio.sleep(2 * OUTAGE_SECONDS)
        await happens(1, quiet=OUTAGE_SECONDS)

    said = lines(work)
    assert [one.get("times") for one in said] == [None, 5, 6, 6, None]
    assert [bool(one.get("over")) for one in said] == [False, False, False, True, False]


def test_handlers_consumers_and_events_are_summed_up_apart():
    async def work():
        await happens(3, by="one")
        await happens(3, by="two")
        with counted_as(Meters(NoMetrics(), "another")):
            await happens(3, by="one")

    said = lines(work)
    assert len([one for one in said if "times" not in one]) == 3
    assert [one["times"] for one in said if one.get("over")] == [3, 3, 3]


def test_what_comes_within_a_minute_of_a_sum_belongs_to_it():
    async def work():
        await happens(2)
        await anyio.sleep(90)
        await happens(1)

    said = lines(work)
    assert [(one.get("times"), one.get("over")) for one in said] == [
        (None, None),
        (2, None),
        (3, None),
        (3, True),
    ]


def test_nothing_is_left_to_do_when_a_worker_has_ended():
    broken = []

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, about: broken.append(about))
        with counted_as(UNMETERED):
            await happens(7)
        await anyio.sleep(600)

    with capture_logs() as logs:
        run_virtually(main)
    assert broken == []
    assert len(logs) == 2


def test_a_consumer_that_ends_leaves_what_is_counted_of_others_alone():
    async def work():
        await happens(3)
        with counted_as(Meters(NoMetrics(), "another")):
            await happens(1)
        await happens(3)

    said = lines(work)
    assert [one.get("times") for one in said] == [None, None, 6, 6]


def test_what_is_counted_when_a_worker_ends_is_said_before_it_has_ended():
    async def main():
        with counted_as(UNMETERED):
            await happens(7)
        log.info("worker.stopped")

    with capture_logs() as logs:
        run_virtually(main)
    assert [one["event"] for one in logs] == ["thing.happened", "thing.happened", "worker.stopped"]
    assert (logs[1]["times"], logs[1]["over"]) == (7, True)


def test_errors_are_counted_by_name_and_a_few_names_are_enough():
    async def work():
        for number in range(50):
            await happens(2, error=f"E{number}")

    summed = lines(work)[1]
    assert summed["errors"] == {f"E{number}": 2 for number in range(10)}
    assert summed["times"] == 100


def test_what_stands_for_many_counts_as_many():
    assert lines(lambda: happens(3, count=25))[-1]["times"] == 75


def test_without_an_event_loop_each_line_is_said():
    with capture_logs() as logs:
        for _ in range(3):
            log.often("thing.happened", by="x")
    assert len(logs) == 3


def test_the_level_is_that_of_the_event():
    structlog.reset_defaults()
    assert {one["log_level"] for one in lines(lambda: happens(2, level="warning"))} == {"warning"}


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int


class Receipt(Entity, pk="RECEIPT#{number}", sk="RECEIPT"):
    number: int
    text: str = ""


def test_an_outage_that_many_changes_meet_is_some_lines(harness_of):
    app, down = App("shop", table="Shop", entities=[Receipt]), [True]

    @app.on(attempts=1000)
    async def confirm(change: Inserted[Order]) -> Set[Receipt]:
        if down:
            raise RetryableError("its downstream is down")
        return Set(Receipt.key(number=change.new.number), text="thanks")

    harness = harness_of(app)
    harness.settle()
    with capture_logs() as logs:
        harness.put(*(Order(number=number) for number in range(150)))
        harness.advance("5m")
        down.clear()
        harness.settle()
        harness.advance("20m")  # within 17 minutes a failure would belong to the same outage
    said = [one for one in logs if one["event"] == "handler.retried"]
    assert 1 < len(said) < 15
    assert said[-1]["times"] > 1000
    assert said[-1]["over"]
    assert harness.parked() == []


def test_a_loop_that_has_ended_keeps_nothing_of_what_happened_in_it_once_another_counts():
    loops = []

    async def work():
        await happens(3)
        loops.append(weakref.ref(asyncio.get_running_loop()))

    for _ in range(3):
        run_virtually(work)
    gc.collect()
    assert [loop() is None for loop in loops] == [True, True, False]
