"""Checked by mypy --strict and pyright, never run: what a user's code may rely on."""

from datetime import date
from typing import Any, ClassVar, assert_type

from streamkit.changes import Change, Expired, Inserted, Modified, Removed
from streamkit.entity import Entity, Index, Key, Query
from streamkit.model.epoch import EpochSeconds
from streamkit.model.schema import TableSchema
from streamkit.model.when import When, became, changed, crossed
from streamkit.stream.decode import ImageDecoder


class Deal(Entity, pk="DEAL#{id}", sk="DEAL#{id}", type="deal"):
    id: str
    brand: str
    day: date
    stock: int = 0
    expires: EpochSeconds | None = None
    by_brand: ClassVar = Index("GSI2", pk=("brand", "stock"), sk=("day",))
    by_day: ClassVar = Index(
        "GSI1", pk="DEALS#{day:%Y-%m-%d}", sk="DEAL#{id}", when=lambda deal: deal.stock > 0
    )


class HotDeal(Deal, type="hot", str_strip_whitespace=True):
    heat: int = 1


@Deal.upcast
def add_stock(item: dict[str, Any]) -> dict[str, Any]:
    return {"stock": 0} | item


deal = Deal(id="1", brand="APPLE", day=date(2024, 5, 1))
assert_type(deal.item_key, Key[Deal])
assert_type(Deal.key(id="1"), Key[Deal])
assert_type(HotDeal.key(id="1"), Key[HotDeal])
assert_type(Deal.query(id="1"), Query[Deal])
assert_type(Deal.query(index=Deal.by_day, day="2024-05-01").reverse().limit(5), Query[Deal])
assert_type(Deal.query(id="1").between("a", "b"), Query[Deal])
assert_type(Deal.query(index=Deal.by_brand, brand="A", stock=1).between(low="x"), Query[Deal])
assert_type(Deal.by_day, Index)
general: Key[Entity] = Deal.key(id="1")


def inserted(change: Inserted[Deal]) -> str:
    assert_type(change.new, Deal)
    assert_type(change.old, None)
    return change.new.brand


def modified(change: Modified[Deal]) -> bool:
    assert_type(change.old, Deal)
    return change.changed("brand") and change.new.stock < change.old.stock


def gone(change: Removed[Deal] | Expired[Deal]) -> str:
    assert_type(change.old, Deal)
    return change.old.brand


def new_again(change: Inserted[Deal] | Modified[Deal]) -> str:
    return change.new.brand


def all_kinds(change: Change[Deal]) -> str | None:
    assert_type(change.new, Deal | None)
    if change.new is not None:
        return change.new.brand
    return None if change.old is None else change.old.brand


def takes_any(change: Change[Entity]) -> str:
    return change.idempotency_key


def passes_on(change: Inserted[Deal]) -> str:
    return takes_any(change)


def decodes(raw: bytes, schema: TableSchema) -> Deal:
    decoder = ImageDecoder(Deal, schema)
    assert_type(decoder, ImageDecoder[Deal])
    return decoder.decode(raw)


condition: When = (changed("brand", "stock") & ~became("brand", "APPLE")) | crossed(
    "stock", below=10
)

# What must not pass: mypy complains of an ignore that is not needed.
Deal(id="1", brand="APPLE")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
deal.brand = "x"  # type: ignore[misc]


def wrong_side(change: Inserted[Deal]) -> None:
    _ = change.old.brand  # type: ignore[attr-defined]  # pyright: ignore


def maybe_absent(change: Change[Deal]) -> None:
    _ = change.new.brand  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]


def wrong_entity(change: Inserted[int]) -> None:  # type: ignore[type-var]  # pyright: ignore[reportInvalidTypeArguments]
    del change
