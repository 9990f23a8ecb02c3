"""Old changes run again in a table that has gone on: rows P1 to P20 of the archive's model."""

import anyio
import msgspec
import pytest

from streamkit.errors import RetentionLost
from streamkit.operate.past.archives import verify_archive
from streamkit.operate.past.past import PastChanges
from streamkit.operate.replay import as_left
from streamkit.operate.replay.as_left import CHANGED, PARKED
from streamkit.operate.replay.replayable import LOOKS_BACK
from streamkit.operate.replay.report import ReplayRefused
from streamkit.stream.decode import Record
from streamkit.testing import every_crash, every_freeze
from tests.simulation.archived import RARELY, links
from tests.simulation.replays import (
    STATE,
    Copy,
    Label,
    Marker,
    Message,
    Notice,
    Order,
    Step,
    Watch,
    buggy,
    labelling,
    replayed,
    rig,
)
from tests.simulation.test_replay_to_end import unreadable


@pytest.fixture
def harness():
    with rig() as found:
        yield found


def label(harness, number):
    found = harness.get(Label.key(number=number))
    return None if found is None else found.text


def meanwhile(monkeypatch, harness, *statuses):
    """Let the application write order 1, and the worker run, between a replay's look and write."""
    transact, left = as_left.transact, list(statuses)

    async def late(*arguments):
        if left:
            for status in left:
                key = {"S": "ORDER#1"}
                item = {"PK": key, "SK": key, "number": {"N": "1"}, "status": {"S": status}}
                await harness._aws.dynamodb.put_item(TableName="Orders", Item=item)
            left.clear()
            await anyio.sleep(3600)
        return await transact(*arguments)

    monkeypatch.setattr(as_left, "transact", late)


def test_p1_p2_what_changes_between_the_look_and_the_write_is_not_overwritten(harness, monkeypatch):
    buggy(harness, (1, "PLACED"), (2, "PLACED"))
    harness.settle()
    meanwhile(monkeypatch, harness, "SHIPPED")
    done = replayed(harness, "labels").handlers["labels"]
    harness.settle()
    assert (label(harness, 1), label(harness, 2)) == ("fixed SHIPPED", "fixed PLACED")
    assert done.passed == {CHANGED: 1}
    assert (done.ran, done.items) == (1, 1)


def test_p3_a_change_that_is_its_items_latest_is_repaired(harness):
    buggy(harness, (1, "PLACED"), (1, "SHIPPED"), (2, "PLACED"))
    assert label(harness, 1) == "bug SHIPPED"
    report = replayed(harness, "labels")
    assert (label(harness, 1), label(harness, 2)) == ("fixed SHIPPED", "fixed PLACED")
    assert report.handlers["labels"].passed == {CHANGED: 1}
    assert [row["reason"] for row in report.listed] == [CHANGED]
    assert "ORDER" not in str(report.listed)


def test_a_shard_that_appeared_while_no_worker_ran_is_replayed_from_the_stream(harness):
    buggy(harness, (1, "PLACED"))
    harness.stop()
    harness.roll()
    harness.put(Order(number=2, status="PLACED"))
    harness.roll()  # neither the archive nor its writer knows either of the two shards
    harness.put(Order(number=3, status="PLACED"))
    report = replayed(harness, "labels", mode="dry-run", until=harness.world.clock.time())
    assert report.handlers["labels"].ran == 3


def test_a_shard_whose_links_were_all_removed_is_a_loss_and_not_an_empty_shard(harness):
    harness.put(Order(number=1))
    harness.settle()
    harness.advance("3h")
    harness.stop()
    harness.advance("22h")  # what the shard had is trimmed, and was read to its tip within a day
    stored = harness.archive().objects
    for name in [name for name in stored if "/shards/" in name]:
        del stored[name]
    since = harness.world.clock.time() - 25 * 3600
    with pytest.raises(RetentionLost, match="is missing"):
        replayed(harness, "labels", mode="dry-run", since=since, allow_loss=False)


def test_p4_an_item_that_came_back_to_an_earlier_image_ends_with_what_follows_from_it(
    harness, monkeypatch
):
    buggy(harness, (1, "PLACED"), (1, "SHIPPED"))
    harness.settle()
    meanwhile(monkeypatch, harness, "LOST", "SHIPPED")
    replayed(harness, "labels")
    harness.settle()
    assert label(harness, 1) == "fixed SHIPPED"


def test_p5_a_handler_that_looks_at_the_old_image_is_passed_over(harness):
    buggy(harness, (1, "PLACED"), (1, "SHIPPED"), (1, "LOST"), (1, "SHIPPED"))
    assert label(harness, -1) == "LOST to SHIPPED"
    done = replayed(harness, "from_to").handlers["from_to"]
    assert (done.ran, done.passed[LOOKS_BACK]) == (0, 2)
    assert label(harness, -1) == "LOST to SHIPPED"


