"""Migrations and indexes: those that are being created, and those that make a migration needless."""

import random
from dataclasses import asdict
from decimal import Decimal
from typing import ClassVar

import anyio
import pytest

from streamkit import App, Entity, Index, Remove, Set
from streamkit.cli.migration_status import show_one
from streamkit.cli.migration_views import describe_plan, progress_line
from streamkit.core.table_shape import TableShape, entities_of
from streamkit.core.tables import survey
from streamkit.errors import ConfigurationError
from streamkit.migrate.book import releases
from streamkit.migrate.book.limits import Limit
from streamkit.migrate.operate import commands, steps
from streamkit.migrate.operate.progress import ProgressReader
from streamkit.migrate.plan.planning import plan_migration
from streamkit.migrate.run.reports import Reporter
from streamkit.migrate.run.running import Runner
from streamkit.migrate.run.sampling import Wanted
from streamkit.migrate.run.work import TOUCH
from streamkit.settings import Settings
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import World

HOUR = 3600.0
SELDOM = Settings(poll_ceiling=30, heartbeat=60, lease=150, look_interval=30)


class Match(Entity, pk="MATCH#{match}", sk="MATCH"):
    match: str
    tournament: str
    region: str | None = None
    round: int = 0
    score: Decimal | None = None
    label: str | None = None
    tournament_region: str | None = None
    by_round: ClassVar = Index(
        "ByRound", pk="{tournament}#{region}", sk="{round:04d}", when=lambda match: match.region
    )
    by_label: ClassVar = Index(
        "ByLabel", pk="{label}", pk_attribute="label", when=lambda match: match.label
    )


class Moved(Entity, pk="MOVED#{match}", sk="MATCH"):
    match: str
    tournament: str
    by_round: ClassVar = Index("ByRound", pk="{tournament}", sk="{match}")


def moved(match: Match) -> Moved:
    return Moved(match=match.match, tournament=match.tournament)


def labelled(match: str, region: str | None = None) -> Set[Match]:
    return Set(tournament_region=f"{match} in {region}")


class Site:
    """A table with matches, in which the index `name` is created anew, which takes an hour."""

    def __init__(self, world, aws, app):
        self.world, self.aws, self.app = world, aws, app
        self.migration = app.migrations["0001"]

    async def create_again(self, name):
        described = (await self.aws.dynamodb.describe_table(TableName="Matches"))["Table"]
        index = next(o for o in described["GlobalSecondaryIndexes"] if o["IndexName"] == name)
        wanted = {member: index[member] for member in ("IndexName", "KeySchema", "Projection")}
        for update in ({"Delete": {"IndexName": name}}, {"Create": wanted}):
            self.world.engine.index_creation = HOUR
            await self.aws.dynamodb.update_table(
                TableName="Matches",
                AttributeDefinitions=described["AttributeDefinitions"],
                GlobalSecondaryIndexUpdates=[update],
            )

    async def plan(self):
        return await plan_migration(
            self.app,
            self.aws,
            self.migration,
            sample=Wanted(share=1.0),
            clock=self.world.clock,
            rng=random.Random(1),
        )

    async def begin(self, **options):
        options = {"segments": 2, "clock": self.world.clock} | options
        await commands.begin(self.app, self.aws, self.migration, **options)
        return Runner(
            self.app, self.aws, self.migration, SELDOM, self.world.clock, random.Random(1)
        )


def at_site(do, function=labelled, *, entity=Match, without=(), **options):
    """Do something where ten matches are, each without the attributes `without`."""
    app = App("matches", table="Matches", entities=[Match, Moved])
    app.migration("0001", entity, **options)(function)

    async def main():
        world = World.create(1)
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, "Matches", entities_of(app))
            schema = (await survey(app, aws)).table
            for number in range(10):
                match = Match(
                    match=f"m{number}",
                    tournament=f"t{number % 3}",
                    region="EU" if number % 2 else "NA",
                    round=number,
                    score=Decimal(number) + Decimal("0.5"),
                )
                item = match.attributes(schema)
                item = {name: value for name, value in item.items() if name not in without}
                await aws.dynamodb.put_item(TableName="Matches", Item=item)
            return await do(Site(world, aws, app))

    return run_virtually(main, seed=1)


# -- indexes that are being created ----------------------------------------------------------------


