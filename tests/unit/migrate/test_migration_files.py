"""Files of migrations: found beside the app, run once and in order, and refused when they are wrong."""

import ast
import importlib
import itertools
import re
import sys
from pathlib import Path
from typing import get_args

import pytest

from streamkit.kinds.migration import Mode
from streamkit.migrate.book.discovery import DiscoveryError, discover
from streamkit.migrate.operate.scaffold import next_number, write_migration

APP = """
from typing import Annotated
from streamkit import Aggregate, App, Count, Entity, Key

app = App("shop", table="Shop")
other = App("other", table="Shop")


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    status: str = "NEW"


@app.aggregate
class PerStatus(Aggregate[Order], pk="PER#{status}", sk="PER"):
    status: str
    orders: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, order: Order) -> Key["PerStatus"]:
        return cls.key(status=order.status)
"""
MIGRATION = """
from {module} import Order, {app} as app
from streamkit import Set

app.runs = [*getattr(app, "runs", ()), "{number}"]


@app.migration("{number}", Order)
def one(status: str) -> Set[Order] | None:
    return None
"""

MORE = """
from {module} import app as mine


@mine.migration("0003", Order)
def two(status: str) -> Set[Order] | None:
    return None
"""

_names = (f"migrated_shop_{number}" for number in itertools.count())


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A module with an app in a folder of its own, and what writes files beside it."""
    name = next(_names)
    (tmp_path / f"{name}.py").write_text(APP)
    (tmp_path / "migrations").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module(name)

    def write(file, number=None, text=MIGRATION, app="app"):
        said = text.format(module=name, number=number or file[:4], app=app)
        (tmp_path / "migrations" / file).write_text(said)

    module.write = write
    yield module
    for loaded in [one for one in sys.modules if one == name or "streamkit_migrations" in one]:
        del sys.modules[loaded]


def test_files_are_run_once_and_in_the_order_of_their_numbers(place):
    for number in ("0010", "0002", "0001"):
        place.write(f"{number}_one.py")
    place.write("__init__.py", text="")
    assert list(discover(place.app)) == ["0001", "0002", "0010"]
    assert place.app.runs == ["0001", "0002", "0010"]
    discover(place.app)
    assert len(place.app.runs) == 3
    assert next_number(place.app) == "0011"


def test_a_file_without_a_number_is_a_migration_if_it_declares_its_own_name(place):
    place.write("0002_two.py")
    place.write("all_orders.py", "all_orders")
    place.write("helpers.py", text="raise AssertionError('helpers are not run')")
    assert list(discover(place.app)) == ["0002", "all_orders"]
    assert next_number(place.app) == "0003"


def test_a_new_file_may_have_a_name_instead_of_a_number_and_replaces_none(place):
    where = f"{place.__name__}:app"
    path = write_migration(place.app, where, "all_orders", entity="Order", named=True)
    assert path.name == "all_orders.py"
    assert list(discover(place.app)) == ["all_orders"]
    text = path.read_text()
    with pytest.raises(ValueError, match="is there already"):
        write_migration(place.app, where, "all_orders", entity="Order", named=True)
    assert path.read_text() == text


def test_the_digest_of_a_named_file_covers_all_of_it(place):
    place.write("all_orders.py", "all_orders")
    discover(place.app)
    before = place.app.migrations.pop("all_orders").digest
    place.write("all_orders.py", "all_orders", MIGRATION + "\nSTATUS = 'MORE'\n")
    for loaded in [one for one in sys.modules if "streamkit_migrations" in one]:
        del sys.modules[loaded]
    discover(place.app)
    assert place.app.migrations["all_orders"].digest != before


def test_an_app_without_a_folder_has_no_files(place):
    place.app.migration("0003", place.Order)(lambda number: None)
    assert discover(place.app) == {}
    assert list(place.app.migrations) == ["0003"]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            ["0001_one.py", "0001_two.py"],
            "0001_one.py has the same number; give the one .* next number",
        ),
        (["0001_one.py", "00001_two.py"], "has the same number"),
        (["1_one.py"], "three digits or more"),
        (["0001-one.py"], "three digits or more"),
    ],
    ids=["twice", "twice but for a zero", "too short", "no name"],
)
def test_a_wrong_name_is_refused(place, files, said):
    for file in files:
        place.write(file, "0001")
    with pytest.raises(DiscoveryError, match=said):
        discover(place.app)


def test_a_file_that_declares_another_number_is_refused_and_leaves_nothing_behind(place):
    place.write("0001_one.py", "0009")
    with pytest.raises(DiscoveryError, match="declares 0009"):
        discover(place.app)
    assert place.app.migrations == {}


def test_a_file_that_raises_shows_its_own_traceback_alone(place):
    place.write("0001_one.py", text="def broken():\n    raise KeyError('mine')\nbroken()\n")
    with pytest.raises(DiscoveryError) as raised:
        discover(place.app)
    text = str(raised.value)
    assert "0001_one.py" in text
    assert "KeyError: 'mine'" in text
    assert "discovery.py" not in text
    place.write("0001_one.py", text="def (\n")
    with pytest.raises(DiscoveryError, match="SyntaxError") as raised:
        discover(place.app)
    assert "importlib" not in str(raised.value)


def test_a_wrong_declaration_is_said_by_its_own_message_without_a_traceback(place):
    place.write("0001_one.py", text=MIGRATION.replace("status: str", "state: str"))
    with pytest.raises(DiscoveryError) as raised:
        discover(place.app)
    assert re.match(r"one \(0001_one\.py:\d+\): Order has no field state", str(raised.value))
    assert "Traceback" not in str(raised.value)


def test_apps_of_one_module_share_the_folder(place):
    place.write("0001_one.py")
    place.write("0002_two.py", app="other")
    assert list(discover(place.app)) == ["0001"]
    assert list(discover(place.other)) == ["0002"]


def test_a_file_that_another_app_has_squashed_is_none_of_this_one(place):
    text = 'from {module} import other\n\nother.squashed("0002")\n'
    place.write("0001_one.py")
    place.write("0002_squashed.py", text=text)
    assert list(discover(place.app)) == ["0001"]
    assert discover(place.other) == {}
    assert place.other.done_everywhere == ("0002",)


def test_a_file_of_another_app_declares_nothing_of_this_one(place):
    place.write("0002_two.py", app="other", text=MIGRATION + MORE)
    with pytest.raises(DiscoveryError, match="declares 0003; a file declares only"):
        discover(place.app)


def test_a_squashed_number_is_no_reason_to_declare_another_one_in_its_file(place):
    place.app.squashed("0001")
    place.write("0001_one.py", "0009")
    with pytest.raises(DiscoveryError, match="declares 0009"):
        discover(place.app)


def test_a_number_that_is_declared_elsewhere_is_not_taken_for_that_of_a_file(place):
    place.app.migration("0001", place.Order)(lambda number: None)
    place.write("0001_one.py")
    with pytest.raises(DiscoveryError, match="0001"):
        discover(place.app)


def test_files_without_a_number_are_looked_at_however_they_are_written(place):
    text = MIGRATION.replace('migration("', 'migration(\n    "')
    place.write("all_orders.py", "all_orders", text=text)
    place.write("a_tool.py", text="raise AssertionError('tools are not run')")
    assert list(discover(place.app)) == ["all_orders"]


def test_files_are_in_the_order_of_their_numbers_as_numbers(place):
    for number in ("9999", "10000"):
        place.write(f"{number}_one.py", number)
    assert list(discover(place.app)) == ["9999", "10000"]


@pytest.mark.parametrize("mode", get_args(Mode))
def test_a_new_file_runs_as_it_is(place, mode):
    where = f"{place.__name__}:app"
    entity = "PerStatus" if mode == "aggregate" else "Order"
    if mode != "aggregate":
        place.app.migration("0001", place.Order)(lambda number: None)
    path = write_migration(place.app, where, "order_status", entity=entity, mode=mode)
    number = path.name[:4]
    discover(place.app)
    made = place.app.migrations[number]
    assert (made.mode, made.entity.__name__) == (mode, entity)
    assert "status: str" in path.read_text()


def test_the_function_of_a_new_file_names_a_field_that_it_may_set(place):
    where = f"{place.__name__}:app"
    text = write_migration(place.app, where, "one", entity="Order").read_text()
    assert "def one(status: str)" in text
    assert "# Set(status=...)" in text


def test_a_new_file_takes_an_entity_that_no_handler_names_yet(tmp_path, monkeypatch):
    """The page's first example: an app, an entity, and nothing else."""
    page = (Path(__file__).parents[3] / "docs" / "migrations.md").read_text()
    name = next(_names)
    (tmp_path / f"{name}.py").write_text(page.split("```python")[1].split("```")[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    app = importlib.import_module(name).app
    for options in ({"entity": "Order"}, {}):
        path = write_migration(app, f"{name}:app", "order_status_date", **options)
        assert list(discover(app)) == sorted(app.migrations)
        assert "order_status_total: str" in path.read_text()
    del sys.modules[name]


def test_an_entity_that_could_be_another_has_to_be_named(place):
    place.app.migration("0001", place.Order)(lambda number: None)
    with pytest.raises(ValueError, match="have: PerStatus"):
        write_migration(place.app, "x:app", "one", entity="Nothing", mode="aggregate")
    with pytest.raises(ValueError, match="small letters"):
        write_migration(place.app, "x:app", "One Two", entity="Order")
    with pytest.raises(ValueError, match="one of"):
        write_migration(place.app, "x:app", "one", entity="Order", mode="sideways")
    with pytest.raises(ValueError, match="word of Python's own"):
        write_migration(place.app, "x:app", "import", entity="Order")


@pytest.mark.filterwarnings("error")
def test_a_draft_runs_whatever_characters_its_findings_have(place):
    found = 'odd"""\\u12 \\d is missing'
    path = write_migration(place.app, f"{place.__name__}:app", "one", entity="Order", draft=[found])
    discover(place.app)
    assert ast.get_docstring(ast.parse(path.read_text())).endswith(found)
