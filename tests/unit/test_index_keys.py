"""An update keeps the keys of indexes, or is refused."""

from decimal import Decimal
from typing import Annotated, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit import (
    Add,
    AddToSet,
    Aggregate,
    App,
    Count,
    DeclarationError,
    Entity,
    Index,
    Inserted,
    Key,
    Put,
    Set,
)
from streamkit.model.schema import IndexSchema, TableSchema
from streamkit.progress.actions import GuardSource
from streamkit.progress.compile import compile_effect
from streamkit.progress.own_effects import Accumulate
from streamkit.testing import Harness

SOURCE = GuardSource("1", "handler", 0)


def index(name):
    pk, sk = ((f"{name}{key}", "S") for key in ("PK", "SK"))
    return IndexSchema(name, (pk,), (sk,), "ALL", frozenset(), is_global=True)


SCHEMA = TableSchema(
    "Shop", "PK", "SK", "S", "S", {name: index(name) for name in ("GS1", "GS2", "GS3")}
)
KEYS = {f"{name}{key}" for name in SCHEMA.indexes for key in ("PK", "SK")}


class Ticket(Entity, pk="TICKET#{number}", sk="TICKET"):
    number: int
    status: str
    agent: str = "nobody"
    due: int | None = None
    views: int = 0
    tags: frozenset[str] = frozenset()

    by_status: ClassVar = Index("GS1", pk="STATUS#{status}", sk="{due:05d}#{number}")
    by_agent: ClassVar = Index(
        "GS2", pk="AGENT#{agent}", sk="{number}", when=lambda ticket: ticket.status != "DONE"
    )
    all_of_them: ClassVar = Index("GS3", pk="ALL", sk="{number}")


def keys_of(effect):
    """Return the index keys that an effect writes: texts, and None for those that it removes."""
    action = compile_effect(effect, SCHEMA, SOURCE)
    written = {**action.item, **action.sets, **dict.fromkeys(action.removes)}
    assert not action.removes & action.sets.keys()
    return {name: value and value["S"] for name, value in written.items() if name in KEYS}


ALL = {"GS3PK": "ALL", "GS3SK": "7"}


@given(
    status=st.sampled_from(["OPEN", "DONE", "WAITS"]),
    agent=st.sampled_from(["ann", "bob"]),
    due=st.integers(0, 9),
)
def test_an_update_that_sets_all_that_a_key_needs_writes_what_a_put_would(status, agent, due):
    fields = {"status": status, "agent": agent, "due": due}
    put = keys_of(Put(Ticket(number=7, **fields)))
    updated = keys_of(Set(Ticket.key(number=7), **fields))
    assert {name: value for name, value in updated.items() if value is not None} == put
    assert put.keys() | updated.keys() == KEYS


@pytest.mark.parametrize("fields", [{"views": 1}, {"tags": {"a"}}])
def test_an_update_of_other_fields_writes_the_keys_that_an_item_always_has(fields):
    assert keys_of(Set(Ticket.key(number=7), **fields)) == ALL


@pytest.mark.parametrize(
    ("effect", "names"),
    [
        (Set(Ticket.key(number=7), due=1), []),
        (Set(Ticket.key(number=7), due=None), ["due", "GS1"]),
        (Set(Ticket.key(number=7), agent="ann"), ["agent", "GS2", "status"]),
        (Set(Ticket.key(number=7), status="OPEN"), ["status", "GS2", "agent"]),
        (Add(Ticket.key(number=7), due=1), ["due", "GS1"]),
        (Set(Key(Ticket, "TICKET#7", "TICKET"), due=1), ["due", "GS1", "number"]),
    ],
)
def test_an_update_of_a_part_of_a_key_is_refused_and_says_what_else_it_needs(effect, names):
    if not names:
        assert keys_of(effect) == ALL | {"GS1SK": "00001#7"}
        return
    with pytest.raises(ValueError, match="part of a key of the index") as refusal:
        keys_of(effect)
    for name in names:
        assert name in str(refusal.value)


def test_an_item_leaves_an_index_when_an_update_decides_so():
    fields = {"status": "DONE", "due": 1}
    assert keys_of(Set(Ticket.key(number=7), **fields)) == ALL | {
        "GS1PK": "STATUS#DONE",
        "GS1SK": "00001#7",
        "GS2PK": None,
        "GS2SK": None,
    }


