"""Workers and functions of a release that does not know a migration hold its last steps back."""

from dataclasses import replace

import anyio
import pytest

from streamkit import App, Inserted
from streamkit.core.tables import survey
from streamkit.errors import ConfigurationError
from streamkit.fleet.generation import Generation
from streamkit.fleet.members import Member, MemberList
from streamkit.migrate.book import releases
from streamkit.migrate.operate import steps
from streamkit.progress.cursor import CursorStore
from streamkit.worker.worker import Worker
from tests.unit.migrate.test_migration_order import Order, Parcel, at_table


def moved(order: Order) -> Parcel:
    return Parcel(number=order.number)


def seen(change: Inserted[Order]) -> None:
    """Do nothing."""


def seen_too(change: Inserted[Order]) -> None:
    """Do nothing."""


def release(*handlers):
    app = App("shop", table="Shop")
    app.migration("0001", Order, mode="rekey")(moved)
    for handler in handlers:
        app.on(handler)
    return app


async def beside(site, app, test):
    """Run a test while a worker of a release runs."""
    worker = Worker(app, site.aws, clock=site.world.clock)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await anyio.sleep(10)
        await test()
        worker.stop()


async def step(site, name, **options):
    command = {"switch": steps.switch, "contract": steps.contract}[name]
    return await command(site.app, site.aws, "0001", clock=site.world.clock, **options)


async def reach(site, name):
    await site.apply("0001")
    if name == "contract":
        await step(site, "switch")
        await site.run("0001")


@pytest.mark.parametrize("name", ["switch", "contract"])
def test_a_live_worker_of_another_release_holds_a_step_back_until_there_is_a_reason(name):
    async def test(site):
        await reach(site, name)

        async def held():
            with pytest.raises(ConfigurationError, match=r"worker .* another release.*--anyway"):
                await step(site, name)
            with pytest.raises(ConfigurationError, match="takes a reason"):
                await step(site, name, anyway=" ")
            return await step(site, name, anyway="it writes nothing")

        states = []

        async def noted():
            states.append(await held())

        await beside(site, release(seen), noted)
        assert states[0].audit[-1].what == f"{name} anyway: it writes nothing"

    at_table(test, release(seen_too))


def test_workers_of_this_release_hold_nothing_back_and_neither_do_dead_ones():
    async def test(site):
        await reach(site, "switch")
        tables = await survey(site.app, site.aws)
        store = CursorStore(site.aws.dynamodb, tables.space(site.app))
        dead = Member("gone/1/2", fingerprint="another", lease=10.0)
        await MemberList(store).add(dead)
        assert dead.name in await MemberList(store).read()

        async def switched():
            assert (await step(site, "switch")).phase == "switching"

        await beside(site, site.app, switched)

    at_table(test, release(seen))


def test_functions_of_another_release_hold_a_step_back(monkeypatch):
    async def test(site):
        await reach(site, "switch")
        mine = site.app.fingerprint()
        newest = Generation(1, "another", ("another",), {}, frozenset(), host="lambda")

        async def read(store):
            return newest

        monkeypatch.setattr(releases, "newest_generation", read)
        with pytest.raises(ConfigurationError, match="the functions of shop run another release"):
            await step(site, "switch")
        newest = replace(newest, fingerprint=mine)
        assert (await step(site, "switch")).phase == "switching"

    at_table(test, release(seen))