def test_p5_a_condition_on_the_old_image_is_refused(harness):
    buggy(harness, (1, "PLACED"))
    with pytest.raises(ReplayRefused, match="looks at the old image"):
        replayed(harness, "shipped")
    assert replayed(harness, "shipped", allow=["shipped"]).handlers["shipped"].ran == 0


def test_p5_with_an_attribute_that_never_repeats_the_old_image_may_be_looked_at(harness):
    for version, status in enumerate(("PLACED", "SHIPPED", "LOST", "SHIPPED")):
        harness.put(Order(number=1, status=status, version=version))
        harness.settle()
    harness.put(Order(number=2, status="PLACED"), Order(number=2, status="SHIPPED"))
    harness.settle()
    harness.put(Label(number=-1, text="gone wrong"))
    harness.settle()
    done = replayed(harness, "from_to", revision="version").handlers["from_to"]
    assert label(harness, -1) == "LOST to SHIPPED"
    assert (done.ran, done.passed["it has no version"]) == (1, 1)
    assert replayed(harness, "shipped", revision="version").handlers["shipped"].ran == 1


def test_p6_what_older_changes_have_made_stays_as_it_is(harness):
    """The check does not bring it back: their targets are nobody's latest."""
    buggy(harness, (1, "PLACED"), (1, "SHIPPED"))
    harness.delete(Step.key(number=1, status="PLACED"), Step.key(number=1, status="SHIPPED"))
    done = replayed(harness, "trail").handlers["trail"]
    statuses = {step.status for step in harness.scan(Step)}
    assert statuses & {"PLACED", "SHIPPED"} == {"SHIPPED"}
    assert done.passed == {CHANGED: 1}


def test_p3_a_field_that_is_there_since_then_is_a_change(harness):
    """The old image does not have it, so the check must say that it is missing."""
    buggy(harness, (1, "PLACED"))
    harness.put(Order(number=1, status="PLACED", note="n"))
    done = replayed(harness, "labels").handlers["labels"]
    assert done.passed == {CHANGED: 1}
    assert label(harness, 1) == "bug PLACED"


def test_p7_what_adds_up_is_found_when_it_runs_where_nothing_says_so(harness):
    buggy(harness, (1, "PLACED"))
    with pytest.raises(ReplayRefused, match="may return a Send"):
        replayed(harness, "silent")
    before = harness.items()
    done = replayed(harness, "silent", allow=["silent"]).handlers["silent"]
    assert done.passed == {"it returned an effect that adds up": 1}
    assert harness.items() == before


def test_what_sends_reads_or_does_more_is_refused_unless_it_is_allowed(harness):
    buggy(harness, (1, "PLACED"))
    for handler in ("asks", "tells", "reads"):
        with pytest.raises(ReplayRefused, match="it "):
            replayed(harness, handler)
        assert replayed(harness, handler, allow=[handler]).handlers[handler].ran == 1


def test_mirrors_and_derived_items_are_as_the_latest_state_says(harness):
    buggy(harness, (1, "PLACED"), (1, "SHIPPED"))
    harness.put(Copy(number=1, status="gone wrong"))
    harness.delete(Marker.key(status="SHIPPED", number=1))
    harness.put(Marker(status="PLACED", number=1))
    report = replayed(harness, "copies", "marker")
    assert harness.get(Copy.key(number=1, user="ann")).status == "SHIPPED"
    assert harness.get(Marker.key(status="SHIPPED", number=1)) is not None
    assert report.handlers["marker"].passed == {CHANGED: 1}


def test_a_fan_out_serves_the_recipients_of_latest_changes(harness):
    harness.put(*(Watch(number=1, user=user) for user in ("ann", "bob")))
    buggy(harness, (1, "PLACED"), (1, "SHIPPED"))
    for message in harness.scan(Message):
        harness.delete(message.item_key)
    done = replayed(harness, "tell").handlers["tell"]
    assert (done.ran, done.items, done.passed) == (1, 2, {CHANGED: 1})
    assert {one.user: one.text for one in harness.scan(Message)} == {
        "ann": "SHIPPED",
        "bob": "SHIPPED",
    }


def test_an_audience_that_does_not_fit_in_one_transaction_is_passed_over(harness):
    harness.put(*(Watch(number=1, user=f"u{n}") for n in range(60)))
    buggy(harness, (1, "PLACED"))
    done = replayed(harness, "tell").handlers["tell"]
    assert done.passed == {"its recipients do not fit in one transaction": 1}


