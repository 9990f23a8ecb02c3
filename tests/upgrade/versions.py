"""Two versions of streamkit in one process: the one under test, and the one that is deployed.

In: `baseline.tar.xz`, the package as it was released last. Out: its parts, loaded under the name
`streamkit_before`, so that a worker of each version runs in the same virtual world; and a folder
with the same sources under their own name, for processes that import them as `streamkit`.
"""

import functools
import importlib
import re
import sys
import tarfile
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

ARCHIVE = Path(__file__).with_name("baseline.tar.xz")
NAME = "streamkit_before"
_IMPORTS = re.compile(r"^(\s*(?:from|import)) streamkit\b", re.MULTILINE)
_NAMES = re.compile(r'"streamkit(?=[".])')
"""What modules say of their own package, in texts: which frames are the user's, for example."""


@functools.cache
def unpacked() -> Path:
    """Return a folder with the released `streamkit`; it lasts as long as this process."""
    folder = tempfile.TemporaryDirectory(prefix="streamkit-before-")
    _FOLDERS.append(folder)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder.name, filter="data")
    return Path(folder.name)


_FOLDERS: list[Any] = []


def renamed(source: str) -> str:
    """Return a module's text that imports the released version instead of the one under test."""
    return _NAMES.sub(f'"{NAME}', _IMPORTS.sub(rf"\1 {NAME}", source))


@functools.cache
def _package() -> Path:
    """Make the released package importable under its other name."""
    released, folder = unpacked() / "streamkit", unpacked() / "renamed"
    for path in released.rglob("*"):
        if path.is_file():
            target = folder / NAME / path.relative_to(released)
            target.parent.mkdir(parents=True, exist_ok=True)
            is_code = path.suffix == ".py"
            target.write_bytes(renamed(path.read_text()).encode() if is_code else path.read_bytes())
    sys.path.append(str(folder))
    return folder


def before(module: str) -> Any:
    """Return a module of the released version."""
    _package()
    return importlib.import_module(f"{NAME}.{module}")


@functools.cache
def app_before(module: ModuleType) -> Any:
    """Return a module of an app as it was deployed: the same text, with the released version."""
    name = f"{module.__name__.rpartition('.')[2]}_before"
    path = _package() / f"{name}.py"
    path.write_text(renamed(Path(module.__file__).read_text()))
    importlib.invalidate_caches()
    return importlib.import_module(name)
