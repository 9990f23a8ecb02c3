"""`streamkit new shop`: write a project that runs.

The files are those of `project/`, with the project's name in place of `$name`, `$table` and others.
"""

import keyword
import os
import re
import shlex
import sys
from pathlib import Path
from string import Template

import typer

from streamkit.cli.printing import say

_FILES = Path(__file__).parent / "project"
_ENDING = ".template"
_HIDDEN = {"gitignore": ".gitignore"}
"""Files whose names begin with a dot; packages of files leave such out."""


def write_project(name: str, parent: Path) -> list[Path]:
    """Write the files of a new project into a folder of its name, and return them.

    Raises:
        BadParameter: the name is not one of a Python module, or the folder is not empty.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise typer.BadParameter(f"{name!r} is not the name of a module, as shop or my_shop is")
    folder = parent / name
    if folder.is_dir() and any(folder.iterdir()):
        raise typer.BadParameter(f"{folder} is there already, and is not empty")
    table = "".join(word.title() for word in name.split("_"))
    table = table if len(table) > 2 else f"{table}Table"  # DynamoDB asks for three characters
    known = {"name": name, "table": table}
    written = []
    for source in sorted(_FILES.rglob(f"*{_ENDING}")):
        inner = source.relative_to(_FILES).with_suffix("")
        place = folder / inner.with_name(_HIDDEN.get(inner.name, inner.name))
        place = Path(Template(str(place)).substitute(known))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(Template(source.read_text()).substitute(known))
        written.append(place)
    return written


def describe_project(name: str, written: list[Path], parent: Path) -> None:
    """Print what was written, and what to do next."""
    for file in written:
        say(f"  {file.relative_to(parent)}")
    say()
    say(f"next: cd {name} && make install test dev {_environment(parent / name)}", bold=True)


def _environment(folder: Path) -> str:
    """Return the variable by which `make` finds streamkit: where it runs now, or what to install.

    The Makefile's own environment would be an empty one.
    """
    if sys.prefix != sys.base_prefix:
        return f"VENV={shlex.quote(os.path.relpath(sys.prefix, folder))}"
    checkout = Path(__file__).parents[2]
    is_checkout = (checkout / "pyproject.toml").is_file()
    return f"STREAMKIT={shlex.quote(str(checkout) if is_checkout else 'streamkit')}"
