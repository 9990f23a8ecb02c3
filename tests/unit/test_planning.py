"""Commits end at change borders, held queues queue, and stale reads run again."""

from decimal import Decimal
from types import SimpleNamespace

import msgspec
import pytest

from streamkit.changes import ItemKey
from streamkit.core.draft import CLAUSES_MAX, Draft
from streamkit.core.outcome import Outcome, PendingChange
from streamkit.core.parking import queue_name
from streamkit.core.planning import Planner, Rerun, TooLarge
from streamkit.core.reads import Read
from streamkit.effects import Put, Send, Set
from streamkit.model.conditions import absent, present
from streamkit.progress.actions import BYTES_MAX, QUEUE, Action, ItemRef, Verb
from streamkit.progress.commit import Batch
from streamkit.progress.control import Cursor, QueuedKey
from streamkit.stream.decode import Record
from tests.pending import (
    CURSOR,
    SPACE,
    Clock,
    Thing,
    add,
    done,
    failed,
    handler,
    is_absent,
    pending_change,
    record,
)


def plan(pending, cursor=CURSOR, queues=None, **options):
    planner = Planner(SPACE, Clock(), "shard-1", queues or {})
    return planner.plan(pending, cursor, **options)


def plan_marked(pending, room=100):
    """As where each item has a mark, which takes one of the transaction's actions."""
    return Planner(SPACE, Clock(), "shard-1", room=room, marks=True).plan(pending, Cursor("batch"))


def kinds(batch):
    return sorted(
        action.ref.pk[1].split("#")[3] for action in batch.actions if "_sk#" in action.ref.pk[1]
    )


def test_many_changes_of_one_item_become_one_action():
    batch = plan([pending_change(n, done(n, add("x"))) for n in range(1, 500)])
    assert isinstance(batch, Batch)
    assert [action.adds["count"] for action in batch.actions] == [499]
    assert batch.changes == 499
    assert batch.cursor.position == "499".zfill(40)


def test_a_commit_holds_99_items_and_ends_at_a_change_border():
    pending = [
        pending_change(n, done(n, *[add(f"{n}-{i}") for i in range(10)])) for n in range(1, 20)
    ]
    batch = plan(pending)
    assert len(batch.actions) == 90
    assert batch.cursor.position == "9".zfill(40)


def test_marks_leave_the_rest_of_a_transaction_to_the_effects():
    puts = [pending_change(n, done(n, add(f"{n}")), name=f"{n}") for n in range(1, 200)]
    sums = [pending_change(n, done(n, add(f"{n % 5}")), name=f"{n}") for n in range(1, 200)]
    again = [pending_change(n, done(n, add(f"{n % 5}")), name=f"{n % 7}") for n in range(1, 200)]
    assert [plan_marked(pending).changes for pending in (puts, sums, again)] == [50, 95, 199]


def test_the_largest_result_has_room_beside_its_mark():
    pending = [pending_change(n, done(n, *[add(f"{i}") for i in range(99)])) for n in (1, 2)]
    assert plan_marked(pending).changes == 2


def test_changes_without_effects_are_done_however_many_marks_they_would_have():
    pending = [pending_change(n, done(n), name=f"{n}") for n in range(1, 150)]
    pending.append(pending_change(150, done(150, add("x")), name="x"))
    batch = plan_marked(pending)
    assert (batch.actions, batch.changes) == ([], 100)
    assert plan_marked(pending[100:]).changes == 50


def test_handlers_of_one_change_that_do_not_fit_together_go_in_several_commits():
    first, second = (
        done(1, *[add(f"{name}{i}") for i in range(60)], by=handler(name)) for name in "ab"
    )
    change = pending_change(1, first, second)
    batch = plan([change])
    assert (batch.changes, len(batch.actions)) == (0, 60)
    assert batch.cursor.position == CURSOR.position
    assert batch.cursor.done == {f"{change.position}:a"}
    rest = plan([change], batch.cursor)
    assert (rest.changes, len(rest.actions)) == (1, 60)
    assert rest.cursor.position == change.position
    assert rest.cursor.done == frozenset()