class Tagged(Entity, pk="TAGGED#{number}", sk="TAGGED"):
    number: int
    tags: frozenset[str] = frozenset()
    hot: ClassVar = Index("GS1", pk="HOT", sk="{number}", when=lambda one: "hot" in one.tags)


def test_what_decides_whether_an_item_is_in_an_index_cannot_be_added_to():
    with pytest.raises(ValueError, match="tags is part of a key of the index GS1"):
        keys_of(AddToSet(Tagged.key(number=1), tags={"hot"}))
    assert keys_of(Set(Tagged.key(number=1), tags={"hot"})) == {"GS1PK": "HOT", "GS1SK": "1"}


class Job(Entity, pk="JOB#{number}", sk="JOB"):
    number: int
    owner: str = ""
    state: str = "NEW"
    views: int = 0
    open_jobs: ClassVar = Index("GS1", pk="OPEN", sk="{number}", when=lambda job: job.is_open())

    @property
    def is_owned(self) -> bool:
        return self.owner != ""

    def is_open(self) -> bool:
        return self.is_owned and self.state != "DONE"


def test_when_may_ask_properties_and_methods_of_the_entity():
    key = Job.key(number=1)
    assert keys_of(Set(key, owner="ann", state="NEW")) == {"GS1PK": "OPEN", "GS1SK": "1"}
    assert keys_of(Set(key, owner="ann", state="DONE")) == {"GS1PK": None, "GS1SK": None}
    assert keys_of(Set(key, owner="")) == {"GS1PK": None, "GS1SK": None}
    assert keys_of(Set(key, views=1)) == {}
    with pytest.raises(ValueError, match="owner is part of a key of the index GS1"):
        keys_of(Set(key, owner="ann"))


class OfAgent(Aggregate[Ticket], pk="AGENT#{agent}", sk="COUNT"):
    agent: str
    tickets: Annotated[int, Count()] = 0
    listed: ClassVar = Index("GS1", pk="AGENTS", sk="{agent}")


def test_a_group_of_an_aggregate_is_in_its_indexes():
    effect = Accumulate(OfAgent.key(agent="ann"), {"tickets": Decimal(1)})
    assert keys_of(effect) == {"GS1PK": "AGENTS", "GS1SK": "ann"}


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        (Index("GS1", pk="AGENTS", sk="{tickets:05d}"), r"sk=\(\"tickets\",\)"),
        (Index("GS1", pk="AGENTS", sk="{agent}", when=lambda one: one.tickets > 3), "when= of"),
    ],
)
def test_an_index_that_follows_from_a_sum_is_refused(listed, message):
    class Busy(Aggregate[Ticket], pk="AGENT#{agent}", sk="BUSY"):
        agent: str
        tickets: Annotated[int, Count()] = 0
        by: ClassVar = listed

    with pytest.raises(DeclarationError, match=message):
        App("shop", table="Shop").aggregate(Busy)


class Enrolment(Entity, pk="STUDENT#{student}", sk="SPORT#{sport}"):
    student: str
    sport: str
    name: str = ""
    by_sport: ClassVar = Index(
        "GS1", pk="SPORT#{sport}", sk="STUDENT#{student}", pk_attribute="SK", sk_attribute="PK"
    )


def test_the_keys_of_an_inverted_index_are_the_tables_own_and_are_not_set():
    action = compile_effect(Set(Enrolment.key(student="1", sport="2"), name="x"), SCHEMA, SOURCE)
    assert action.sets.keys() == {"name", "student", "sport"}
    assert action.removes == set()


class Close(Entity, pk="CLOSE#{number}", sk="CLOSE"):
    number: int


def test_queries_find_what_a_handler_has_set_and_groups_of_aggregates():
    app = App("shop", table="Shop", entities=[Ticket])
    app.aggregate(OfAgent)

    @app.on
    def close(change: Inserted[Close]) -> Set[Ticket]:
        return Set(Ticket.key(number=change.new.number), status="DONE", due=0)

    with Harness(app) as harness:
        harness.put(Ticket(number=1, status="OPEN", due=3, agent="ann"))
        harness.put(Close(number=1))
        harness.settle()
        found = {
            status: len(harness.query(Ticket.query(index=Ticket.by_status, status=status)))
            for status in ("OPEN", "DONE")
        }
        assert found == {"OPEN": 0, "DONE": 1}
        assert harness.query(Ticket.query(index=Ticket.by_agent, agent="ann")) == []
        assert len(harness.query(OfAgent.query(index=OfAgent.listed))) == 1
