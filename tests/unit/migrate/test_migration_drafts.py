"""A draft says what items lack that a put would store today, and does what it can about it."""

import importlib
import random
import sys

import anyio

from streamkit.cli.migration_new import of_none_text
from streamkit.core.table_shape import TableShape
from streamkit.migrate.book.discovery import discover
from streamkit.migrate.operate.scaffold import entities_of, write_migration
from streamkit.migrate.plan.drafting import compare_entities
from streamkit.migrate.run.sampling import Wanted
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import World
from tests.unit.migrate.test_migration_order import Site

NAME = "drafted_shop"
APP = """
from decimal import Decimal
from typing import ClassVar

from streamkit import App, Entity, EpochSeconds, Index

app = App("shop", table="Shop")


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    status: str = "NEW"
    total: Decimal = Decimal(0)
    until: EpochSeconds | None = None
    seen: set[str] = set()
    by_status: ClassVar = Index("ByStatus", pk="STATUS#{status}", sk="{number:06d}")


class User(Entity, pk="USER#{name}", sk="USER"):
    name: str
    city: str
"""


def drafted(items, test, tmp_path, monkeypatch):
    """Run a test at a table with items that code of yesterday has put."""
    (tmp_path / f"{NAME}.py").write_text(APP)
    monkeypatch.syspath_prepend(str(tmp_path))
    for loaded in [one for one in sys.modules if one == NAME or "_migrations_" in one]:
        del sys.modules[loaded]
    module = importlib.import_module(NAME)

    async def main():
        world = World.create(1)
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, "Shop", (module.Order,), stream=True)
            for item in items:
                await aws.dynamodb.put_item(TableName="Shop", Item=item)
            with anyio.fail_after(7200):
                return await test(Site(module.app, aws, world))

    return run_virtually(main, seed=1)


def order(number, **fields):
    key = {"PK": {"S": f"ORDER#{number}"}, "SK": {"S": "ORDER"}}
    return key | {"number": {"N": f"{number}"}} | fields


async def compared(site, entity=None):
    entities = entities_of(site.app, f"{NAME}:app", entity)
    return await compare_entities(site.app, site.aws, entities, Wanted(share=1.0))


def test_a_draft_names_what_is_missing_and_of_another_type_and_brings_it(tmp_path, monkeypatch):
    async def test(site):
        first, *_ = await compared(site)
        path = write_migration(
            site.app, f"{NAME}:app", "as_today", entity=first.entity.__name__, draft=first.lines
        )
        discover(site.app)
        await site.apply("0001")
        return first, path.read_text(), await compared(site, "Order")

    items = [order(1, status={"S": "PAID"}), order(2, status={"S": "NEW"}, total={"S": "7"})]
    first, text, (after,) = drafted(items, test, tmp_path, monkeypatch)
    assert first.entity.__name__ == "Order"
    assert "1 of 2 items: total is missing" in first.lines
    assert "1 of 2 items: total is stored as S, not as N" in first.lines
    assert sum("is missing" in line and "2 of 2" in line for line in first.lines) == 2, "the index"
    assert "1 of 2 items: total is missing" in text
    assert "    total: Decimal\n    until: " in text
    assert "<function" not in text, "which differs from run to run"
    assert (after.items, after.lines) == (2, [])


def test_items_that_cannot_be_read_are_counted_without_their_data(tmp_path, monkeypatch):
    async def test(site):
        return await compared(site, "User")

    secret = {"PK": {"S": "USER#secret"}, "SK": {"S": "USER"}, "name": {"S": "secret"}}
    (found,) = drafted([secret], test, tmp_path, monkeypatch)
    (line,) = found.lines
    assert line.startswith("1 of 1 items: cannot be read as User")
    assert "secret" not in line


def stranger(number, **fields):
    key = {"PK": {"S": f"SECRET#{number}"}, "SK": {"S": "X"}}
    return key | {"name": {"S": "secret"}} | fields


