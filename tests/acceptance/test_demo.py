"""Demos: they play, they end well, and what is wrong is seen, printed and told by the exit code."""

import random
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Annotated

import anyio
import pytest
import structlog

import handlers
from handlers.deals import demo
from handlers.playing import SETTINGS, Writers, items_of, play, set_up
from handlers.progress import PlainProgress, progress
from handlers.stage import open_stage
from handlers.system import System
from streamkit import Aggregate, App, Count, Entity, Inserted, Key, Put
from streamkit.core.table_shape import TableShape
from streamkit.local.engine import Engine
from tests.hurried import hurried

SYSTEMS = sorted(path.parent.name for path in Path(handlers.__file__).parent.glob("*/demo.py"))


class Like(Entity, pk="LIKE#{brand}", sk="USER#{user}"):
    brand: str
    user: str


class Mirrored(Entity, pk="MIRRORED#{brand}", sk="USER#{user}"):
    brand: str
    user: str


def make_app():
    app = App("likes", table="Likes", entities=[Mirrored])

    @app.aggregate
    class Likes(Aggregate[Like], pk="LIKES#{brand}", sk="LIKES"):
        brand: str
        likes: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, like: Like) -> Key["Likes"]:
            return cls.key(brand=like.brand)

    app.likes = Likes
    return app


class Traffic:
    def __init__(self, app, lie=0):
        self.app, self.lie = app, lie

    async def open(self, writer):
        await writer.put(Like(brand="a", user="first"))

    async def act(self, writer):
        like = Like(brand=writer.rng.choice("abc"), user=str(writer.rng.randrange(50)))
        await (writer.put(like) if writer.rng.random() < 0.6 else writer.delete(like.item_key))

    def expected(self, final):
        counts = Counter(like.brand for like in final[Like]).items()
        likes = self.app.likes
        yield final.compare(likes, [likes(brand=b, likes=n + self.lie) for b, n in counts])


@pytest.fixture(autouse=True)
def logging_as_before():
    configuration = structlog.get_config()
    yield
    structlog.configure(**configuration)


@pytest.fixture(autouse=True)
def without_waiting():
    with hurried(alone=True):
        yield


def test_whatever_happens_nothing_differs_at_the_end(capsys):
    assert demo.main(writes=1_500, seed=1) == 0

    out = capsys.readouterr().out
    assert "\n0 differences after" in out
    assert "3 splits" in out
    assert "2 kills" in out
    assert out.count("the shards are shared: ") == 3, "at the start, and after each kill"
    assert out.count("its shards are taken over: ") == 2
    assert "read units per 1,000 changes" in out
    assert "changes handled" in out


def test_a_difference_is_printed_and_ends_the_demo_with_1(capsys):
    app = make_app()
    assert play(System(app, lambda: Traffic(app, lie=1)), writes=200) == 1
    out = capsys.readouterr().out
    assert "\n3 differences after" in out
    assert "expected brand='a', likes=" in out


@pytest.mark.parametrize("claims", [0, 1])
def test_a_demo_that_compares_nothing_for_a_claim_has_not_shown_it_and_ends_with_1(claims, capsys):
    app = make_app()

    class Silent(Traffic):
        def expected(self, final):
            if claims:
                yield from super().expected(final)
                yield final.compare(Mirrored, [], title="copies")

    assert play(System(app, lambda: Silent(app)), writes=100) == 1
    out = capsys.readouterr().out
    assert ("NOTHING WAS COMPARED" in out) is bool(claims)
    assert ("leave out --writes" in out) is bool(claims)
    assert "\n0 differences after" in out


def test_a_demo_runs_the_listeners_of_its_app(capsys):
    app = make_app()
    listener = app.listener("mirror")

    @listener.on
    def copy(change: Inserted[Like]) -> Put[Mirrored]:
        return Put(Mirrored(brand=change.new.brand, user=change.new.user))

    class Twice(Traffic):
        def expected(self, final):
            yield from super().expected(final)
            ever = {(like.brand, like.user) for like in final.puts(Like)}
            yield final.compare(Mirrored, [Mirrored(brand=b, user=u) for b, u in ever])

    assert play(System(app, lambda: Twice(app)), writes=150) == 0
    assert "Mirrored" in capsys.readouterr().out


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_says_what_it_plays(name):
    assert callable(import_module(f"handlers.{name}.demo").main)
    readme = Path(handlers.__file__).parent / name / "README.md"
    assert f"streamkit demo {name}" in readme.read_text()


