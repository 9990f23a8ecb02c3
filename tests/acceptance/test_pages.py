"""The pages for people are true: examples run, commands and links exist, tables say what code says."""

import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import click
import pytest
import typer

from streamkit import App
from streamkit.cli.exits import ExitCode
from streamkit.cli.program import program
from streamkit.core.querying import query_request
from streamkit.core.tables import survey
from streamkit.kinds.preflight import findings
from streamkit.migrate.families.family import Family, Rules, Views
from streamkit.migrate.families.plans import Plans
from streamkit.migrate.families.shapes import BothShapes
from streamkit.migrate.items.transform import Transform
from streamkit.migrate.sending.attempts import Undecided
from streamkit.model.schema import TableSchema
from streamkit.progress.scan.places import place_text
from streamkit.settings import Settings
from streamkit.testing.harness import table_of
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import World
from tests.acceptance.conftest import built
from tests.pages import PAGES, ROOT, example, examples, module_of, rows, section

FIRST = examples("README.md")[0]
WITH_EXAMPLES = [page for page in PAGES if page.startswith("docs/") and examples(page)]
LINKED = [
    path
    for path in (*map(ROOT.joinpath, PAGES), *ROOT.glob("*/README.md"), *ROOT.glob("*/*/README.md"))
    if not path.parent.name.startswith(".")
]


@pytest.fixture(autouse=True)
def deals():
    """What `from deals import app` finds: the first screen."""
    names = module_of(FIRST, name="deals")
    yield names
    del sys.modules["deals"]


async def problems(app):
    """Return what `streamkit check` would complain of, on a table that fits."""
    world = World.create()
    for name in (app.table, *app.tables):
        world.engine.call("dynamodb", "CreateTable", table_of(app) | {"TableName": name})
    async with world.clients() as aws, app.resources() as resources:
        return [f.text for f in findings(app, await survey(app, aws), resources)]


@pytest.mark.parametrize("page", WITH_EXAMPLES)
def test_the_examples_of_a_page_are_one_module_whose_apps_pass_check(page):
    names = module_of(*examples(page))
    for app in [value for value in names.values() if isinstance(value, App) and value.handlers]:
        found = run_virtually(lambda app=app: problems(app))
        assert [text for text in found if "TTL" not in text] == []


def handlers_of(page):
    apps = [value for value in module_of(*examples(page)).values() if isinstance(value, App)]
    return [handler.name for app in apps for handler in app.handlers]


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("docs/aggregates.md", ["Sales", "Sales.remove_empty", "LastSeen"]),
        ("docs/copies.md", ["notify", "email_marker"]),
        ("docs/sinks.md", ["follow"]),
        ("docs/handlers.md", ["archive", "indexed"]),
    ],
)
def test_the_examples_register_what_they_say(page, names):
    assert set(names) <= set(handlers_of(page))


def test_the_examples_of_migrations_declare_them():
    app = module_of(*examples("docs/migrations.md"))["app"]
    declared = [(m.id, m.mode, m.to) for m in app.migrations.values()]
    moves = [("0006", "merge", None), ("0008", "split", None), ("0007", "rekey", None)]
    assert declared == [("0003", "in_place", None), ("0005", "touch", "Dispatch"), *moves]


def test_the_room_of_the_page_is_a_conflict_and_has_two_more_views():
    module = module_of(*examples("docs/migrations.md"))
    schema = TableSchema("Rooms", pk="PK", sk="SK", pk_type="S", sk_type="S", indexes={})
    shapes = BothShapes(Transform(module["app"].migrations["0007"], schema))
    plans = Plans(Views(shapes), Rules())
    old = module["OldRoom"](room="1").attributes(schema)
    key = {name: old[name] for name in ("PK", "SK")}
    seen = plans.settle(Family(key, None, {place_text(key): old}, {})).after
    old, new = ({**one} for side in (seen.old, seen.new) for one in side.values())
    (place,) = seen.new
    old["views"] = new["hits"] = {"N": "1"}
    counted = replace(seen, old={place_text(key): old}, new={place: new})
    (item,) = plans.settle(counted).after.new.values()
    assert item["hits"] == {"N": "2"}
    old["start"], new["end"] = {"N": "12"}, {"N": "10"}
    old["version"] = new["version"] = {"N": "2"}
    with pytest.raises(Undecided) as error:
        plans.settle(counted)
    assert str(error.value).startswith("both sides wrote end, start: ")


