"""Two versions of streamkit in one process: the one under test, and the one that is deployed.

In: `baseline.tar.xz`, the package as it was released last. Out: its modules, loaded under the name
`streamkit_before`, so that processes of both versions run in the same virtual world; and a folder
with the same sources under their own name, for real processes that import them as `streamkit`.
"""

import functools
import importlib
import re
import sys
import tarfile
import tempfile
from pathlib import Path

from streamkit import errors
from streamkit.aws_lambda.migration import process_slice
from streamkit.kinds.aggregate.rebuild import rebuild_aggregate
from streamkit.migrate.book.refusals import AlreadyBegun
from streamkit.migrate.operate import commands, steps
from streamkit.operate.moves import move_to_lambda, move_to_workers
from streamkit.operate.redrive import redrive
from streamkit.operate.rewind import rewind
from streamkit.testing.crew import TrialCrew
from streamkit.testing.hosts import Functions
from streamkit.testing.world import World

ARCHIVE = Path(__file__).with_name("baseline.tar.xz")
NAME = "streamkit_before"
_PARTS = {
    "Crew": ("testing.crew", TrialCrew),
    "Functions": ("testing.hosts", Functions),
    "World": ("testing.world", World),
    "begin": ("migrate.commands", commands.begin),
    "move_to_lambda": ("moving", move_to_lambda),
    "move_to_workers": ("moving", move_to_workers),
    "process_slice": ("aws_lambda.migration", process_slice),
    "rebuild_aggregate": ("aggregates.rebuilding", rebuild_aggregate),
    "redrive": ("parked.redrive", redrive),
    "rewind": ("operating.rewind", rewind),
    "AlreadyBegun": ("migrate.commands", AlreadyBegun),
    "ConfigurationError": ("errors", errors.ConfigurationError),
} | {
    name: ("migrate.steps", getattr(steps, name))
    for name in ("pause", "resume", "switch", "contract", "rollback")
}
"""What tests use of both versions, by name: the module that has it in the release, and the one of now."""
_IMPORTS = re.compile(r"^(\s*(?:from|import)) streamkit\b", re.MULTILINE)
_NAMES = re.compile(r'"streamkit(?=[".])')
"""What modules say of their own package, in texts: which frames are the user's, for example."""

_UNSEEDED = "default_factory=random.Random"
"""The class itself, looked up when its module was imported: `repeatable` cannot replace it."""


@functools.cache
def unpacked():
    """Return a folder with the released `streamkit`; it lasts as long as this process."""
    folder = tempfile.TemporaryDirectory(prefix="streamkit-before-")
    _FOLDERS.append(folder)
    with tarfile.open(ARCHIVE) as archive:
        # `extractall` has no argument `filter` before Python 3.11.4, and wants one from 3.12 on.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder.name)
    return Path(folder.name)


_FOLDERS = []


def renamed(source):
    """Return a module's text that imports the released version instead of the one under test.

    What it draws at random follows the seed of a trial, too.
    """
    source = source.replace(_UNSEEDED, "default_factory=lambda: random.Random()")
    return _NAMES.sub(f'"{NAME}', _IMPORTS.sub(rf"\1 {NAME}", source))


@functools.cache
def _package():
    """Make the released package importable under its other name."""
    released, folder = unpacked() / "streamkit", unpacked() / "renamed"
    for path in released.rglob("*.*"):
        target = folder / NAME / path.relative_to(released)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_bytes()
        target.write_bytes(renamed(text.decode()).encode() if path.suffix == ".py" else text)
    sys.path.append(str(folder))
    return folder


class Now:
    """The version under test."""

    name = "new"

    def part(self, name):
        """Return what has a name in `_PARTS`, of this version."""
        return _PARTS[name][1]

    def module_of(self, app):
        """Return the module of an app as this version's users have it."""
        return app

    def world(self, world):
        """Return a virtual world as this version sees it."""
        return world


class Before:
    """The released version."""

    name = "old"

    def part(self, name):
        """Return what has a name in `_PARTS`, of this version."""
        _package()
        return getattr(importlib.import_module(f"{NAME}.{_PARTS[name][0]}"), name)

    @functools.cache  # noqa: B019 - there is one of this class
    def module_of(self, app):
        """Return the module of an app as it was deployed: the same text, with this version."""
        name = f"{app.__name__.rpartition('.')[2]}_before"
        (_package() / f"{name}.py").write_text(renamed(Path(app.__file__).read_text()))
        importlib.invalidate_caches()
        return importlib.import_module(name)

    def world(self, world):
        """Return a world as this version sees it: clients of its own, the same engine."""
        made = self.part("World")
        return made(world.engine, world.control, world.clock, world.rng, _clocks=world._clocks)


VERSIONS = {version.name: version for version in (Now(), Before())}
