"""The ends of a move: stubs stay for a day after any write of old code, also while others go
already; and a rollback keeps what new code has written since `ready`."""

import anyio
import pytest

from streamkit import App, Entity
from streamkit.errors import ConfigurationError
from streamkit.migrate.book.limits import Limit
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.operate import steps
from streamkit.migrate.verify.verifying import verify_migration
from tests.simulation.migrating import Profile, Stats
from tests.simulation.stepping import step_of
from tests.simulation.test_migration_old_writers import (
    DAY,
    PROFILES,
    new,
    nothing,
    old,
    play,
    rekey,
    split,
)


async def stubs(site, items):
    return [n for n in range(items) if await site.get(old(n)) is not None]


async def closing(site):
    book = await open_book(site.app, site.aws)
    while (await book.read("0001")).phase != "closing":
        await anyio.sleep(0.05)


async def paused_in_closing(site):
    await closing(site)
    await steps.pause(site.app, site.aws, "0001", clock=site.clock)


def test_a_write_while_stubs_go_keeps_the_other_stubs_for_a_day():
    async def then(site):
        await anyio.sleep(DAY)
        await site.step("contract")
        async with site.lived_in():
            await closing(site)
            await steps.set_limit(site.app, site.aws, "0001", Limit(max_writes=12))
            while len(await stubs(site, 60)) > 50:
                await anyio.sleep(0.2)
            victim = (await stubs(site, 60))[0]
            await site.update(old(victim), "SET note = :v", {"S": "by old code"})
            while "note" not in (await site.get(new(victim)) or {}):
                await anyio.sleep(0.2)
            before = await stubs(site, 60)
            await anyio.sleep(600)
            return len(before), len(await stubs(site, 60))

    before, after = play(rekey(), [old(number) for number in range(60)], nothing, then)
    assert after >= before - 2  # a process notices a write within two seconds


def test_a_write_that_no_process_has_seen_keeps_all_stubs_and_a_late_delete_is_carried():
    """Its shard has ended meanwhile, and nobody has read the next ones."""

    async def then(site):
        await anyio.sleep(DAY)
        await site.step("contract")
        async with site.lived_in():
            await paused_in_closing(site)
            await anyio.sleep(5)
        await anyio.sleep(20 * 3600)
        await site.update(old(1), "SET note = :v", {"S": "by old code"})
        await anyio.sleep(3600)
        await steps.resume(site.app, site.aws, "0001", clock=site.clock)
        async with site.lived_in():
            await anyio.sleep(600)
            left = len(await stubs(site, 10))
            await site.delete(old(5))
            await anyio.sleep(120)
            return left, await site.get(new(5))

    found = play(rekey(), [old(number) for number in range(10)], nothing, then)
    assert found == (10, None)


def test_what_old_code_moved_out_again_in_closing_leaves_a_split_item_at_the_end():
    async def then(site):
        written = [PROFILES[2], Profile(name="new")]
        await anyio.sleep(DAY)
        await site.step("contract")
        async with site.lived_in():
            await paused_in_closing(site)
            await site.put(Profile(name="new", click=77))
            await site.update(PROFILES[2], "SET click = :v", {"N": "77"})
            await anyio.sleep(60)
            there = [(await site.get(one))["click"] for one in written]
            await steps.resume(site.app, site.aws, "0001", clock=site.clock)
        await anyio.sleep(DAY)
        async with site.lived_in():
            await phase_of(site, "done")
        carried = [(await site.get(Stats(name=one.name)))["click"] for one in written]
        left = ["click" in await site.get(one) for one in written]
        about = site.app, site.aws, site.app.migrations["0001"]
        return there, carried, left, (await verify_migration(*about, clock=site.clock)).ok

    found = play(split(), PROFILES, nothing, then)
    assert found == ([{"N": "77"}] * 2, [{"N": "77"}] * 2, [False, False], True)


class OldCard(Entity, pk="CARD#{number}", sk="OLD"):
    number: str
    title: str
    owner: str
    note: str = ""


class Card(Entity, pk="CARD#{number}", sk="NEW"):
    number: str
    title: str
    owner: str
    note: str = ""


def old_card(card: Card) -> OldCard:
    return OldCard(**card.model_dump())


def card(card: OldCard) -> Card:
    return Card(**card.model_dump())


