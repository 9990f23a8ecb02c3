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


async def strangers_of(site, monkeypatch, read, newest=None, joined=None):
    """Return what runs another release, where `read` says which workers beat at a second."""
    began = anyio.current_time()

    class Members:
        def __init__(self, store):
            pass

        async def read(self):
            return {one.name: one for one in read(anyio.current_time() - began)}

    async def generation(store):
        return newest

    async def joined_app(app, store):
        return joined or app

    monkeypatch.setattr(releases, "MemberList", Members)
    monkeypatch.setattr(releases, "newest_generation", generation)
    monkeypatch.setattr(releases, "joined_app", joined_app)
    return await releases.other_releases(site.app, site.aws)


def other(name, beats=1, lease=10.0, fingerprint="another"):
    return Member(name, fingerprint=fingerprint, lease=lease, beats=beats)


@pytest.mark.parametrize(
    ("read", "named"),
    [
        # Each is waited for as long as the longest lease, or the usual one.
        (lambda at: [other("a"), other("b", int(at) // 30, lease=60.0)], "worker b"),
        (lambda at: [other("a", int(at) // 12, lease=0.0)], "worker a"),
        (lambda at: [other("a", int(at) // 12, lease=10.0)], None),
        # One that has begun meanwhile is alive.
        (lambda at: [other("a"), *([other("b")] if at > 5 else [])], "worker b"),
        (lambda at: [other("a", int(at), fingerprint="joined")], None),
    ],
)
def test_a_worker_of_another_release_is_alive_if_it_beats_within_its_lease(
    monkeypatch, read, named
):
    class Joined:
        """The app with the handlers that it has taken over, by which its workers are known."""

        def fingerprint(self):
            return "joined"

    async def test(site):
        found = await strangers_of(site, monkeypatch, read, joined=Joined())
        assert (found or "None").partition(" run ")[0] == str(named)

    at_table(test, release(seen))


def test_the_newest_generation_of_another_release_is_no_function_where_workers_run(monkeypatch):
    newest = Generation(1, "another", ("another",), {}, frozenset())

    async def test(site):
        assert await strangers_of(site, monkeypatch, lambda _: [], newest) is None

    at_table(test, release(seen))
