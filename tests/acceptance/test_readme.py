"""The first screen and the first steps, as they are written in README.md."""

import re
from pathlib import Path
from unittest.mock import patch

from streamkit.testing.harness import table_of
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import World
from tests.pages import PAGES, examples, module_of

FIRST, READ, LIKE, CREATE, *ESSENTIALS = examples("README.md")


async def likes_of(world, module):
    """Read the count as the second example does."""
    body = "async def read():\n" + "".join(f"    {line}\n" for line in READ.splitlines())
    exec(compile(body + "    return likes\n", "README.md", "exec"), module)
    with patch("streamkit.app.connect", world.clients):
        return await module["read"]()


async def first_screen():
    module = module_of(FIRST)
    app = module["app"]
    world = World.create()
    world.engine.call("dynamodb", "CreateTable", table_of(app))
    for username in ("ann", "bob"):
        like = module["BrandLike"](brand="APPLE", username=username)
        key = {"S": like.item_key.pk}
        item = {"PK": key, "SK": key, "brand": {"S": "APPLE"}, "username": {"S": username}}
        world.engine.call("dynamodb", "PutItem", {"TableName": app.table, "Item": item})
    assert await world.run_worker(app)
    likes = await likes_of(world, module)
    assert (likes.brand, likes.likes) == ("APPLE", 2)


def test_the_first_screen_counts_likes_and_reads_them():
    run_virtually(first_screen)


def test_each_figure_of_the_first_screen_stands_on_the_page_that_measured_it():
    folder = Path(__file__).parents[2]
    readme = (folder / "README.md").read_text()
    rows = readme.partition("| why not |")[2].split("\n\n")[0].splitlines()[2:]
    measured = (folder / "docs/costs.md").read_text() + (folder / "docs/lambda.md").read_text()
    said = [re.sub(r"\]\([^)]*\)|`[^`]*`", "", row.split("|", 2)[2]) for row in rows]
    figures = {figure for text in said for figure in re.findall(r"\d[\d,.]*\d|\d", text)}
    assert (len(rows), len(figures) > 15) == (4, True)
    stand = set(re.findall(r"\d[\d,.]*\d|\d", measured))
    assert figures <= stand


async def first_table(monkeypatch):
    module = module_of(FIRST)
    world = World.create()

    class Client:
        def __getattr__(self, method):
            operation = "".join(word.title() for word in method.split("_"))
            return lambda **payload: world.engine.call("dynamodb", operation, payload)

    monkeypatch.setattr("boto3.client", lambda _name: Client())
    module_of(CREATE, name="create")
    module_of(LIKE, name="like")
    assert await world.run_worker(module["app"])
    assert (await likes_of(world, module)).likes == 1


def test_the_first_steps_make_a_table_and_an_item_that_is_counted(monkeypatch):
    run_virtually(lambda: first_table(monkeypatch))


def test_an_order_that_is_shipped_leaves_a_notice(harness_of):
    module = module_of(*ESSENTIALS)
    harness = harness_of(module["app"])
    order = module["Order"](username="ann", order_id="1")
    harness.put(order)
    harness.put(order.model_copy(update={"status": "SHIPPED"}))
    harness.settle()
    assert harness.get(module["Notice"].key(username="ann", order_id="1")) is not None


def test_the_readme_is_short_and_lists_every_page():
    text = PAGES["README.md"]
    assert len(text.splitlines()) < 400
    assert [page for page in PAGES if page != "README.md" and f"]({page})" not in text] == []
