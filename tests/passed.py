"""Passed: the sources with which `make test` was green, so that its tests are not run twice.

`make mutants` needs to know that the tests pass without a bug: a test that fails anyway catches
nothing.
"""

import hashlib
from pathlib import Path

ROOT = Path(__file__).parents[1]
KEPT = ROOT / ".passed"
_FOLDERS = ("streamkit", "handlers", "tests", "deploy", "docs")


LONG = tuple((ROOT / "tests/long.txt").read_text().split())
"""The tests that `make test` leaves out: functions, files or folders."""


def note_passed() -> None:
    """Write down that the tests of `make test` pass with the sources as they are."""
    KEPT.write_text(_digest())


def have_passed() -> bool:
    """Say whether the tests of `make test` have passed with the sources as they are."""
    return KEPT.is_file() and KEPT.read_text() == _digest()


def _digest() -> str:
    whole = hashlib.sha256()
    for folder in _FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                whole.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return whole.hexdigest()