def test_stubs_of_an_entity_whose_fields_have_no_defaults_are_watched_like_any():
    app = App("cards", table="Cards", entities=[OldCard, Card])
    app.migration("0001", OldCard, mode="rekey", reverse=old_card)(card)
    cards = [OldCard(number=f"{number}", title="as agreed", owner="ann") for number in range(4)]
    new_card = card(cards[1])

    async def then(site):
        await anyio.sleep(DAY)
        await site.step("contract")
        async with site.lived_in():
            await paused_in_closing(site)
            await site.update(new_card, "SET note = :v", {"S": "by new code"})
            await site.update(cards[1], "SET title = :v", {"S": "by old code"})
            await anyio.sleep(60)
            about = site.app, site.aws, site.app.migrations["0001"]
            report = await verify_migration(*about, clock=site.clock)
        there = await site.get(new_card)
        return [there[name]["S"] for name in ("title", "note")], await site.errors(), report.ok

    found = play(app, cards, nothing, then)
    assert found == (["by old code", "by new code"], [], True)


async def goes_on(site, way, said):
    """Let a rollback go on that has paused because of new code."""
    if way == "a word":
        await step_of("rollback")(site.app, site.aws, "0001", **said)
        return
    await steps.resume(site.app, site.aws, "0001", **said)
    again = await phase_of(site, "rolled back")
    assert (again.phase, again.paused) == ("following", True)


async def phase_of(site, wanted):
    """Wait until a migration is in a phase, or has paused."""
    book = await open_book(site.app, site.aws)
    while not ((state := await book.read("0001")).phase == wanted or state.paused):
        await anyio.sleep(1)
    return state


@pytest.mark.parametrize("to", [None, "New"])
@pytest.mark.parametrize("way", ["a word", "a day"])
def test_new_items_stay_in_a_rollback_while_new_code_writes(to, way):
    async def then(site):
        said = {"clock": site.clock}
        async with site.lived_in():
            await site.put_there(new(77))
            await anyio.sleep(30)
            await steps.rollback(site.app, site.aws, "0001", **said)
            held = await phase_of(site, "rolled back")
            await site.put_there(new(78))  # new code runs on
            await anyio.sleep(30)
            carried = await site.get(old(78))
            await goes_on(site, way, said)
            if way == "a word":
                await phase_of(site, "rolled back")
        if way == "a day":
            await anyio.sleep(DAY - 3600)
            async with site.lived_in():
                await anyio.sleep(3600)
                await steps.resume(site.app, site.aws, "0001", **said)
                await phase_of(site, "rolled back")
        ended = await (await open_book(site.app, site.aws)).read("0001")
        there = [await site.get(old(number)) is not None for number in (77, 78)]
        return held, carried is not None, ended, there, await site.errors()

    items = [old(number) for number in range(10)]
    held, carried, ended, there, errors = play(rekey(to=to), items, nothing, then)
    assert (held.phase, held.paused) == ("following", True)
    assert "new code wrote at new keys" in held.note
    assert "--new-code none" in held.note
    assert carried
    assert (ended.phase, there, errors) == ("rolled back", [True, True], [])


def test_a_rollback_without_reverse_is_refused_while_new_code_writes():
    async def then(site):
        async with site.lived_in():
            await site.put_there(new(77))
            await anyio.sleep(30)
            said = {"clock": site.clock}
            with pytest.raises(ConfigurationError, match="new code wrote at new keys"):
                await steps.rollback(site.app, site.aws, "0001", **said)
            await steps.rollback(site.app, site.aws, "0001", new_code=False, **said)
            return (await phase_of(site, "rolled back")).direction

    app = rekey(reverse=False)
    assert play(app, [old(number) for number in range(10)], nothing, then, until="ready") == "back"


def test_a_rollback_in_which_no_new_code_has_written_waits_for_nobody():
    async def then(site):
        async with site.lived_in():
            await site.update(old(1), "SET note = :v", {"S": "by old code"})
            await site.delete(old(2))
            await anyio.sleep(30)
            await steps.rollback(site.app, site.aws, "0001", clock=site.clock)
            return (await phase_of(site, "rolled back")).phase

    assert play(rekey(), [old(number) for number in range(10)], nothing, then) == "rolled back"


@pytest.mark.parametrize("to", [None, "New"])
@pytest.mark.parametrize("followed", [False, True])
def test_a_rollback_from_ready_keeps_what_new_code_has_written(followed, to):
    async def written(site):
        await site.put_there(new(77))
        await site.put_there(new(1).model_copy(update={"status": "PAID"}))

    async def then(site):
        if followed:
            async with site.lived_in():
                await anyio.sleep(60)
                await written(site)
                await site.step("rollback")
                book = await open_book(site.app, site.aws)
                while (await book.read("0001")).phase != "rolled back":
                    await anyio.sleep(1)
        else:
            await written(site)
            assert (await site.run("rollback")).phase == "rolled back"
        paid, back = await site.get(old(1)), await site.get(old(77))
        return paid["status"]["S"], back is not None, await site.errors()

    items = [old(number) for number in range(10)]
    found = play(rekey(to=to), items, nothing, then, until="ready")
    assert found == ("PAID", True, [])