def test_a_condition_on_an_item_written_before_ends_the_commit_there():
    guarded = Put(Thing(name="x")).only_if(absent)
    batch = plan([pending_change(1, done(1, add("x"))), pending_change(2, done(2, guarded))])
    assert batch.cursor.position == "1".zfill(40)


def test_changes_without_effects_move_the_position_only():
    batch = plan([pending_change(1, done(1)), PendingChange("7".zfill(40), 107.0)])
    assert (batch.actions, batch.changes, batch.cursor.position) == ([], 2, "7".zfill(40))
    assert batch.cursor.dated == 107, "when the change at its position was created"


def test_a_failed_change_is_parked_and_its_item_held():
    batch = plan(
        [
            pending_change(1, failed()),
            pending_change(2, done(2, add("x"))),
            pending_change(3, done(3, add("y")), name="b"),
        ]
    )
    assert kinds(batch) == ["holds", "lane", "parked", "parked"]
    queue = queue_name("h", ItemKey("a", "a"))
    assert batch.queued == {queue: QueuedKey("shard-1.0", "2".zfill(40))}
    assert batch.cursor.chunks == {"shard-1.0"}
    items = {action.ref.pk[1]: action for action in batch.actions}
    assert "THING#x" not in items
    assert "THING#y" in items
    assert items[SPACE.text("lane", queue)].item["tail"] == {"S": "2".zfill(40)}
    assert items[SPACE.text("parked", queue, "1".zfill(40))].item["next"] == {"S": "2".zfill(40)}


def test_a_change_queues_behind_a_held_queue_only_if_the_queue_still_exists():
    queue = queue_name("h", ItemKey("a", "a"))
    batch = plan(
        [pending_change(5, done(5, add("x")))], queues={queue: QueuedKey("old.0", "3".zfill(40))}
    )
    (move,) = [a for a in batch.actions if "#lane#" in a.ref.pk[1]]
    assert [(g.condition, s.effect) for g, s in move.guards] == [(present, QUEUE)]
    assert batch.queued[queue].tail == "5".zfill(40)


def test_a_queue_is_held_for_its_own_handler_alone():
    queue = queue_name("other", ItemKey("a", "a"))
    batch = plan(
        [pending_change(5, done(5, add("x")))], queues={queue: QueuedKey("old.0", "3".zfill(40))}
    )
    assert [a.ref.pk[1] for a in batch.actions] == ["THING#x"]


def test_a_parked_change_of_a_commuting_handler_holds_nothing():
    commuting = handler(commutes=True)
    batch = plan(
        [pending_change(1, failed(commuting)), pending_change(2, done(2, add("x"), by=commuting))]
    )
    assert kinds(batch) == ["holds", "lane", "parked"]
    assert "THING#x" in [a.ref.pk[1] for a in batch.actions]


def test_changes_without_effects_go_ahead_of_one_that_has_to_run():
    late = done(3, add("x"))
    late.waiting = True
    batch = plan([pending_change(1, done(1)), pending_change(2, done(2)), pending_change(3, late)])
    assert (batch.actions, batch.changes) == ([], 2)


def test_a_commit_holds_four_megabytes():
    names = [f"{n:02}" * 50_000 for n in range(1, 31)]
    pending = [pending_change(n, done(n, Put(Thing(name=x)))) for n, x in enumerate(names, 1)]
    batch = plan(pending)
    assert 3_500_000 < sum(action.size() for action in batch.actions) <= BYTES_MAX
    assert batch.changes < len(pending)


def test_an_update_changes_as_many_attributes_as_its_expression_has_room_for():
    ref, draft = ItemRef("things", ("S", "THING#x"), ("S", "THING#x")), Draft()
    updates = [Action(ref, Verb.UPDATE, adds={f"a{n}": Decimal(1)}) for n in range(300)]
    taken = [draft.offer([update], []) for update in updates]
    assert taken == [True] * CLAUSES_MAX + [False] * (300 - CLAUSES_MAX)


