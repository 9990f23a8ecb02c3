"""What the code promises about itself: sizes, docstrings, and which way imports go."""

import ast
import collections
import functools
import graphlib
import importlib
import inspect
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import streamkit

ROOT = Path(__file__).parents[2]
LINES_MAX = 300
FUNCTION_LINES_MAX, BODY_LINES_MAX = 60, 40
"""A function's lines, and those without its signature and docstring: options say what they do."""
ARGUMENTS_MAX = 8
PACKAGES_MAX, TOP_MODULES_MAX = 16, 10
READING_MAX = 2000
"""The lines of the path of a change, which CONTRIBUTING gives to read."""

ORDER = """
    errors observe model aws entity changes effects
    progress stream archive sinks core table settings fleet kinds
    app streamkit
    worker migrate aws_lambda operate
    cli __main__
"""
"""The packages, each in its own place: a module imports its own package and those named before it,
also inside of functions. A name stands for all modules of a package. `local` and `testing` are
beside the order."""

ORDER_INSIDE = {
    "migrate": "book items sending families run plan verify operate",
    "operate": "past replay restore permissions moves status_page",
}
"""The same of the packages inside of a package."""

SDK = {"aioboto3", "aiobotocore", "boto3", "botocore"}
SDK_IMPORTERS = {
    "aws": {"aiobotocore", "botocore"},
    "model.sdk.sessions": SDK - {"boto3"},
    "model.conditions": {"boto3"},
    "model.sdk.exchanges": {"aiobotocore", "botocore"},
    "model.sdk.frequent_calls": {"aiobotocore", "botocore"},
    "local.transport": {"aiobotocore", "botocore"},
}
"""Which modules know the SDK, and which parts of it."""

ONLY_IN = {
    "typer": {"cli"},
    "rich": {"cli"},
    "moto": set(),
    "pytest": {"testing"},
    "httpx": {"sinks"},
    "sqlalchemy": {"sinks"},
    "opentelemetry": {"observe"},
}
"""Libraries that only these packages may use."""

RECORDS = {
    "progress.actions.Action": "an effect fills it while it is rendered",
    "kinds.aggregate.backfill.BackfillCounts": "numbers that count",
    "operate.permissions.access.Access": "what is found of one app, handler after handler",
    "migrate.book.tallies.Tally": "numbers that count",
    "operate.replay.report.HandlerReplay": "numbers that count",
    "progress.commit.Batch": "the planner fills it, the fence completes its cursor",
    "core.failures.DispatchCounts": "numbers that count",
    "core.outcome.Outcome": "what one run of a handler came to, run after run",
    "core.outcome.PendingChange": "a pending change, as it becomes known",
    "core.draft.Draft": "the commit that is being filled",
    "core.shadow.ShadowCounts": "numbers that count",
    "testing.crew.Mortal": "a scenario tells it where it dies",
    "testing.hosts.Function": "a scenario tells it what happens next",
    "testing.trial.Ran": "what a trial found, step after step",
    "testing.world.Process": "a scenario tells it where it dies",
}
"""Classes whose fields others may set: data that one step after another fills, without rules of its
own. Beside them, a module may set the fields of its own private classes, and nothing else."""

SET_FROM_OUTSIDE = {
    "context.check_hostname": "Python's way to set it, and botocore's function takes no such option",
    "info.default": "pydantic has no other way to let a field be left out later",
    "info.default_factory": "the same",
}
"""Attributes, as they are written, that are set on objects of others, and why each is."""

MADE_OF_MUCH = {
    ("app", "_Listener"): "an app's options, each by its name",
}
"""Objects that are made of more, by the module that makes them, and why."""

PRIVATE_FROM_OUTSIDE = {
    "AioBaseClient._make_api_call": "botocore has no public place to make a call in another way",
    "endpoint._get_response": "the same",
    "endpoint._needs_retry": "the same",
    "endpoint._update_retries_context": "the same",
    "signer._choose_signer": "the same",
    "os._exit": "its name; the standard library has no other way to end a process at once",
    "sys._current_frames": "its name; the library documents no other way to a thread's stack",
    "otel_metrics._Gauge": "the type of what a public method returns has no public name",
    "handle._callback": "the virtual loop orders callbacks by their tasks; asyncio does not say which",
}
"""Private attributes that are read outside of their class, and why each is."""

