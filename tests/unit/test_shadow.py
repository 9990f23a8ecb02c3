"""What a shadow handler would change is told by attribute names, and nothing else is told."""

from decimal import Decimal

import pytest
import structlog

from streamkit import Add, AddToSet, App, Delete, Entity, Inserted, Put, RemoveFromSet, Set
from streamkit.core.outcome import Outcome, resolve
from streamkit.core.shadow import ShadowCounts, Shadows, differences
from streamkit.effects import Send
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import OURS
from streamkit.progress.compile import compile_effect

SCHEMA = TableSchema("t", "pk", "sk", "S", "S", {})


class Note(Entity, pk="NOTE#{number}", sk="NOTE"):
    number: int
    text: str = ""
    amount: Decimal = Decimal(0)
    tags: set[str] = set()


KEY = Note.key(number=1)


class StandingClock:
    def time(self):
        return 0.0

    def monotonic(self):
        return 0.0


def stored(**fields):
    return Note(number=1, **fields).attributes(SCHEMA)


def changed(effect, item):
    return differences(compile_effect(effect, SCHEMA, OURS), item, SCHEMA)


def test_an_effect_that_leaves_the_item_as_it_is_changes_nothing():
    item = stored(text="a", tags={"x", "y"}) | {"_sk_by": {"S": "handler:1:2:h"}}
    item["amount"] = {"N": "0.00"}
    for effect in (
        Put(Note(number=1, text="a", tags={"y", "x"})),
        Set(KEY, text="a"),
        AddToSet(KEY, tags={"x"}),
        RemoveFromSet(KEY, tags={"z"}),
        Add(KEY, amount=0),
    ):
        assert changed(effect, item) is None, effect
    assert changed(Delete(KEY), None) is None


@pytest.mark.parametrize(
    ("effect", "names"),
    [
        (Put(Note(number=1, text="b")), ["tags", "text"]),
        (Set(KEY, text="b"), ["text"]),
        (Set(KEY, tags=None), ["tags"]),
        (Add(KEY, amount=1), ["amount"]),
        (RemoveFromSet(KEY, tags={"x"}), ["tags"]),
        (Delete(KEY), ["amount", "number", "tags", "text"]),
    ],
)
def test_an_effect_that_changes_the_item_says_which_attributes(effect, names):
    assert changed(effect, stored(text="a", tags={"x"})) == names


def test_an_item_that_would_come_to_be_differs():
    assert changed(Set(KEY, text="a"), None) == ["number", "text"]


def test_the_log_is_bounded_and_holds_no_data():
    app = App("test", table="t")

    @app.on(shadow="log")
    def handler(change: Inserted[Note]) -> Put[Note]: ...

    shadows = Shadows(StandingClock(), {})
    with structlog.testing.capture_logs() as logs:
        for number in range(50):
            outcome = Outcome(app.handlers[0])
            effects = (Put(Note(number=number, text="secret")),)
            resolve(outcome, effects, (), "1".zfill(40), SCHEMA)
            shadows.ran(outcome)
            assert (outcome.actions, outcome.trial) == ({}, ())
    assert len(logs) == 20
    assert logs[0]["attributes"] == ["amount", "number", "pk", "sk", "text"]
    assert logs[0]["key"] == Note.key(number=0).digest
    assert "secret" not in str(logs)
    assert "NOTE#" not in str(logs)
    assert shadows.counts["handler"] == ShadowCounts(runs=50)


class Sink:
    name = "orders"


def test_what_would_be_sent_is_counted_and_not_sent():
    app = App("test", table="t")

    @app.on(shadow=True)
    def handler(change: Inserted[Note]) -> Send: ...

    shadows = Shadows(StandingClock(), {})
    outcome = Outcome(app.handlers[0])
    resolve(outcome, (Send(Sink(), {"a": 1}), Send(Sink(), None)), (), "1".zfill(40), SCHEMA)
    assert len(outcome.sends) == 2
    shadows.ran(outcome)
    assert outcome.sends == ()
    assert shadows.counts["handler"] == ShadowCounts(runs=1, sent=2)