def test_a_scan_of_an_index_waits_until_the_index_has_been_created():
    async def do(site):
        await site.create_again("ByRound")
        began = site.world.clock.time()
        seen, lines = [], []
        site.world.engine.observers.append(
            lambda call: (
                seen.append((call.status, site.world.clock.time() - began))
                if call.payload.get("IndexName") == "ByRound"
                else None
            )
        )
        runner = await site.begin()
        reader = ProgressReader(site.app, site.aws, site.world.clock)
        async with anyio.create_task_group() as group:
            group.start_soon(runner.run)
            group.start_soon(Reporter(runner).run)
            while runner.state.phase != "done":
                await anyio.sleep(60)
                lines.append(progress_line(await reader.read("0001")))
            group.cancel_scope.cancel()
        return seen, lines, runner.state.phase

    seen, lines, phase = at_site(do, mode="touch", index=Match.by_round)
    assert phase == "done"
    assert any("slowed by the creation of its index" in line for line in lines)
    assert seen
    assert all(status == 200 and HOUR <= at < HOUR + 60 for status, at in seen)


def test_a_process_that_is_stopped_while_it_waits_for_an_index_begins_no_scan():
    async def do(site):
        await site.create_again("ByRound")
        runner = await site.begin()
        async with anyio.create_task_group() as group:
            group.start_soon(runner.run)
            while runner.rate.reason != "index":
                await anyio.sleep(1)
            runner.stop()
        return runner.state.phase

    assert at_site(do, mode="touch", index=Match.by_round) == "capturing"


@pytest.mark.parametrize("anyway", [None, "nobody reads it"])
def test_a_switch_is_refused_while_an_index_of_its_entities_is_being_created(anyway):
    async def do(site):
        runner = await site.begin()
        assert (await runner.run()).phase == "ready"
        await site.create_again("ByLabel")
        site.world.engine.index_creation = 0.0
        other = await releases.other_releases(site.app, site.aws)
        assert other is None
        said = {"clock": site.world.clock}
        if anyway is None:
            with pytest.raises(ConfigurationError, match=r"index ByLabel is being created"):
                await steps.switch(site.app, site.aws, "0001", **said)
            await anyio.sleep(HOUR)
        return (await steps.switch(site.app, site.aws, "0001", anyway=anyway, **said)).phase

    assert at_site(do, moved, mode="rekey") == "switching"


def test_the_status_of_what_is_ready_names_the_index_that_holds_back_the_switch(capsys):
    async def do(site):
        assert (await (await site.begin()).run()).phase == "ready"
        await show_one(site.app, site.aws, "0001", as_json=False)
        quiet = capsys.readouterr().out
        await site.create_again("ByLabel")
        await show_one(site.app, site.aws, "0001", as_json=False)
        return quiet, capsys.readouterr().out

    quiet, told = at_site(do, moved, mode="rekey")
    text = "ByLabel is being created: `switch` is refused until it can be read"
    assert "ready" in quiet
    assert text not in quiet
    assert text in told.splitlines()


def test_a_plan_tells_what_an_index_costs_that_is_being_created(capsys):
    async def do(site):
        await site.create_again("ByRound")
        plan = await site.plan()
        described = (await site.aws.dynamodb.describe_table(TableName="Matches"))["Table"]
        index = next(
            one for one in described["GlobalSecondaryIndexes"] if one["IndexName"] == "ByRound"
        )
        return plan, index["ItemCount"]

    plan, items = at_site(do, moved, mode="rekey", without=("region",))
    (index,) = plan.indexes
    assert (index.name, index.entries.value, index.writes.value) == ("ByRound", items, items)
    assert index.dollars.value > 0
    assert plan.to_dict()["indexes"] == (asdict(index),)
    texts = [one.text for one in plan.problems if one.kind == "index"]
    assert texts == ["ByRound is being created: `switch` is refused until it can be read"]
    assert plan.ok
    describe_plan(plan)
    assert (
        "meanwhile DynamoDB fills index ByRound: 10 entries, 10 write units of the index, $0.00"
        in capsys.readouterr().out
    )


def test_a_plan_says_that_the_scan_of_an_index_waits():
    async def do(site):
        quiet = await site.plan()
        await site.create_again("ByRound")
        return quiet, await site.plan()

    quiet, plan = at_site(do, mode="touch", index=Match.by_round)
    assert not quiet.indexes
    assert [one.text for one in quiet.problems if one.kind == "index"] == []
    texts = [one.text for one in plan.problems if one.kind == "index"]
    assert texts == ["ByRound is being created: the scan waits until it can be read"]


# -- items of an index that fail -------------------------------------------------------------------


def fails(match: str) -> Set[Match]:
    raise ValueError(match)


@pytest.mark.parametrize(("most", "touched"), [(2.0, 0), (0.0, 10)])
def test_failures_count_in_the_scan_of_an_index_where_people_limit_them(most, touched):
    async def do(site):
        await anyio.sleep(1200)  # or the stream brings the items before the scan does
        runner = await site.begin(limit=Limit(max_errors=most))
        state = await runner.run()
        items = site.world.items("Matches")
        return state.note, sum(TOUCH in item for item in items)

    note, found = at_site(do, fails, mode="touch", index=Match.by_round)
    assert ("more than --max-errors allows" in note, found) == (most > 0, touched)


