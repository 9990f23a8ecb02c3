"""The share of the simulation that every test run makes: seeds in parts, for runners that spread them.

Each part runs in a process of its own, because the order of Python's sets is part of a run, so that
what fails here fails again under the command that it prints.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEEDS = 50
PARTS = 2


@pytest.mark.parametrize("part", range(PARTS))
def test_no_seed_breaks_an_invariant_and_together_they_meet_every_trouble(part):
    each = SEEDS // PARTS
    seeds = f"{part * each}-{(part + 1) * each}"
    command = [sys.executable, "-m", "tests.simulation.simulate", "--seeds", seeds]
    done = subprocess.run(
        [*command, "--jobs", "1", "--reach", "--shrink", "40"],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
