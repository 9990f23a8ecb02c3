"""Effects are values: what is said of one gives another, and the first stays as it was."""

from dataclasses import replace
from datetime import timedelta

import pytest

from streamkit import (
    Add,
    Attr,
    Check,
    Completed,
    Delete,
    Entity,
    Put,
    Set,
    absent,
)
from streamkit.effects import Guard
from streamkit.model.keys import Key
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import OURS
from streamkit.progress.compile import compile_effect
from streamkit.progress.own_effects import Accumulate
from streamkit.testing import inserted


class Note(Entity, pk="NOTE#{number}", sk="NOTE"):
    number: int
    text: str = ""


KEY = Note.key(number=1)


@pytest.mark.parametrize(
    "effect",
    [
        Put(Note(number=1)),
        Set(KEY, text="a"),
        Add(KEY, number=1),
        Delete(KEY),
        Check(KEY, Attr("text").exists()),
        Accumulate(KEY, {}),
    ],
)
def test_a_table_and_a_condition_can_be_said_in_any_order(effect):
    before = repr(effect)
    one, other = effect.to("Other").only_if(absent), effect.only_if(absent).to("Other")
    assert one == other
    assert (one.table, one.guard) == ("Other", Guard(absent))
    assert type(one) is type(effect)
    assert repr(effect) == before


def test_an_update_writes_along_what_its_own_key_knows_whichever_was_used_before():
    schema = TableSchema("Notes", "PK", "SK", "S", "S", {})
    bare, built, owned = Key(Note, "NOTE#1", "NOTE"), KEY, Note(number=1).item_key
    for key in (bare, built, bare, owned):
        written = compile_effect(Set(key, text="a"), schema, OURS).sets
        assert written == {"text": {"S": "a"}} | ({} if key is bare else {"number": {"N": "1"}})


@pytest.mark.parametrize("effect", [Set(KEY, number=2), Add(KEY, number=1)], ids=["Set", "Add"])
def test_what_a_key_is_built_from_cannot_be_changed(effect):
    schema = TableSchema("Notes", "PK", "SK", "S", "S", {})
    with pytest.raises(ValueError, match="number is part of the item's key"):
        compile_effect(effect, schema, OURS)
    same = compile_effect(Set(KEY, number=1, text="a"), schema, OURS)
    assert same.sets == {"number": {"N": "1"}, "text": {"S": "a"}}


def test_a_completion_is_named_by_its_change_and_handler_and_lasts_from_the_changes_creation():
    change = replace(inserted(Note(number=1)), handler="mail")
    kept = Completed(change, keep=timedelta(days=1))
    assert kept.id == change.idempotency_key
    assert kept.id != Completed(replace(change, handler="other")).id
    assert kept.until == change.created_at.timestamp() + 86400


@pytest.mark.parametrize("say", [lambda e: e.only_if(absent), lambda e: e.to("Other")])
def test_a_completion_takes_neither_condition_nor_table(say):
    with pytest.raises(TypeError, match="a Completed"):
        say(Completed(inserted(Note(number=1))))