def test_an_index_whose_items_do_not_fail_is_touched_as_without_a_limit():
    async def do(site):
        runner = await site.begin(limit=Limit(max_errors=2))
        return (await runner.run()).phase, site.world.items("Matches")

    phase, items = at_site(do, mode="touch", index=Match.by_round)
    matches = [item for item in items if item["PK"]["S"].startswith("MATCH")]
    assert (phase, len(matches)) == ("done", 10)
    assert all("tournament_region" in item for item in matches)


# -- indexes that need no migration ----------------------------------------------------------------


def advice(function, **options):
    async def do(site):
        plan = await site.plan()
        return [one.text for one in plan.problems if one.kind == "index"]

    return at_site(do, function, **options)


def joined(tournament: str, region: str | None = None) -> Set[Match]:
    return Set(label=f"{tournament}#{region}")


def joined_with_a_number(tournament: str, score: Decimal) -> Set[Match]:
    return Set(label=f"SCORE#{score:09.2f}#{tournament}")


SERVES = (
    "label of ByLabel only joins {}, which the items have: a global index with pk={} answers"
    " the same queries; DynamoDB fills it by itself, and no item has to be migrated"
)


class Open(Match):
    """Matches whose index is declared without a condition."""

    by_round: ClassVar = Index("ByRound", pk="{tournament}#{region}", sk="ROUND#{round:04d}")


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (joined, SERVES.format("tournament, region", ("tournament", "region"))),
        (joined_with_a_number, SERVES.format("score, tournament", ("score", "tournament"))),
    ],
)
def test_a_plan_says_that_an_index_of_several_attributes_would_do(function, expected):
    assert advice(function) == [expected]


def as_today(match: Open) -> Open:
    return match


def test_a_plan_says_that_of_the_templates_of_an_entity_too():
    (text,) = advice(as_today, entity=Open, without=("ByRoundPK", "ByRoundSK"))
    assert text == (
        "ByRoundPK of ByRound only joins tournament, region, which the items have: a global index"
        " with pk=('tournament', 'region') answers the same queries; ByRoundSK of ByRound only"
        " joins round, which the items have: a global index with sk=('round',) answers the same"
        " queries; DynamoDB fills it by itself, and no item has to be migrated"
    )


def of_half(tournament: str, region: str | None = None) -> Set[Match]:
    return Set(label=tournament[:1])


def of_some(tournament: str, region: str | None = None) -> Set[Match] | None:
    return Set(label=f"{tournament}#{region}") if region == "EU" else Set(label=tournament)


def of_another_attribute(tournament: str, region: str | None = None) -> Set[Match]:
    return Set(label=f"{tournament}#{region}", tournament_region="x")


def that_removes(tournament: str, region: str | None = None) -> list[Set[Match] | Remove[Match]]:
    return [Set(label=f"{tournament}#{region}"), Remove("region")]


@pytest.mark.parametrize("function", [of_half, of_some, of_another_attribute, that_removes])
def test_a_plan_advises_no_index_where_the_migration_does_more(function):
    assert advice(function) == []


def test_a_plan_advises_no_index_over_a_field_that_items_lack():
    assert len(advice(joined)) == 1
    assert advice(joined, without=("region",)) == []


def test_the_budget_holds_for_an_index_that_is_being_created():
    per_second = 2.0

    async def do(site):
        await site.create_again("ByRound")
        taken = []

        def noted(call):
            consumed = call.body.get("ConsumedCapacity") or {}
            for part in consumed if isinstance(consumed, list) else [consumed]:
                indexes = part.get("GlobalSecondaryIndexes") or {}
                units = indexes.get("ByRound", {}).get("CapacityUnits", 0.0)
                taken.extend([site.world.clock.time()] * int(units))

        await commands.begin(
            site.app,
            site.aws,
            site.migration,
            segments=2,
            limit=commands.Limit(max_writes=per_second),
            clock=site.world.clock,
        )
        site.world.engine.observers.append(noted)
        runner = Runner(
            site.app, site.aws, site.migration, SELDOM, site.world.clock, random.Random(1)
        )
        state = await runner.run()
        assert (await survey(site.app, site.aws)).table.indexes["ByRound"].is_active is False
        return state.phase, taken

    phase, taken = at_site(do, as_today, entity=Open, without=("ByRoundPK", "ByRoundSK"))
    assert phase == "done"
    assert len(taken) == 10  # an entry for each item, in an index that cannot be read yet
    assert taken[-1] - taken[0] >= (len(taken) - 2) / per_second
