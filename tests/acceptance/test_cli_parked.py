"""Parked changes from the command line: listed, shown, redriven in order, discarded."""

import json
import time

import anyio
import pytest

from streamkit.operate import redrive
from streamkit.worker.redriver import Redriver


@pytest.fixture
def parked_shop(shop):
    """A shop with three changes of one order and one of another parked."""
    shop.touch("broken")
    shop.put(1, "A", "B")
    shop.put(2, "X")
    assert shop.run("worker", "shop", "--until-idle").returncode == 5
    shop.put(1, "C")
    shop.remove("broken")
    assert shop.run("worker", "shop", "--until-idle").returncode == 5
    return shop


def listed(shop, *more):
    return shop.json("parked", "list", "shop", *more)


def queue_of(shop, length):
    queues = [change["queue"] for change in listed(shop)]
    return next(queue for queue in queues if queues.count(queue) == length)


def test_a_change_that_arrives_after_the_repair_still_queues_behind_the_parked_ones(parked_shop):
    changes = listed(parked_shop)
    assert len(changes) == 4
    assert {c["error"] for c in changes} == {"RuntimeError", None}
    assert parked_shop.journal(1) == ""
    assert parked_shop.count("C") == 1  # the aggregate is another handler: nothing held it up
    status = parked_shop.json("status", "shop")
    assert status["parked"] == {"journal": 4}
    assert status["parked_queues"] == 2


def test_a_redrive_keeps_the_order_and_the_next_change_flows_again(parked_shop):
    done = parked_shop.run("parked", "redrive", "shop", "--all")
    assert done.returncode == 0, done.stderr
    assert (parked_shop.journal(1), parked_shop.journal(2)) == ("ABC", "X")
    assert listed(parked_shop) == []
    parked_shop.put(1, "D")
    parked_shop.run("worker", "shop", "--until-idle")
    assert parked_shop.journal(1) == "ABCD"


def test_a_redrive_that_fails_again_exits_with_5_and_leaves_all_in_place(parked_shop):
    parked_shop.touch("broken")
    done = parked_shop.run("parked", "redrive", "shop", "--handler", "journal", "--json")
    assert done.returncode == 5
    reports = json.loads(done.stdout)
    assert [report["done"] for report in reports] == [0, 0]
    assert {report["failure"]["kind"] for report in reports} == {"RuntimeError"}
    changes = listed(parked_shop)
    assert len(changes) == 4
    assert sorted(change["attempts"] for change in changes) == [0, 0, 2, 2]


def test_one_queue_is_redriven_alone(parked_shop):
    queue = queue_of(parked_shop, 3)
    assert parked_shop.run("parked", "redrive", "shop", "--queue", queue).returncode == 0
    assert (parked_shop.journal(1), parked_shop.journal(2)) == ("ABC", "")
    assert len(listed(parked_shop)) == 1


def test_discard_drops_the_first_change_of_a_queue_only(parked_shop):
    queue = queue_of(parked_shop, 3)
    assert parked_shop.run("parked", "discard", "shop", "--queue", queue).returncode == 0
    assert parked_shop.run("parked", "redrive", "shop", "--all").returncode == 0
    assert parked_shop.journal(1) == "BC"


def test_discarding_an_aggregates_change_prints_the_rebuild_that_mends_it(shop):
    source = shop.folder / "shop.py"
    source.write_text(
        source.read_text().replace(
            "        return cls.key(status=order.status)",
            "        if Path('uncounted').exists():\n"
            "            raise RuntimeError('uncounted')\n"
            "        return cls.key(status=order.status)",
        )
    )
    shop.touch("uncounted")
    shop.put(1, "A")
    assert shop.run("worker", "shop", "--until-idle").returncode == 5
    done = shop.run("parked", "discard", "shop", "--all")
    assert done.returncode == 0, done.stderr
    assert "PerStatus lacks what was discarded, and needs a rebuild" in done.stdout
    assert done.stdout.endswith("next: streamkit aggregate rebuild shop PerStatus\n")
    (state,) = shop.json("aggregate", "list", "shop")
    assert state["state"] == "needs rebuild"


def test_a_redrive_that_is_interrupted_has_said_what_it_did_until_then(parked_shop, monkeypatch):
    whole, begun, first = Redriver.redrive, [], anyio.Event()

    async def interrupted(self, queue):
        begun.append(queue)
        if len(begun) == 2:
            await first.wait()
            raise KeyboardInterrupt
        report = await whole(self, queue)
        first.set()
        return report

    monkeypatch.setattr(Redriver, "redrive", interrupted)
    done = parked_shop.run("parked", "redrive", "shop", "--all")
    assert done.returncode == 130
    left = {change["queue"] for change in listed(parked_shop)}
    assert left == {begun[1]}
    assert done.stdout.startswith(f"queue {begun[0]} (journal): ")
    assert done.stdout.endswith(" redriven\n")


def test_a_discard_that_is_interrupted_has_said_what_it_did_until_then(parked_shop, monkeypatch):
    whole, begun, first = redrive.discard_queue, [], anyio.Event()

    async def interrupted(store, queue, *rest, **options):
        begun.append(queue.name)
        if len(begun) == 2:
            await first.wait()
            raise KeyboardInterrupt
        report = await whole(store, queue, *rest, **options)
        first.set()
        return report

    monkeypatch.setattr(redrive, "discard_queue", interrupted)
    done = parked_shop.run("parked", "discard", "shop", "--all", "--whole")
    assert done.returncode == 130
    assert {change["queue"] for change in listed(parked_shop)} == {begun[1]}
    assert done.stdout.startswith(f"queue {begun[0]} (journal): ")
    assert done.stdout.endswith(" discarded\n")