PURE = """
    changes core.by_item core.cascades core.handler core.outcome core.parking core.planning
    core.querying core.queueing core.reading core.writes effects entity
    kinds.aggregate.aggregate kinds.aggregate.buckets kinds.aggregate.contributions
    kinds.aggregate.entries kinds.aggregate.extremes kinds.aggregate.measures
    kinds.aggregate.options kinds.aggregate.recount kinds.aggregate.soundness kinds.annotation
    model.builds model.epoch model.keys model.origin model.parts model.queries model.schema
    model.spec model.templates model.when observe.pricing progress.actions progress.compile
    progress.control progress.fold progress.lease progress.own_effects progress.updates
    sinks.body sinks.envelope sinks.notes sinks.versions stream.lineage stream.start
"""
"""Functions over values: they neither wait nor talk to anyone, so tests need no loop for them."""


@dataclass(frozen=True)
class Module:
    """One source file; `name` is without the leading `streamkit.`."""

    name: str
    path: Path
    text: str

    @functools.cached_property
    def tree(self):
        return ast.parse(self.text)

    @functools.cached_property
    def nodes(self):
        """All nodes of the tree, by their kinds: most questions are about a few kinds."""
        found = collections.defaultdict(list)
        for node in ast.walk(self.tree):
            found[type(node)].append(node)
        return found

    @property
    def package(self):
        return self.name.partition(".")[0]

    @functools.cached_property
    def imports(self):
        """Every module that it imports anywhere, but for those that only types need."""
        skipped = {
            id(node)
            for guard in self.nodes[ast.If]
            if written(guard.test).endswith("TYPE_CHECKING")
            for statement in guard.body
            for node in ast.walk(statement)
        }
        found = set()
        for node in (*self.nodes[ast.Import], *self.nodes[ast.ImportFrom]):
            if id(node) in skipped:
                continue
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            else:
                assert not node.level, f"{self.path}: import absolutely"
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                submodules = inner & names_of_files()
                found |= submodules or {node.module}
        return found

    @property
    def own_imports(self):
        """Imports of streamkit's modules, without the leading `streamkit.`."""
        ours = {name for name in self.imports if name.partition(".")[0] == "streamkit"}
        return {name.removeprefix("streamkit.") for name in ours}

    @property
    def libraries(self):
        return {name.partition(".")[0] for name in self.imports}


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


@functools.cache
def names_of_files():
    return {name_of(path) for path in (ROOT / "streamkit").rglob("*.py")}


@functools.cache
def modules():
    paths = sorted((ROOT / "streamkit").rglob("*.py"))
    found = [Module(name_of(p).removeprefix("streamkit."), p, p.read_text()) for p in paths]
    assert len(found) > 100
    return found


def functions(module):
    return [*module.nodes[ast.FunctionDef], *module.nodes[ast.AsyncFunctionDef]]