def test_what_is_queued_sends_nothing_yet():
    by = handler("h")
    outcome = done(2, by=by)
    outcome.sends, outcome.sent = (Send(SimpleNamespace(name="sink"), {}),), False
    change = pending_change(2, outcome, name="a")
    queue = queue_name("h", ItemKey("a", "a"))
    assert len(plan([change]).sends) == 1
    held = {queue: QueuedKey("shard-1.0", "1".zfill(40))}
    assert plan([change], queues=held).sends == []


def test_handlers_are_split_only_in_a_commit_that_begins_with_their_change():
    sending = done(1)
    sending.sends, sending.sent = (Send(SimpleNamespace(name="sink"), {}),), False
    both = [done(2, *[add(f"{by}{i}") for i in range(60)], by=handler(by)) for by in "ab"]
    batch = plan([pending_change(1, sending, name="b"), pending_change(2, *both)])
    assert (batch.changes, batch.actions, len(batch.sends)) == (1, [], 1)
    assert batch.cursor.done == frozenset()


def test_a_block_is_taken_apart_where_one_of_its_changes_queues_behind_one_before_it():
    block = pending_change(3, done(3, add("y")), name="b")
    block.block = [(record(2, "a"), Thing), (record(3, "b"), Thing)]
    pending = [pending_change(1, failed(), name="a"), block]
    assert plan(pending).changes == 1
    assert isinstance(plan(pending[1:], queues=plan(pending).queued), TooLarge)


def test_a_read_becomes_a_check_in_the_same_commit():
    ref = ItemRef("things", ("S", "THING#x"), ("S", "THING#x"))
    reader = done(2, Set(Thing.key(name="y"), count=1), reads=[Read(ref, (), expect=is_absent)])
    batch = plan([pending_change(2, reader)])
    (check,) = [a for a in batch.actions if a.ref == ref]
    assert check.verb is Verb.CHECK


def test_a_read_that_missed_an_earlier_change_runs_again():
    ref = ItemRef("things", ("S", "THING#x"), ("S", "THING#x"))
    reader = done(2, Set(Thing.key(name="y"), count=1), reads=[Read(ref, (), expect=is_absent)])
    pending = [pending_change(1, done(1, add("x"))), pending_change(2, reader, name="b")]
    batch = plan(pending)
    assert batch.changes == 1
    assert isinstance(plan(pending[1:]), Batch)
    seen = done(2, reads=[Read(ref, (("1".zfill(40), "h", 1),), expect=is_absent)])
    assert plan([pending[0], pending_change(2, seen, name="b")]).changes == 2
    assert isinstance(plan([pending_change(2, seen, name="b")]), Rerun)


def test_a_handler_that_has_not_run_is_run_before_anything_behind_it():
    waiting = Outcome(handler(), waiting=True)
    answer = plan([pending_change(1, waiting), pending_change(2, done(2, add("x")))])
    assert isinstance(answer, Rerun)
    assert answer.outcome is waiting


def test_a_result_of_more_than_99_items_is_refused():
    with pytest.raises(ValueError, match="does not fit in one transaction"):
        done(1, *[add(str(i)) for i in range(100)])


def test_a_large_record_is_parked_in_parts():
    change = pending_change(1, failed())
    image = {"pk": {"S": "a"}, "sk": {"S": "a"}, "blob": {"S": "x" * 700_000}}
    body = msgspec.json.decode(change.record.to_bytes())
    body["dynamodb"]["NewImage"] = image
    change.record = msgspec.json.decode(msgspec.json.encode(body), type=Record)
    batch = plan([change])
    assert kinds(batch) == ["holds", "lane", "parked", "part", "part", "part"]
    assert max(action.size() for action in batch.actions) < 400_000
