"""Plans that once failed do not fail any more, and still would if their bug came back."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.mutants import MUTANTS
from tests.simulation.fleet_run import run
from tests.simulation.plan import Plan, PlannedEvent
from tests.simulation.regressions import REGRESSIONS

ROOT = Path(__file__).parents[2]
AGAIN = """
from tests.simulation.fleet_run import run
from tests.simulation.regressions import REGRESSIONS
import streamkit, sys
regression = REGRESSIONS[sys.argv[1]]
print(streamkit.__file__)
print(run(regression.seed, regression.plan).invariant)
"""


@pytest.mark.parametrize("name", REGRESSIONS)
def test_a_plan_that_once_failed_passes(name):
    assert run(REGRESSIONS[name].seed, REGRESSIONS[name].plan).violations == []


@pytest.mark.parametrize("name", REGRESSIONS)
def test_a_plan_that_once_failed_fails_with_its_bug(name, tmp_path):
    regression = REGRESSIONS[name]
    (mutant,) = [mutant for mutant in MUTANTS if mutant.name == regression.mutant]
    shutil.copytree(
        ROOT / "streamkit", tmp_path / "streamkit", ignore=shutil.ignore_patterns("__pycache__")
    )
    (tmp_path / "streamkit" / mutant.file).write_text(mutant.applied())
    (tmp_path / "again.py").write_text(AGAIN)
    done = subprocess.run(
        [sys.executable, "again.py", name],
        cwd=tmp_path,
        env=os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    place, found = done.stdout.splitlines()
    assert Path(place).is_relative_to(tmp_path)
    assert found == regression.invariant


def test_a_stored_plan_is_what_a_failing_seed_prints():
    for regression in REGRESSIONS.values():
        printed = eval(regression.plan.literal(), {"Plan": Plan, "Event": PlannedEvent})
        assert printed == regression.plan
