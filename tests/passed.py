"""Passed: the sources with which a whole run of the tests was green, so that it is not run twice.

`make mutants` needs to know that the tests pass without a bug: a test that fails anyway catches
nothing.
"""

import hashlib
from pathlib import Path

ROOT = Path(__file__).parents[1]
KEPT = ROOT / ".passed"
_FOLDERS = ("streamkit", "handlers", "tests", "deploy", "docs")


def note_passed() -> None:
    """Write down that all tests pass with the sources as they are."""
    KEPT.write_text(_digest())


def have_passed() -> bool:
    """Say whether all tests have passed with the sources as they are."""
    return KEPT.is_file() and KEPT.read_text() == _digest()


def _digest() -> str:
    whole = hashlib.sha256()
    for folder in _FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                whole.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return whole.hexdigest()