def written(node):
    """Return an expression as it is written; most are a name, or a name and attributes."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
        return f"{written(node.value)}.{node.attr}"
    return ast.unparse(node)


BESIDE = ("local", "testing")


def test_every_module_says_what_it_is_for():
    assert [m.name for m in modules() if not ast.get_docstring(m.tree)] == []


def test_no_file_is_too_long():
    lengths = {m.name: len(m.text.splitlines()) for m in modules()}
    assert {name: lines for name, lines in lengths.items() if lines > LINES_MAX} == {}


def test_the_path_of_a_change_is_read_in_one_sitting():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    path = text.partition("### Read the path of a change")[2].partition("Beside the path")[0]
    files = re.findall(r"^\d+\. `(streamkit/[\w/]+\.py)`", path, re.MULTILINE)
    assert f"{len(files)} files" in path
    assert 5 < len(files) <= 15
    assert sum(len((ROOT / file).read_text().splitlines()) for file in files) <= READING_MAX


def test_no_function_is_too_long():
    lengths = {
        f"{module.name}.{function.name}": function.end_lineno - function.lineno + 1
        for module in modules()
        for function in functions(module)
    }
    assert {name: n for name, n in lengths.items() if n > FUNCTION_LINES_MAX} == {}
    bodies = {
        f"{module.name}.{function.name}": function.end_lineno - body[0].lineno + 1
        for module in modules()
        for function in functions(module)
        if (body := function.body[ast.get_docstring(function) is not None :])
    }
    assert {name: n for name, n in bodies.items() if n > BODY_LINES_MAX} == {}


def targets_of(node):
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def assigned(module):
    """Yield each attribute that is assigned, as an object and a name, with its line."""
    for kind in (ast.Assign, ast.AugAssign, ast.AnnAssign):
        for target in (one for node in module.nodes[kind] for one in targets_of(node)):
            for one in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
                if isinstance(one, ast.Attribute):
                    yield one


@functools.cache
def attributes(definition):
    return [node for node in ast.walk(definition) if isinstance(node, ast.Attribute)]


@functools.cache
def own_fields(definition):
    """Return the names that a class annotates, or that it sets on `self`."""
    annotated = {s.target.id for s in definition.body if isinstance(s, ast.AnnAssign)}
    named = {t.id for s in definition.body if isinstance(s, ast.Assign) for t in s.targets}
    own = {n.attr for n in attributes(definition) if written(n.value) == "self"}
    return annotated | named | own


def classes(module):
    return module.nodes[ast.ClassDef]


@functools.cache
def fields_of_records():
    found = set()
    for name in RECORDS:
        where, _, record = name.rpartition(".")
        (module,) = [module for module in modules() if module.name == where]
        (definition,) = [one for one in classes(module) if one.name == record]
        found |= own_fields(definition)
    return found


def test_no_object_is_completed_from_outside():
    """An object is complete when it is constructed, and only its own methods change it.

    Not in the engine: a server's tables and shards are its data, all through.
    """
    found = set()
    for module in modules():
        if module.package == "local":
            continue
        private = [own_fields(one) for one in classes(module) if one.name.startswith("_")]
        allowed = fields_of_records().union(*private)
        for target in assigned(module):
            owner = written(target.value)
            if owner in ("self", "cls") or target.attr in allowed | {"__signature__"}:
                continue
            found.add((module.name, written(target)))
    assert {text for _, text in found} == set(SET_FROM_OUTSIDE), sorted(found)


def test_no_private_attribute_is_read_outside_of_its_class():
    """Not in the engine, which takes the place of the SDK's inside."""
    found = set()
    for module in modules():
        if module.package == "local":
            continue
        within = {}
        for definition in classes(module):
            own = own_fields(definition) | {
                f.name
                for f in definition.body
                if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef)
            }
            for node in attributes(definition):
                within.setdefault(id(node), set()).update(own)
        for node in module.nodes[ast.Attribute]:
            if not node.attr.startswith("_"):
                continue
            of_python = node.attr.endswith("__") or node.attr == "_replace"
            own = written(node.value) in ("self", "cls", "super()")
            if not (of_python or own or node.attr in within.get(id(node), ())):
                found.add((module.name, written(node)))
    assert {text for _, text in found} == set(PRIVATE_FROM_OUTSIDE), sorted(found)


def is_value(definition):
    """Return whether a class is a frozen dataclass, or a frozen structure."""
    decorators = [ast.unparse(one) for one in definition.decorator_list]
    frozen = any(one.arg == "frozen" for one in definition.keywords)
    return frozen or any("dataclass" in one and "frozen=True" in one for one in decorators)


@functools.cache
def working_classes():
    """Return the names of classes that do something: not those of values, and of records."""
    records = {name.rpartition(".")[2] for name in RECORDS}
    return {
        definition.name
        for module in modules()
        for definition in classes(module)
        if definition.name not in records and not is_value(definition)
    }


def test_no_function_takes_more_than_can_be_told_apart():
    """What is given by its name alone may be more: an app's options, and a command's."""
    counts = {}
    for module in modules():
        for function in functions(module):
            taken = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
            counts[module.name, function.name] = len(set(taken) - {"self", "cls"})
    assert {name: n for name, n in counts.items() if n > ARGUMENTS_MAX} == {}


def test_no_object_is_made_of_more_than_can_be_told_apart():
    """What belongs together is one argument. The fields of a value may be more, each by its name.

    Not in the engine, whose settings are DynamoDB's.
    """
    found = set()
    for module in modules():
        if module.package == "local":
            continue
        for node in module.nodes[ast.Call]:
            if len(node.args) + len(node.keywords) <= ARGUMENTS_MAX:
                continue
            called = written(node.func)
            if len(node.args) > ARGUMENTS_MAX or called in working_classes():
                found.add((module.name, called))
    assert found == set(MADE_OF_MUCH), sorted(found)


def test_no_module_is_called_after_nothing():
    nouns = {part for m in modules() for part in m.name.split(".")}
    assert nouns.isdisjoint({"utils", "util", "helpers", "common", "misc", "base"})