def test_the_split_of_the_page_takes_a_field_out_and_brings_back_what_new_code_writes_to_it():
    module = module_of(*examples("docs/migrations.md"))
    migration, player, bio = (module["app"].migrations["0008"], module["Player"], module["Bio"])
    schema = TableSchema("Players", pk="PK", sk="SK", pk_type="S", sk_type="S", indexes={})
    shapes = BothShapes(Transform(migration, schema))
    plans = Plans(Views(shapes), Rules())
    key = player.key(player="ann").wire(schema)
    old = player(player="ann", bio="short").attributes(schema)
    split = plans.settle(Family(key, None, {place_text(key): old}, {})).after
    ((place, part),) = split.new.items()
    assert (part["SK"], part["text"]) == ({"S": "BIO"}, {"S": "short"})
    assert migration.source(bio(player="ann", text="x")) == player.key(player="ann")
    found = query_request(migration.collect(player(player="ann")), schema)
    assert {"S": "PLAYER#ann"} in found["ExpressionAttributeValues"].values()
    for after, text in ((part | {"text": {"S": "long"}}, "long"), (None, None)):
        back = plans.settle(replace(split, new={place: after})).after
        (whole,) = back.old.values()
        assert whole.get("bio") == (text and {"S": text})


def test_the_example_of_traces_declares_the_app():
    module = module_of(example("docs/operating.md", "trace_attribute"))
    assert module["app"].telemetry.trace_attribute == "traceparent"


def test_the_example_of_a_test_passes(harness_of):
    module = module_of(example("docs/testing.md", "harness_of"))
    module["test_likes_are_counted_once"](harness_of)


def test_the_example_of_a_trial_passes():
    module_of(example("docs/testing.md", "trial("))["test_likes_are_exact_whatever_happens"]()


# -- commands ----------------------------------------------------------------------------------


def commands():
    """Return each `streamkit ...` of the pages, in blocks and in sentences, by page."""
    for path in LINKED:
        text = path.read_text()
        lines = "\n".join(examples(text, "console")).splitlines() + re.findall(r"`([^`\n]+)`", text)
        for line in lines:
            said = line.split(" #")[0].strip().removeprefix(".venv/bin/")
            if re.match(r"streamkit [a-z-]+( |$)", said):
                yield str(path.relative_to(ROOT)), said


COMMANDS = sorted(set(commands()))


@pytest.mark.parametrize(("page", "said"), COMMANDS, ids=[f"{p}: {s}" for p, s in COMMANDS])
def test_a_command_of_a_page_is_one_with_these_options(page, said):
    command = built(program)
    words = shlex.split(said)[1:]
    while words and isinstance(command, click.Group | typer.core.TyperGroup):
        command = command.commands[words.pop(0)]
    known = {
        name
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert given <= known, f"{page}: {said}"


def test_a_target_of_make_is_one_of_the_makefile():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        name
        for page in PAGES
        for name in re.findall(r"(?:^|`)make ([a-z]+)\b", PAGES[page], re.MULTILINE)
    }
    assert {"demo", "test", "simulate"} <= named <= targets


# -- links and names ---------------------------------------------------------------------------


def anchor(heading):
    """Return the anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def anchors(text):
    """Return the anchors of a page, without what only looks like a heading in code."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return {anchor(heading) for heading in re.findall(r"^#+ (.+)$", prose, re.MULTILINE)}


@pytest.mark.parametrize("path", LINKED, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        name, _, there = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), f"{target} is not there"
        assert not there or there in anchors(file.read_text()), f"{target}: no such heading"


def test_the_files_that_contributors_are_sent_to_are_there():
    named = re.findall(r"`([\w/]+/|[\w/]+\.py)`", PAGES["CONTRIBUTING.md"])
    places = [ROOT, ROOT / "streamkit", ROOT / "tests" / "simulation"]
    assert len(named) > 20
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


# -- tables ------------------------------------------------------------------------------------


def test_every_setting_is_listed_with_its_default():
    listed = {}
    for names, default, *_ in rows(section("docs/operating.md", "Run it")):
        variables = re.findall(r"STREAMKIT_(\w+)", names)
        listed |= dict(zip(variables, default.split(", "), strict=True)) if variables else {}
    fields = Settings.model_fields
    assert {name.lower() for name in listed} == set(fields)
    for name, said in listed.items():
        default = fields[name.lower()].default
        shown = {None: "", False: "off"}.get(default, default)
        assert said == (f"{shown:g}" if isinstance(shown, float) else str(shown)), name


def test_every_exit_code_is_listed():
    listed = [row[0] for row in rows(section("docs/operating.md", "Run it")) if row[0].isdigit()]
    assert [int(code) for code in listed] == [code.value for code in ExitCode]


def test_every_block_of_python_is_python():
    for page in PAGES:
        for block in examples(page):
            compile(block, page, "exec", flags=0x2000)  # `await` may stand at the top


def test_the_pages_are_where_the_package_ships_them():
    shipped = (ROOT / "pyproject.toml").read_text()
    assert all(f'"{Path(page).parts[0]}"' in shipped for page in PAGES)
