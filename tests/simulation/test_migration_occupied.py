"""Where an old item was, other code may put one of another type: it is none of the family."""

import anyio
import pytest

from streamkit import App, Entity
from streamkit.migrate.operate import steps
from tests.simulation.test_migration_closing import paused_in_closing, phase_of
from tests.simulation.test_migration_old_writers import DAY, nothing, play


class Sale(Entity, pk="G#{g}", sk="{n}", type="sale"):
    g: str
    n: int
    amount: int = 0


class Bill(Entity, pk="G#{g}", sk="{n}", type="bill"):
    g: str
    n: int
    amount: int = 0


class Sold(Entity, pk="SOLD#{g}", sk="{n}", type="sold"):
    g: str
    n: int
    amount: int = 0


SALES = [Sale(g="a", n=n, amount=n) for n in range(3)]
BILL = Bill(g="a", n=1, amount=7)
SOLD = Sold(g="a", n=1, amount=9)


def told(then):
    def back(sold: Sold) -> Sale:
        return Sale(**sold.model_dump())

    def sold(sale: Sale) -> Sold:
        return Sold(**sale.model_dump())

    app = App("shop", table="Shop", entities=[Sale, Bill, Sold], type_attribute="kind")
    app.migration("0001", Sale, mode="rekey", reverse=back)(sold)
    return play(app, SALES, nothing, then)


async def lived(site, *items):
    """Put items while a process follows."""
    async with site.lived_in():
        for item in items:
            await site.put(item)
            await anyio.sleep(60)


@pytest.mark.parametrize("ends", ["contract", "rollback"])
def test_an_item_that_became_another_entitys_is_gone_and_the_other_one_is_left_alone(ends):
    async def then(site):
        await lived(site, BILL)
        assert await site.get(SOLD) is None
        await anyio.sleep(DAY)
        if ends == "contract":
            await site.step("contract")
            async with site.lived_in():
                await paused_in_closing(site)
            await steps.resume(site.app, site.aws, "0001", clock=site.clock)
            await anyio.sleep(DAY)
        else:
            await steps.rollback(site.app, site.aws, "0001", clock=site.clock)
        async with site.lived_in():
            state = await phase_of(site, "done" if ends == "contract" else "rolled back")
        return state.note, await site.errors(), await site.get(BILL)

    note, errors, bill = told(then)
    assert (note, errors) == ("", [])
    assert not {name for name in bill if name.startswith("_sk_")}


def test_what_new_code_makes_where_another_item_has_the_old_place_is_left_to_people():
    async def then(site):
        await lived(site, BILL, SOLD)
        found = await site.errors(), (await site.get(BILL))["amount"]["N"]
        await site.delete(BILL)
        right, wrong = await site.retry()
        await lived(site, SOLD.model_copy(update={"amount": 10}))
        return *found, right, wrong, (await site.get(SALES[1]))["amount"]["N"]

    assert told(then) == (["taken"], "7", 1, 0, "10")