@pytest.mark.parametrize("handler", ["counts", "Orders"])
@pytest.mark.parametrize("mode", ["write", "dry-run", "shadow"])
def test_p7_p13_what_adds_up_is_refused_and_the_rebuild_is_named(harness, handler, mode):
    rebuild = (
        "rebuild MODULE:APP Orders`" if handler == "Orders" else "`streamkit aggregate rebuild`"
    )
    with pytest.raises(ReplayRefused, match=rebuild):
        replayed(harness, handler, allow=[handler], mode=mode)


def test_p16_what_was_made_once_and_edited_since_is_not_made_again(harness):
    buggy(harness, (1, "PLACED"), (2, "PLACED"))
    harness.put(Notice(number=1, count=7))
    harness.delete(Notice.key(number=2))
    replayed(harness, "once")
    assert {one.number: one.count for one in harness.scan(Notice) if one.number} == {1: 7, 2: 0}


def test_p17_changes_of_an_item_that_is_parked_are_passed_over(harness):
    buggy(harness, (1, "PLACED"), (2, "PLACED"))
    STATE["down"] = True
    harness.put(Order(number=1, status="SHIPPED"))
    harness.settle()
    STATE["down"] = False
    done = replayed(harness, "labels").handlers["labels"]
    assert done.passed == {CHANGED: 1, PARKED: 1}
    assert (label(harness, 1), label(harness, 2)) == ("bug PLACED", "fixed PLACED")
    harness.redrive()
    assert label(harness, 1) == "fixed SHIPPED"


def test_p17_an_item_that_is_parked_between_the_look_and_the_write_is_passed_over(
    harness, monkeypatch
):
    buggy(harness, (1, "PLACED"), (1, "SHIPPED"))
    harness.settle()
    looked = as_left.transact

    async def late(*arguments):
        queue = arguments[2][-1].ref
        key, kind = queue.key(harness.tables.control), {"_sk_kind": {"S": "lane"}}
        await harness._aws.dynamodb.put_item(TableName="Orders", Item={**key, **kind})
        return await looked(*arguments)

    monkeypatch.setattr(as_left, "transact", late)
    done = replayed(harness, "labels").handlers["labels"]
    assert done.passed == {CHANGED: 1, PARKED: 1}
    assert label(harness, 1) == "bug SHIPPED"


def test_a_handler_that_writes_its_own_item_is_checked_in_that_write(monkeypatch):
    with rig(labelling) as harness:
        buggy(harness, (1, "PLACED"), (2, "PLACED"))
        harness.settle()
        meanwhile(monkeypatch, harness, "SHIPPED")
        replayed(harness, "own")
        harness.settle()
        assert harness.get(Order.key(number=1)).label == "fixed SHIPPED"
        assert harness.get(Order.key(number=2)).label == "fixed PLACED"


def test_a_removal_runs_only_while_its_item_is_gone(harness):
    STATE["bug"] = True
    for number in (1, 2):
        harness.put(Order(number=number))
        harness.settle()
        harness.delete(Order.key(number=number))
        harness.settle()
    harness.put(Order(number=2))
    harness.settle()
    harness.put(Label(number=1, text="left"))
    done = replayed(harness, "unlabel").handlers["unlabel"]
    assert (done.ran, done.passed) == (1, {CHANGED: 1})
    assert label(harness, 1) is None
    assert label(harness, 2) is not None


def test_several_handlers_each_run_for_the_changes_to_which_they_listen(harness):
    buggy(harness, (1, "PLACED"), (1, "SHIPPED"))
    harness.delete(Order.key(number=1))
    buggy(harness, (2, "PLACED"))
    harness.put(Label(number=1, text="left"))
    done = replayed(harness, "labels", "unlabel").handlers
    assert [done[name].ran for name in ("labels", "unlabel")] == [1, 1]
    assert (label(harness, 1), label(harness, 2)) == (None, "fixed PLACED")


def test_only_the_items_that_are_asked_for_are_replayed(harness):
    buggy(harness, (1, "PLACED"), (2, "PLACED"))
    replayed(harness, "labels", keys=["ORDER#2"])
    assert (label(harness, 1), label(harness, 2)) == ("bug PLACED", "fixed PLACED")


def test_only_the_changes_of_the_time_that_is_asked_for_are_replayed(harness):
    buggy(harness, (1, "PLACED"))
    middle = harness.world.clock.time() - 60
    buggy(harness, (2, "PLACED"))
    replayed(harness, "labels", until=middle)
    assert (label(harness, 1), label(harness, 2)) == ("fixed PLACED", "bug PLACED")
    replayed(harness, "labels", since=middle)
    assert label(harness, 2) == "fixed PLACED"