def test_every_package_has_its_place():
    names = ORDER.split()
    assert len(names) == len(set(names))
    packages = {m.package for m in modules()} - set(BESIDE)
    assert packages == set(names), "say in ORDER where a new package belongs"


def test_the_listing_of_the_house_is_short():
    top = [path for path in (ROOT / "streamkit").iterdir() if path.suffix == ".py"]
    packages = {m.package for m in modules()} - {path.stem for path in top} - {"streamkit"}
    assert len(packages) <= PACKAGES_MAX
    assert len(top) <= TOP_MODULES_MAX


def test_a_class_has_a_name_of_its_own():
    found = collections.Counter(node.name for module in modules() for node in classes(module))
    assert [name for name, times in found.items() if times > 1] == []


def test_imports_go_one_way_from_package_to_package():
    place = {name: number for number, name in enumerate(ORDER.split())}
    upwards = {
        (module.name, imported)
        for module in modules()
        for imported in module.own_imports
        if module.package not in BESIDE and imported.partition(".")[0] not in BESIDE
        if place[imported.partition(".")[0]] > place[module.package]
    }
    assert upwards == set()


def test_imports_go_one_way_inside_of_a_package_of_packages():
    for package, order in ORDER_INSIDE.items():
        place = {f"{package}.{name}": number for number, name in enumerate(order.split())}
        inside = {m.name.rpartition(".")[0] for m in modules() if m.package == package}
        assert inside - {"", package} <= {*place}
        upwards = {
            (module.name, imported)
            for module in modules()
            for imported in module.own_imports
            if (here := place.get(module.name.rpartition(".")[0])) is not None
            if place.get(imported.rpartition(".")[0], 0) > here
        }
        assert upwards == set()


def test_imports_make_no_circle():
    graph = {module.name: module.own_imports for module in modules()}
    list(graphlib.TopologicalSorter(graph).static_order())


def test_the_local_engine_knows_nothing_of_the_rest():
    strangers = {
        (module.name, imported)
        for module in modules()
        if module.package == "local"
        for imported in module.own_imports
        if imported.partition(".")[0] != "local"
    }
    assert strangers == set()


def test_only_the_command_line_and_the_testing_tools_know_the_local_engine():
    importers = {
        beside: {
            module.package
            for module in modules()
            if any(name.partition(".")[0] == beside for name in module.own_imports)
        }
        for beside in BESIDE
    }
    assert importers["local"] <= {"local", "testing", "cli"}
    assert importers["testing"] <= {"testing"}


def test_only_named_modules_know_the_sdk():
    known = {
        module.name: module.libraries & SDK
        for module in modules()
        if module.package != "testing" and module.libraries & SDK
    }
    assert known == SDK_IMPORTERS


@pytest.mark.parametrize("library", ONLY_IN)
def test_a_library_stays_in_its_package(library):
    importers = {module.package for module in modules() if library in module.libraries}
    assert importers <= ONLY_IN[library]


@pytest.mark.parametrize("name", PURE.split())
def test_pure_modules_neither_wait_nor_log(name):
    (module,) = [module for module in modules() if module.name == name]
    assert not any(isinstance(function, ast.AsyncFunctionDef) for function in functions(module))
    assert module.libraries.isdisjoint(
        {"anyio", "asyncio", "logging", "random", "socket", "structlog", "time"}
    )


IMPORTS = ("from streamkit import *", "import streamkit.worker.worker")
"""All public names, and a worker."""

ONE_AFTER_ANOTHER = ("import streamkit", "import aioboto3", *IMPORTS)
"""Each loads what the ones before it load, and more."""

COMMANDS = (["--help"], ["--version"], ["status", "--help"], ["migrate", "run", "--help"])


def loaded_after_each(statements):
    """Return the modules that one fresh interpreter has loaded after each of some statements."""
    # The SDK imports httpx where it is installed, as for a webhook; what that loads is not ours.
    program = "import json, sys\nsys.modules['httpx'] = None\nfound = []\n"
    for statement in statements:
        program += f"{statement}\nfound.append(sorted(sys.modules))\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}print(json.dumps(found))"],
        capture_output=True,
        check=True,
        cwd=ROOT,
        text=True,
    )
    return [frozenset(names) for names in json.loads(done.stdout)]


@functools.cache
def loaded_by_imports():
    found = loaded_after_each(ONE_AFTER_ANOTHER)
    return dict(zip(ONE_AFTER_ANOTHER, found, strict=True))