@pytest.mark.parametrize("command", ["redrive", "discard"])
def test_of_all_of_nothing_it_is_said_that_nothing_is_parked(shop, command):
    assert shop.run("worker", "shop", "--until-idle").returncode == 0
    assert shop.run("parked", command, "shop", "--all").stdout == "no change is parked\n"


def test_a_list_of_changes_that_nobody_has_tried_yet_says_so(parked_shop):
    queue = queue_of(parked_shop, 3)
    parked_shop.run("parked", "discard", "shop", "--queue", queue)
    shown = parked_shop.run("parked", "list", "shop", "--queue", queue).stdout
    assert "2 parked in 1 queues: none of them has been tried yet\n" in shown


def test_show_prints_the_record_and_the_error(parked_shop):
    queue = queue_of(parked_shop, 1)
    done = parked_shop.run("parked", "show", "shop", "--queue", queue)
    shown = json.loads(done.stdout)
    assert shown["detail"].startswith("the downstream is broken at ")
    assert shown["detail"].endswith("shop.py:36 in journal")
    assert shown["called"] == (
        "journal(change: Union[Inserted[Order], Modified[Order]], table: Table) (shop.py:33)"
    )
    assert shown["record"]["dynamodb"]["NewImage"]["status"] == {"S": "X"}
    gone = parked_shop.run("parked", "show", "shop", "--queue", "nosuchqueue")
    assert gone.returncode == 5
    assert "no such parked change" in gone.stderr


def test_nothing_is_redriven_or_discarded_without_saying_what(parked_shop):
    for command in ("redrive", "discard"):
        done = parked_shop.run("parked", command, "shop")
        assert done.returncode == 2
        assert "--all" in done.stderr
    assert len(listed(parked_shop)) == 4


def test_a_script_can_ask_whether_anything_is_parked(parked_shop):
    assert parked_shop.run("parked", "list", "shop", "--exit-code").returncode == 5
    parked_shop.run("parked", "redrive", "shop", "--all")
    done = parked_shop.run("parked", "list", "shop", "--exit-code")
    assert (done.returncode, done.stdout) == (0, "no change is parked\n")


def test_the_first_change_of_a_queue_says_when_it_is_tried_next(parked_shop):
    first, behind, last = (c for c in listed(parked_shop) if c["queue"] == queue_of(parked_shop, 3))
    assert (first["stuck"], first["due"]) == (True, None)  # this shop's policy tries nothing
    assert {behind["tries"], behind["stuck"], last["due"]} == {None}
    text = parked_shop.run("parked", "list", "shop").stdout
    assert "stuck" in text
    assert "TRIES" in text


def test_ages_are_told_by_the_tables_clock_although_this_machines_is_a_day_ahead(
    parked_shop, monkeypatch
):
    """A wrong clock discards changes that are younger than somebody wanted."""
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 86400)
    assert listed(parked_shop, "--older-than", "2h") == []
    for command in ("redrive", "discard"):
        done = parked_shop.run("parked", command, "shop", "--older-than", "2h")
        assert (done.returncode, done.stdout) == (0, "no such change is parked\n")
    assert len(listed(parked_shop, "--older-than", "0s")) == 4


def test_list_redrive_and_discard_take_the_same_filters(parked_shop):
    every = len(listed(parked_shop))
    for filters, found in [
        (["--stuck"], every),
        (["--handler", "PerStatus"], 0),
        (["--entity", "Order"], every),
        (["--entity", "Journal"], 0),
        (["--error", "RuntimeError"], every),
        (["--error", "ValueError"], 0),
        (["--older-than", "2h"], 0),
        (["--older-than", "0s", "--stuck", "--queue", queue_of(parked_shop, 1)], 1),
    ]:
        assert len(listed(parked_shop, *filters)) == found, filters
        if not found:
            for command in ("list", "redrive", "discard"):
                done = parked_shop.run("parked", command, "shop", *filters)
                assert (done.returncode, done.stdout) == (0, "no such change is parked\n")
    assert len(listed(parked_shop)) == every
    done = parked_shop.run("parked", "redrive", "shop", "--stuck")
    assert done.returncode == 0
    assert listed(parked_shop) == []


@pytest.mark.parametrize("command", ["list", "redrive", "discard"])
@pytest.mark.parametrize(
    ("filters", "said"),
    [
        (["--handler", "jurnal"], "no handler 'jurnal'; it has PerStatus, journal"),
        (["--entity", "Ordr"], "no entity 'Ordr'; it has "),
    ],
)
def test_a_name_that_neither_the_app_nor_a_parked_change_has_is_no_empty_answer(
    parked_shop, command, filters, said
):
    done = parked_shop.run("parked", command, "shop", *filters)
    assert done.returncode == 5
    assert said in done.stderr


def test_a_duration_that_is_none_is_wrong_usage(parked_shop):
    done = parked_shop.run("parked", "discard", "shop", "--older-than", "soon")
    assert done.returncode == 2
    assert "such as 2h" in done.stderr


def test_a_redrive_that_fails_again_says_when_it_is_due_or_stuck(parked_shop):
    parked_shop.touch("broken")
    done = parked_shop.run("parked", "redrive", "shop", "--all")
    assert "it is stuck" in done.stdout