def test_a_look_writes_nothing_and_says_what_would_be_different(harness):
    buggy(harness, (1, "PLACED"), (2, "PLACED"), (1, "SHIPPED"))
    replayed(harness, "labels", keys=["ORDER#2"])
    before = harness.items()
    for mode in ("dry-run", "shadow"):
        report = replayed(harness, "labels", mode=mode, show_keys=True)
        assert harness.items() == before
        done = report.handlers["labels"]
        assert (done.ran, done.items, done.passed.total()) == (2, 2, 1)
    assert (done.same, done.different) == (1, 1)
    (row,) = [row for row in report.listed if row["reason"] == "different"]
    assert (row["target"], row["attributes"]) == ("LABEL#1 LABEL#1", "text")


@pytest.mark.parametrize("show_keys", [False, True])
def test_changes_that_are_listed_show_their_keys_only_on_request(harness, show_keys):
    buggy(harness, (1, "PLACED"), (1, "SHIPPED"))
    report = replayed(harness, "labels", mode="shadow", show_keys=show_keys)
    assert {row["reason"] for row in report.listed} == {CHANGED, "different"}
    for key in ("ORDER#1", "LABEL#1"):
        assert (key in str(report.to_dict())) is show_keys


def test_a_change_that_fails_is_counted_and_the_others_run(harness):
    buggy(harness, (1, "PLACED"))
    STATE["down"] = True
    done = replayed(harness, "labels").handlers["labels"]
    assert done.failed == {"OSError": 1}
    assert harness.parked() == []


def once_replayed(harness):
    """P20: given up half way and begun again, it repairs, and no target goes back meanwhile."""
    buggy(harness, (1, "PLACED"), (1, "SHIPPED"), (2, "PLACED"))
    harness.put(Order(number=1, status="LOST"))
    harness.settle()
    replayed(harness, "labels", "trail")
    harness.settle()
    assert (label(harness, 1), label(harness, 2)) == ("fixed LOST", "fixed PLACED")


def of_minutes():
    return rig(settings=RARELY)


def test_p20_a_replay_killed_at_any_call_is_begun_again():
    assert list(every_crash(once_replayed, of_minutes, part="operation", sample=2))


def test_p20_a_replay_frozen_at_any_call_does_no_harm_when_it_thaws():
    assert list(every_freeze(once_replayed, of_minutes, part="operation", sample=2))


def test_an_archive_that_begins_later_is_refused(harness):
    buggy(harness, (1, "PLACED"))
    with pytest.raises(ReplayRefused, match="the archive begins at"):
        replayed(harness, "labels", allow_loss=False)


def test_a_replay_from_the_future_is_refused(harness):
    harness.settle()
    later = harness.world.clock.time() + 86_400
    with pytest.raises(ReplayRefused, match="is in the future"):
        replayed(harness, "labels", since=later, until=later + 60)


def test_handlers_that_are_not_there_are_named(harness):
    with pytest.raises(ReplayRefused, match="name the handlers"):
        replayed(harness)
    with pytest.raises(ReplayRefused, match="there is no handler 'labls'"):
        replayed(harness, "labls")
    harness.app.listener("apart")
    with pytest.raises(ReplayRefused, match="consumer of its own: say --listener apart"):
        replayed(harness, "apart")


def no_number(record):
    """Return a record whose image has a number that is none."""
    text = record.to_bytes().replace(b'"number":{"N":"1"}', b'"number":{"N":"one"}')
    return msgspec.json.decode(text, type=Record)


@pytest.mark.parametrize("flaw", [unreadable, no_number])
@pytest.mark.parametrize("mode", ["write", "dry-run"])
def test_a_change_that_cannot_be_read_is_passed_over_and_counted(harness, monkeypatch, flaw, mode):
    buggy(harness, (1, "PLACED"), (2, "PLACED"))
    reading = PastChanges.read

    async def read(self, reader):
        async for page in reading(self, reader):
            mine = [flaw(r) if r.item_key.pk == "ORDER#1" else r for r in page.records]
            yield msgspec.structs.replace(page, records=tuple(mine))

    monkeypatch.setattr(PastChanges, "read", read)
    report = replayed(harness, "labels", mode=mode)
    assert report.handlers["labels"].passed == {"it cannot be read": 1}
    assert [row["reason"] for row in report.listed] == ["it cannot be read"]
    assert report.handlers["labels"].ran == 1


def test_a_moment_within_a_second_is_the_whole_second_as_changes_are_stamped(harness):
    buggy(harness, (1, "PLACED"))
    clock, app = harness.world.clock, harness.app
    (first,) = {link.first for link in links(harness.archive()) if link.count and link.first}
    report = replayed(harness, "labels", since=first + 0.9, allow_loss=True)
    assert report.handlers["labels"].ran == 1
    found = harness.operate(lambda aws: verify_archive(app, aws, first + 0.9, clock=clock))
    assert found.records > 0