def loaded_after(statement):
    return loaded_by_imports()[statement]


@functools.cache
def loaded_by_commands():
    """Return what is loaded after each command; one that loads too much fails those after it, too."""
    run = """
import contextlib, io
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    sys.argv = ["streamkit", *{}]
    from streamkit.cli import main
    main()
"""
    return loaded_after_each([run.format(command) for command in COMMANDS])


def loaded_by_us_after(statement):
    """Leave out what the AWS client loads: where httpx is installed, that brings click and rich."""
    client = loaded_after("import aioboto3") - loaded_after("import streamkit")
    return loaded_after(statement) - client


@pytest.mark.parametrize("statement", IMPORTS)
def test_an_import_loads_no_command_line_no_engine_and_no_test_tools(statement):
    loaded = loaded_by_us_after(statement)
    assert "streamkit.app" in loaded
    unwanted = {"typer", "click", "moto", "pytest", "hypothesis", "werkzeug"}
    unwanted |= {"streamkit.cli", "streamkit.local", "streamkit.testing"}
    assert loaded.isdisjoint(unwanted)


@pytest.mark.parametrize("statement", IMPORTS)
def test_an_import_loads_no_terminal_rendering(statement):
    assert "rich" not in loaded_by_us_after(statement)


@pytest.mark.parametrize("statement", IMPORTS)
def test_an_import_loads_no_library_of_an_extra(statement):
    # Not httpx: the AWS client imports it where it is installed.
    assert loaded_after(statement).isdisjoint({"sqlalchemy", "greenlet", "opentelemetry"})


def test_importing_the_public_names_starts_no_worker_code():
    assert "streamkit.worker.worker" not in loaded_after("from streamkit import *")


@functools.cache
def typed_homes():
    """The public names with the modules from which type checkers see them imported."""
    (root,) = [module for module in modules() if module.name == "streamkit"]
    guards = [node for node in root.tree.body if isinstance(node, ast.If)]
    typed = [*root.tree.body, *(s for guard in guards for s in guard.body)]
    return {
        alias.name: node.module
        for node in typed
        if isinstance(node, ast.ImportFrom) and node.module.startswith("streamkit.")
        for alias in node.names
    }


def defining_module(name):
    """Find where a public name comes from."""
    wanted = typed_homes()[name].removeprefix("streamkit.")
    return next(module for module in modules() if module.name == wanted)


def documented_below(module, name):
    """Say whether an assignment of a name is followed by a string that describes it."""
    for statement, following in zip(module.tree.body, module.tree.body[1:], strict=False):
        targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
        if name in [getattr(target, "id", None) for target in targets]:
            value = getattr(following, "value", None)
            return isinstance(value, ast.Constant) and isinstance(value.value, str)
    return False


@pytest.mark.parametrize("name", streamkit.__all__)
def test_every_public_name_can_be_imported_and_is_described(name):
    thing = getattr(streamkit, name)
    if inspect.isclass(thing):
        assert vars(thing).get("__doc__"), f"{name} inherits its docstring"
    elif inspect.isroutine(thing):
        assert thing.__doc__
    else:
        member_of_ours = type(thing).__module__.startswith("streamkit.") and type(thing).__doc__
        assert documented_below(defining_module(name), name) or member_of_ours


def test_the_public_names_are_sorted_and_complete():
    assert streamkit.__all__ == sorted(streamkit.__all__)
    assert set(streamkit.__all__) == set(typed_homes())


@pytest.mark.parametrize("name", streamkit.__all__)
def test_a_public_name_is_what_type_checkers_take_it_for(name):
    home = importlib.import_module(typed_homes()[name])
    assert getattr(streamkit, name) is getattr(home, name)


def test_a_name_that_is_not_public_is_no_attribute():
    with pytest.raises(AttributeError, match="has no attribute 'Tabel'"):
        streamkit.Tabel  # noqa: B018


def test_importing_the_package_loads_neither_the_sdk_nor_pydantic():
    assert loaded_after("import streamkit").isdisjoint(SDK | {"pydantic", "streamkit.app"})


@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=lambda n: " ".join(COMMANDS[n]))
def test_help_loads_neither_the_sdk_nor_an_app(number):
    unwanted = SDK | {"structlog", "streamkit.app", "streamkit.entity"}
    assert loaded_by_commands()[number].isdisjoint(unwanted)
