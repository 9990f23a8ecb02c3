"""What people who work on streamkit install and run is what CI installs and runs."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from tests.passed import LONG

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements-dev.txt").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()
PINS = re.findall(r"^([\w.-]+)(?:\[.*?\])?==([^\s;]+)", LOCK, re.MULTILINE)
ASKED = (
    *PROJECT["build-system"]["requires"],
    *PROJECT["project"]["dependencies"],
    *PROJECT["project"]["optional-dependencies"]["rich"],
    *PROJECT["dependency-groups"]["test"],
    *PROJECT["dependency-groups"]["lint"],
)


def commands(target):
    """Return the commands of a target of the Makefile."""
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)[1]
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe.splitlines()]


@pytest.mark.parametrize("asked", ASKED)
def test_the_lock_has_a_version_that_the_project_asks_for(asked):
    wanted = Requirement(asked)
    name = re.sub(r"[-_.]+", "-", wanted.name).lower()
    versions = [version for pinned, version in PINS if pinned == name]
    assert versions, "run `make lock`"
    assert all(wanted.specifier.contains(version) for version in versions), "run `make lock`"


def test_each_version_of_the_lock_has_hashes_and_names_no_host():
    assert len(PINS) > 100
    assert len(re.findall(r"^\S.*==.*\\\n    --hash=sha256:", LOCK, re.MULTILINE)) == len(PINS)
    assert not re.search(r"://|--(extra-)?index-url|--find-links| @ ", LOCK)


def test_the_environment_is_installed_from_the_lock_and_from_nothing_else():
    installs = re.findall(r"pip install (.+)$", MAKEFILE, re.MULTILINE)
    assert all("--require-hashes -r $(LOCK)" in one or "--no-deps" in one for one in installs)


def test_a_commit_runs_what_ci_runs_for_style_and_types_and_the_quick_tests():
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    entries = [hook["entry"] for hook in local["hooks"]]
    assert entries == [*commands("lint"), *commands("types"), "make quick"]
    assert all(not hook["pass_filenames"] for hook in local["hooks"])
    assert {"make lint", "make types"} <= set((ROOT / ".ci/run").read_text().splitlines())


def test_the_quick_tests_are_there():
    places = (ROOT / "tests/quick.txt").read_text().split()
    assert "@tests/quick.txt" in commands("quick")[0]
    for one in places:
        path, _, function = (
            one.removeprefix("--ignore=").removeprefix("--deselect=").partition("::")
        )
        assert (ROOT / path).exists(), one
        assert not function or f"def {function}(" in (ROOT / path).read_text(), one


def test_the_long_tests_are_there_and_run_in_ci_instead_of_in_make_test():
    for one in LONG:
        path, _, function = one.partition("::")
        text = f"def {function}(" if function else ""
        assert (ROOT / path).is_dir() or text in (ROOT / path).read_text(), one
    assert len(set(LONG)) == len(LONG)
    assert "sed 's/^/--deselect /' tests/long.txt" in commands("test")[0]
    assert "@tests/long.txt" in commands("long")[0]
    assert {"make long", "make test"} <= set((ROOT / ".ci/run").read_text().splitlines())
    assert "check: lint types long test " in MAKEFILE
