"""Migrations of tables of any shape: with writers, crashes and several processes, item by item."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from streamkit import App, Entity, Remove, Set, TableShape
from streamkit.model.copies import COPY
from streamkit.testing.migrations import migrate

CONTROL = "Control"


class Old(Entity, pk="OLD#{user}", sk="{number}", type="old"):
    user: str
    number: int
    status: str = "NEW"
    twice: str | None = None


class New(Entity, pk="NEW#{user}", sk="{number}", type="new"):
    user: str
    number: int
    status: str = "NEW"


class OldAlone(Entity, pk="OLD#{number}", type="old"):
    user: str
    number: int
    status: str = "NEW"
    twice: str | None = None


class NewAlone(Entity, pk="NEW#{number}", type="new"):
    user: str
    number: int
    status: str = "NEW"


class OldNumber(Entity, pk="{number}", sk="OLD", type="old"):
    user: str
    number: int
    status: str = "NEW"
    twice: str | None = None


class NewNumber(Entity, pk="{number}", sk="NEW", type="new"):
    user: str
    number: int
    status: str = "NEW"


@dataclass(frozen=True)
class Kind:
    """A kind of table, and the entities that fit it."""

    shape: TableShape
    old: Any = Old
    new: Any = New
    options: dict[str, Any] = field(default_factory=dict)
    others: tuple[tuple[str, TableShape], ...] = ()


TYPED = {"type_attribute": "kind"}
APART = ((CONTROL, TableShape(pk="name", sk=None)),)
KINDS = {
    "control items apart": Kind(TableShape(), options={"control_table": CONTROL}, others=APART),
    "a number as sort key": Kind(TableShape(sk_type="N"), options=TYPED),
    "bytes as sort key": Kind(TableShape(sk_type="B"), options=TYPED),
    "no sort key": Kind(TableShape(), OldAlone, NewAlone),
    "no sort key, but types": Kind(TableShape(), OldAlone, NewAlone, TYPED),
    "a number as partition key": Kind(
        TableShape(pk_type="N"), OldNumber, NewNumber, TYPED | {"control_table": CONTROL}, APART
    ),
    "a number as sort key, and no types": Kind(TableShape(pk="time-zone", sk_type="N")),
    "bytes as sort key, and no types": Kind(TableShape(sk="the.hash", sk_type="B")),
}


class Writer:
    """Puts, updates and deletes items of the old shape, and after the switch of the new one."""

    def __init__(self, kind, *, moves):
        self.kind, self.moves = kind, moves
        self.left = {}

    async def open(self, aws, schema, rng):
        for number in range(12):
            one = self.kind.old(user=f"u{number % 3}", number=number)
            await self.put(aws, schema, one)

    async def put(self, aws, schema, one):
        item = one.attributes(schema)
        await aws.dynamodb.put_item(TableName=schema.name, Item=item)
        self.left[one.number] = one.status

    async def act(self, aws, schema, rng, phase):
        if phase in ("switching", "returning", "following", "unturning", "dropping"):
            return
        after = phase in ("soaking", "contracting", "closing", "done") and self.moves
        entity = self.kind.new if after else self.kind.old
        number, status = rng.randrange(15), rng.choice(["PAID", "SENT"])
        one = entity(user=f"u{number % 3}", number=number, status=status)
        if rng.random() < 0.7:
            await self.put(aws, schema, one)
        else:
            key = one.item_key.wire(schema)
            await aws.dynamodb.delete_item(TableName=schema.name, Key=key)
            self.left.pop(number, None)


def twice(status: str) -> Set[Any]:
    return Set(twice=f"{status}{status}")


def once(status: str) -> Remove[Any]:
    return Remove("twice")


def app_of(kind):
    return App("shop", table="Shop", entities=[kind.old, kind.new], **kind.options)


def run(app, kind, *steps, moves=False):
    """Return what there is in the end, and what the writer has left, by number."""
    writer = Writer(kind, moves=moves)
    ran = migrate(
        app,
        "0001",
        writer,
        seed=1,
        acts=5,
        processes=1,
        segments=2,
        steps=steps,
        shape=kind.shape,
        others=kind.others,
    )
    return ran, writer.left


@pytest.mark.parametrize(
    "name",
    [
        "control items apart",
        "bytes as sort key",
        "no sort key",
        "a number as sort key, and no types",
    ],
)
def test_items_change_where_they_are_whatever_the_keys(name):
    kind = KINDS[name]
    app = app_of(kind)
    app.migration("0001", kind.old, reverse=once)(twice)
    ran, left = run(app, kind, "apply")
    assert [state.phase for state in ran.states] == ["done"]
    assert {one.number: one.status for one in ran.items(kind.old)} == left
    assert all(item["twice"]["S"] == 2 * item["status"]["S"] for item in ran.raw())


@pytest.mark.parametrize(
    ("name", "end"), list(zip(KINDS, 4 * ["contract", "rollback"], strict=True))
)
def test_items_move_or_come_back_whatever_the_keys(name, end):
    kind = KINDS[name]
    app = app_of(kind)

    def moved(item: Entity) -> Entity:
        return kind.new(user=item.user, number=item.number, status=item.status)

    def back(item: Entity) -> Entity:
        return kind.old(user=item.user, number=item.number, status=item.status)

    moved.__annotations__ |= {"item": kind.old, "return": kind.new}
    app.migration("0001", kind.old, mode="rekey", reverse=back)(moved)
    ran, left = run(app, kind, "apply", "switch", end, moves=True)
    assert ran.states[-1].phase == ("done" if end == "contract" else "rolled back")
    here, gone = (kind.new, kind.old) if end == "contract" else (kind.old, kind.new)
    assert {one.number: one.status for one in ran.items(here)} == left
    assert not ran.raw(gone)
    assert not [item for item in ran.raw() if COPY in item]