def test_items_of_no_entity_are_counted_by_what_they_say_is_their_type(tmp_path, monkeypatch):
    async def test(site):
        entities = entities_of(site.app, f"{NAME}:app", "User")
        args = site.app, site.aws, entities, Wanted(share=1.0)
        beside = entities_of(site.app, f"{NAME}:app", None)
        return (await compare_entities(*args, beside=beside))[0].of_none

    plain = [order(1), stranger(1), stranger(2)]
    found = drafted(plain, test, tmp_path, monkeypatch)
    assert found == {"": 2}
    said = of_none_text(found)
    assert said.startswith("2 of them are of no entity of the app, and were not compared; compare")
    monkeypatch.setattr(
        f"{__name__}.APP", APP.replace('table="Shop"', 'table="Shop", type_attribute="t"')
    )
    typed = [stranger(n, t={"S": "parcel"}) for n in range(3)]
    found = drafted([*typed, stranger(9)], test, tmp_path, monkeypatch)
    assert of_none_text(found).endswith(": 3 of type parcel, 1 without a type")


def test_items_under_another_key_than_their_fields_build_are_to_move(tmp_path, monkeypatch):
    async def test(site):
        return await compared(site, "Order")

    moved = order(1) | {"number": {"N": "2"}}
    (found,) = drafted([moved], test, tmp_path, monkeypatch)
    assert found.moves
    assert found.mode == "in_place", "the keys of its index are missing, too"
    assert any("mode rekey" in line for line in found.lines)


def test_drafts_bring_what_is_missing_first_and_then_move_what_has_another_key(
    tmp_path, monkeypatch
):
    async def brought(site, name):
        first, *_ = await compared(site)
        where = f"{NAME}:app"
        entity, lines = first.entity.__name__, first.lines
        write_migration(site.app, where, name, entity=entity, mode=first.mode, draft=lines)
        discover(site.app)
        await site.apply(max(site.app.migrations))
        return first.mode

    async def test(site):
        modes = [await brought(site, name) for name in ("first", "then")]
        request = {"TableName": "Shop", "ConsistentRead": True}
        reply = await site.aws.dynamodb.scan(**request)
        keys = {item["PK"]["S"]: item for item in reply["Items"] if "number" in item}
        return modes, keys

    misplaced = order(1) | {"number": {"N": "2"}}
    modes, found = drafted([misplaced, order(3)], test, tmp_path, monkeypatch)
    assert modes == ["in_place", "rekey"]
    assert found.keys() == {"ORDER#1", "ORDER#2", "ORDER#3"}, "the old one goes with contract"
    assert all(item["total"] == {"N": "0"} for item in found.values())


def test_a_field_that_no_key_can_hold_moves_nothing(tmp_path, monkeypatch):
    async def test(site):
        return await compared(site, "User")

    item = {"PK": {"S": "USER#x"}, "SK": {"S": "USER"}, "name": {"S": ""}, "city": {"S": "Rome"}}
    (found,) = drafted([item], test, tmp_path, monkeypatch)
    assert found.mode == "in_place"
    (line,) = found.lines
    assert line.startswith("1 of 1 items: have fields that cannot be part of their key: ")


def test_the_sample_grows_until_it_holds_enough_items_of_the_app(tmp_path, monkeypatch):
    """After a rebuild nearly all items of a small table are streamkit's own."""

    async def test(site):
        entities = entities_of(site.app, f"{NAME}:app", "Order")
        rng = random.Random(1)
        return await compare_entities(site.app, site.aws, entities, Wanted(items=50), rng)

    own = [{"PK": {"S": f"_sk#shop#v1#ledger#{n}"}, "SK": {"S": "x"}} for n in range(2500)]
    (found,) = drafted([*own, *(order(n) for n in range(60))], test, tmp_path, monkeypatch)
    assert found.items >= 25
    assert found.items == found.looked_at < found.scanned