# -- the stage and the progress ----------------------------------------------------------------


@pytest.mark.parametrize("death", ["before", "after"])
async def test_a_killed_worker_never_calls_again_and_the_next_one_ends_its_work(death):
    engine = Engine(rng=random.Random(1))
    app = make_app()
    async with open_stage(engine) as stage, stage.client() as aws:
        await TableShape().create(aws.dynamodb, app.table, app.entities)
        first, in_commit = stage.start_worker(app, SETTINGS), []

        async def kill():
            in_commit.append(await first.kill(death, patience=60))

        async with anyio.create_task_group() as group:
            group.start_soon(kill)  # before the writes: it may be done with them at any moment
            for number in range(50):
                item = {"PK": {"S": "LIKE#ACME"}, "SK": {"S": f"USER#u{number}"}}
                item |= {"brand": {"S": "ACME"}, "user": {"S": f"u{number}"}}
                await aws.dynamodb.put_item(TableName=app.table, Item=item)
        assert in_commit == [True]
        spent = (stage.costs.write, stage.costs.pages)
        calls = []
        engine.observers.append(calls.append)
        await stage.start_worker(app, SETTINGS, until_idle=True).ended.wait()

        assert calls
        assert not first.ended.is_set()
        assert (stage.costs.write, stage.costs.pages) > spent
        key = {"PK": {"S": "LIKES#ACME"}, "SK": {"S": "LIKES"}}
        reply = await aws.dynamodb.get_item(TableName=app.table, Key=key)
        assert reply["Item"]["likes"] == {"N": "50"}


async def test_what_fills_the_table_first_is_not_counted_as_writes_of_the_demo():
    class Long(Traffic):
        async def open(self, writer):
            await writer.put(*(Like(brand="a", user=f"first{n}") for n in range(60)))

    app = make_app()
    async with open_stage(Engine(rng=random.Random(1))) as stage, stage.client() as aws:
        traffic = Long(app)
        tables = await set_up(System(app, lambda: traffic), aws)
        writers = Writers(traffic, tables, aws, seed=1, total=40)
        assert writers.made == 0
        await writers.play()
        assert writers.made >= 40
        assert len(writers.log) == 60 + writers.made


async def test_a_demo_is_the_same_in_whatever_region_the_shell_has_chosen(monkeypatch):
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    engine, app = Engine(rng=random.Random(1)), make_app()
    async with open_stage(engine) as stage, stage.client() as aws:
        await set_up(System(app, lambda: Traffic(app)), aws)
        await stage.start_worker(app, SETTINGS, until_idle=True).ended.wait()
        assert len(items_of(engine, app.table)) > 0, "the worker's own items"


async def test_only_workers_calls_are_costs():
    engine = Engine(rng=random.Random(1))
    app = make_app()
    async with open_stage(engine) as stage, stage.client() as aws:
        await TableShape().create(aws.dynamodb, app.table, app.entities)
        item = {"PK": {"S": "x"}, "SK": {"S": "x"}}
        await aws.dynamodb.put_item(TableName=app.table, Item=item)
        assert (stage.costs.read, stage.costs.write, stage.costs.pages) == (0, 0, 0)


def test_without_a_terminal_progress_is_a_line_each_tenth(capsys):
    with progress(100, "writes") as told:
        assert isinstance(told, PlainProgress)
        for done in range(0, 101, 5):
            told.advance(done)
        told.say("done")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 11
    assert lines[0].endswith("10 writes")
    assert lines[-1].endswith("done")


def test_on_a_terminal_events_stand_above_a_bar(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress(100, "writes") as told:
        assert not isinstance(told, PlainProgress)
        told.advance(50)
        told.say("a shard splits")
    assert "a shard splits" in capsys.readouterr().out
