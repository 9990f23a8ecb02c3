"""The README's code runs as it is written."""

import ast
import re
import sys
import types
from decimal import Decimal
from pathlib import Path
from typing import ClassVar

import streamkit
import streamkit.running.preflight
from streamkit.testing.harness import table_of
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import World

README = Path(__file__).parents[2].joinpath("README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def module_of(*blocks):
    module = types.ModuleType("readme_example")
    sys.modules[module.__name__] = module
    names = {name: getattr(streamkit, name) for name in streamkit.__all__}
    vars(module).update(names, Decimal=Decimal, ClassVar=ClassVar)
    for block in blocks:
        exec(compile(block, "README.md", "exec"), vars(module))
    return vars(module)


async def first_screen():
    module = module_of(BLOCKS[0])
    app = module["app"]
    world = World.create()
    world.engine.call("dynamodb", "CreateTable", table_of(app))
    for username in ("ann", "bob"):
        like = module["BrandLike"](brand="APPLE", username=username)
        key = {"S": like.item_key.pk}
        item = {"PK": key, "SK": key, "brand": {"S": "APPLE"}, "username": {"S": username}}
        world.engine.call("dynamodb", "PutItem", {"TableName": app.table, "Item": item})
    assert await world.run_worker(app)
    async with world.clients() as aws:
        around = await streamkit.running.preflight.survey(app, aws)
        table = streamkit.Table(aws.dynamodb, around.table)
        scope = module | {"table": table}
        body = "async def read():\n" + "".join(f"    {line}\n" for line in BLOCKS[1].splitlines())
        exec(compile(body + "    return likes\n", "README.md", "exec"), scope)
        likes = await scope["read"]()
    assert (likes.brand, likes.likes) == ("APPLE", 2)


def test_the_first_screen_counts_likes_and_reads_them():
    run_virtually(first_screen)


def test_the_example_of_a_test_passes(harness_of):
    example = next(block for block in BLOCKS if "harness_of" in block)
    module_of(BLOCKS[0], example)["test_likes_are_counted_once"](harness_of)


def test_the_example_of_a_trial_passes():
    example = next(block for block in BLOCKS if "trial(" in block)
    module_of(BLOCKS[0], example)["test_likes_are_exact_whatever_happens"]()


def test_the_how_tos_declare_what_they_say():
    entity, handler, reader = (
        next(block for block in BLOCKS if text in block)
        for text in ("class Order(", "def shipped(", "def renumber(")
    )
    others = (
        'class Notice(Entity, pk="NOTICE#{order_id}", sk="-"):\n    order_id: str\n'
        'class Customer(Entity, pk="C#{username}", sk="-"):\n    username: str\n    orders: int = 0\n'
        'app = App("shop", table="Shop")\n'
    )
    module = module_of(entity, others, handler, reader)
    assert [h.name for h in module["app"].handlers] == ["shipped", "renumber"]


def test_the_example_of_an_aggregate_declares_it():
    example = next(block for block in BLOCKS if "class Sales(" in block)
    before = (
        "from datetime import datetime, timedelta\nfrom typing import Annotated\n"
        'class Sale(Entity, pk="SALE#{number}", sk="-"):\n    number: int\n    country: str\n'
        "    amount: Decimal\n    buyer: str\n    at: datetime\n"
        'app = App("shop", table="Shop")\n'
    )
    module = module_of(before, example)
    assert [h.name for h in module["app"].handlers] == ["Sales", "Sales.remove_empty"]


def test_the_example_of_a_sink_declares_it_and_its_handler():
    entity, sink = (
        next(block for block in BLOCKS if text in block) for text in ("class Order(", "app.sink(")
    )
    module = module_of(entity, 'app = App("shop", table="Shop")\n', sink)
    assert [h.name for h in module["app"].handlers] == ["follow"]
    assert [sink.name for sink in module["app"].sinks] == ["search"]


def test_every_block_is_python():
    for block in BLOCKS:
        ast.parse(block, mode="exec") if "await" not in block else compile(
            block, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        )


def test_every_setting_is_in_the_readme():
    from streamkit.settings import Settings

    missing = [n for n in Settings.model_fields if f"STREAMKIT_{n.upper()}" not in README]
    assert missing == []


def test_the_example_of_a_listener_declares_it():
    example = next(block for block in BLOCKS if "app.listener(" in block)
    before = (
        'class Deal(Entity, pk="DEAL#{number}", sk="-"):\n    number: int\n'
        'class Document(Entity, pk="DOC#{number}", sk="-"):\n    number: int\n'
        'app = App("deals", table="Deals", entities=[Document])\n'
    )
    module = module_of(before, example)
    assert module["search"].name == "deals.search"
    assert [h.name for h in module["search"].handlers] == ["indexed"]
    assert module["app"].handlers == []


def test_the_example_of_traces_declares_the_app():
    example = next(block for block in BLOCKS if "trace_attribute" in block)
    assert module_of(example)["app"].telemetry.trace_attribute == "traceparent"


def test_the_example_of_extremes_can_be_registered():
    example = next(block for block in BLOCKS if "class LastSeen(" in block)
    others = (
        "from datetime import datetime\nfrom typing import Annotated\n"
        'app = App("logs", table="Logs")\n'
        'class Log(Entity, pk="DEVICE#{device}", sk="LOG#{number}"):\n    device: str\n'
        "    number: int\n    date: datetime\n    state: str\n"
    )
    app = module_of(others, example)["app"]
    assert [aggregate.__name__ for aggregate in app.aggregates] == ["LastSeen"]


def test_the_example_of_a_migration_declares_it():
    entity, example = (
        next(block for block in BLOCKS if text in block)
        for text in ("class Order(", "@app.migration(")
    )
    app = module_of(entity, 'app = App("shop", table="Shop")\n', example)["app"]
    assert [(m.id, m.mode) for m in app.migrations.values()] == [("0003", "in_place")]
