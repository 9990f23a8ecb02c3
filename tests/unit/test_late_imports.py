"""A module imports at its top; later, only what a start would otherwise pay for."""

import ast
import functools
import json
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "streamkit"

LATE = {
    "aws_lambda": "the functions of a mapping start without what only other functions run",
    "cli": "`--help` imports neither the framework nor the SDK, which take half a second",
    "kinds.declared_aggregates": "an app declares aggregates, or none",
    "kinds.declared_migrations": "an app declares migrations, or none",
    "kinds.preflight": "few tables have no sort key, and few apps mirrors",
    "kinds.registration": "an app loads the kinds of handlers that it declares",
    "model.declaration": "only a misspelt name is compared with those that are meant",
    "observe.logger": "a process that logs nothing does not load structlog",
    "observe.otel": "the library is optional",
    "sinks.endpoint": "the library is optional",
    "sinks.sql": "the libraries are optional",
}
"""Modules, or packages, that may import inside of functions."""

FIRST = {"cli"}
"""Modules that do something before they import: the command line can be stopped from the first."""

HELP = """
import json, sys
from contextlib import redirect_stdout, suppress
from streamkit.cli import main
sys.argv = ["streamkit", "--help"]
with suppress(SystemExit), redirect_stdout(sys.stderr):
    main()
print(json.dumps(sorted(sys.modules)))
"""


@functools.cache
def late_imports():
    """Return, for each module with imports inside of functions, what they import."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    found.setdefault(name, set()).update(imported(node))
    return {name: targets for name, targets in found.items() if targets}


def imported(node):
    if isinstance(node, ast.ImportFrom):
        return {node.module}
    return {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()


def test_only_modules_that_start_processes_or_need_optional_libraries_import_inside_of_functions():
    late = late_imports()
    packages = {name if name in LATE else name.partition(".")[0] for name in late}
    assert packages == LATE.keys(), sorted(late)


def test_the_command_line_imports_later_only_what_its_help_does_not_load():
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert "streamkit.cli.program" in loaded
    assert loaded & {"aioboto3", "botocore", "streamkit.app", "rich"} == set()
    needless = {
        name: targets & loaded
        for name, targets in late_imports().items()
        if name.partition(".")[0] == "cli" and name not in FIRST and targets & loaded
    }
    assert needless == {}
